try() { "$TUCKFOLD" view "$@" || echo "exit $?"; }
"$MAKE_NPY" a.npy "<f4" 4,8,8 wave
"$MAKE_NPY" b.npy "<f4" 4,8,9 wave
"$MAKE_NPY" flat.npy "<f4" 4,8 wave
"$MAKE_NPY" none.npy "<f4" 0,8,8 wave
"$TUCKFOLD" pack a.npy -o a.tuck --codec raw --quiet
touch there.png
try
try missing.npy
try a.npy -o there.png
try a.npy -o a.jpg
try a.npy -o no/such/folder/a.png
try flat.npy
try none.npy
try a.npy --select image
try a.npy --samples 4
try a.npy --samples 1,x
try a.npy --samples 1 --count 2
try a.npy --range 2:2
try a.npy --channel 1
try a.npy --count 0
try a.npy --against b.npy
try a.npy --rename data=image --against a.npy
try a.npy --codec "dct_chop(kep=4)"
python3 - <<PY
from pathlib import Path
data = bytearray(Path("a.tuck").read_bytes())
data[600] ^= 1
Path("a.tuck").write_bytes(data)
PY
try a.tuck
ls
