# Every example of these verbs' help runs as it is printed.
tuckfold() { "$TUCKFOLD" "$@"; }
"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
python3 - <<PY
import gzip, struct
from pathlib import Path
pixels = bytes((7 * i + i // 28) % 256 for i in range(5 * 28 * 28))
def write(name, data):
    Path(name).write_bytes(gzip.compress(data))
write("train-images-idx3-ubyte.gz", struct.pack(">4i", 0x803, 5, 28, 28) + pixels)
write("train-labels-idx1-ubyte.gz", struct.pack(">2i", 0x801, 5) + bytes(range(5)))
PY
tuckfold pack images.npy -o images.tuck --codec "dct_quant(rate=8)" --quiet
tuckfold pack train-*.gz -o a.tuck --quiet
cp a.tuck b.tuck
"$MAKE_MANIFEST" shards.json a.tuck b.tuck
for verb in diff convert view; do
  cp a.tuck train.tuck
  tuckfold $verb --help | sed -n '/^Examples:/,$p' | grep '^  tuckfold' >examples
  while read -r line; do
    echo "$line"
    eval "$line --quiet" 2>&1
    rm -f train.tuck all.tuck && cp a.tuck train.tuck
  done <examples
done
ls
