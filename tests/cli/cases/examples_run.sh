# What --help shows can be copied: every example runs, but for those of bench, which take long.
cat >make.py <<PY
import gzip, struct, zipfile
from pathlib import Path

def npy(shape, descr, data):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data

with zipfile.ZipFile("data.npz", "w") as archive:
    archive.writestr("image.npy", npy((20, 16, 16), "<f4", struct.pack("<5120f", *range(5120))))
    archive.writestr("mask.npy", npy((20, 16, 16), "|u1", bytes(5120)))
images = struct.pack(">4I", 0x803, 300, 8, 8) + bytes(19200)
labels = struct.pack(">2I", 0x801, 300) + bytes(300)
Path("train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
Path("train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
Path("field.bin").write_bytes(struct.pack("<65536f", *(i % 256 for i in range(65536))) * 2)
PY
python3 make.py
"$MAKE_NPY" images.npy "<f4" 20,3,16,16 wave
cp images.npy field.npy
gzip -k images.npy
mkdir bin
ln -s "$TUCKFOLD" bin/tuckfold
export PATH=$PWD/bin:$PATH HOME=$PWD/home  # examples write there
mkdir -p home/.zfunc home/.config/fish/completions
command -v man >/dev/null || { echo "there is no man here"; exit 77; }
for verb in pack unpack slice cat info verify repair eval choose codecs completion man; do
  tuckfold $verb --help | sed -n '/^Examples\?:/,$s/^  //p' >examples.txt
  [ -s examples.txt ] || echo "$verb has none"
  while read -r line; do
    bash -eu -o pipefail -c "$line" </dev/null >out.txt 2>err.txt || { echo "failed: $line"; cat err.txt; }
  done <examples.txt
  # What the next verbs take.
  case $verb in
    pack) cp train.tuck broken.tuck && mv images.npy kept.npy ;;
    unpack) mv kept.npy images.npy ;;
  esac
done
ls
for columns in 40 80 100; do
  for verb in "" pack unpack slice cat info verify repair; do
    # But for examples, usage, and words that no line holds.
    COLUMNS=$columns tuckfold $verb --help | sed '/^Examples\?:/,/^$/d; /^Usage/d' | awk -v most=$columns 'length > most && NF > 2'
  done
done
