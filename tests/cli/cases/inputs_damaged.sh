# Inputs of every kind, whole, empty and cut: status 3 wherever one is seen to be cut, nothing left
# behind. A few bytes alone say nothing of what they were: status 2.
cat >make.py <<PY
import gzip, io, json, struct, sys, tarfile, zipfile
from pathlib import Path

def npy(shape, descr, data):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data

image = npy((4, 8, 8), "<f4", bytes(1024))
Path("a.npy").write_bytes(image)
for name, how in ("a.npz", zipfile.ZIP_STORED), ("b.npz", zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(name, "w", how) as archive:
        archive.writestr(zipfile.ZipInfo("x.npy"), image, how)
idx = struct.pack(">4I", 0x803, 4, 8, 8) + bytes(range(256))
Path("a-images-idx3-ubyte").write_bytes(idx)
Path("b-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx, mtime=0))
header = json.dumps({"x": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
Path("a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(128))
with tarfile.open("a.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
    for i in range(3):
        for name, data in (f"{i:04}.image.npy", image), (f"{i:04}.cls", b"%d" % i):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
Path("data_batch_1.bin").write_bytes((b"\1" + bytes(3072)) * 3)

Path("pickled").write_bytes(Path(sys.argv[1]).read_bytes())
PY
python3 make.py "$(dirname "$MAKE_NPY")/../../fuzz/corpus/cifar_pickle/protocol4"
mkdir cut
try() { "$TUCKFOLD" pack "$@" -o out.tuck || echo "status $?"; }
for file in a.npy a.npz b.npz a-images-idx3-ubyte b-images-idx3-ubyte.gz a.safetensors a.tar data_batch_1.bin pickled; do
  size=$(stat -c %s $file)
  try $file
  rm -f out.tuck
  for bytes in 0 5 $((size / 2)) $((size - 1)); do
    head -c $bytes $file >cut/$file
    [ $file = a.tar ] && [ $bytes = $((size - 1)) ] && continue  # one block of zeros is an end
    echo "$bytes of $size:" $(try cut/$file 2>&1)
  done
done
ls
