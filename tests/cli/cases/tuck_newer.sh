# Files of a later version are refused as such; records of kinds that are not known are passed over.
"$MAKE_NPY" images.npy "<f4" 10,8,8 wave
"$TUCKFOLD" pack images.npy -o whole.tuck --codec raw --quiet
cat >change.py <<PY
import struct, sys
from pathlib import Path

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

def put(data, at, form, value):
    struct.pack_into(form, data, at, value)

def sealed(part, at):  # a part with its own checksum, which counts as zeros
    put(part, at, "<I", 0)
    put(part, at, "<I", crc32c(part))
    return part

def trailer_of(data, **changes):
    part = bytearray(data[-64:])
    for at, value in changes.items():
        put(part, int(at[1:]), "<Q" if int(at[1:]) < 48 else "<I", value)
    return sealed(part, 52)

data = bytearray(Path("whole.tuck").read_bytes())
what = sys.argv[1]
if what == "start":
    put(data, 8, "<I", 2)
elif what == "flags":
    put(data, 12, "<I", 1)
elif what == "trailer":
    data[-64:] = trailer_of(data, _48=2)
elif what == "record":  # one of kind 9 before the index, which moves
    index_at = struct.unpack_from("<Q", data, len(data) - 64)[0]
    payload = b"of a later version"
    head = bytearray(struct.pack("<4sIQIIQ", b"TkRc", 9, len(payload), 0, crc32c(payload), index_at))
    record = (bytes(sealed(head, 16)) + payload).ljust(64, b"\0")
    index = bytearray(data[index_at:-64])
    put(index, 24, "<Q", index_at + 64)
    index[:32] = sealed(bytearray(index[:32]), 16)
    trailer = trailer_of(data, _0=index_at + 64, _16=len(data) + 64)
    data = data[:index_at] + record + index + trailer
Path("file.tuck").write_bytes(data)
PY
for what in start flags trailer record; do
  python3 change.py $what
  for verb in info verify "cat --range 3"; do
    set -- $verb
    "$TUCKFOLD" $1 file.tuck "${@:2}" >out.txt || echo "$what: $1 $?"
  done
done
"$TUCKFOLD" verify file.tuck
"$TUCKFOLD" repair file.tuck -o saved.tuck
