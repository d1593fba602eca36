try() { "$TUCKFOLD" diff "$@" || echo "exit $?"; }
"$MAKE_NPY" a.npy "<f4" 4,8,8 wave
"$MAKE_NPY" b.npy "<f4" 5,8,8 wave
"$MAKE_NPY" c.npy "<f4" 4,8,9 wave
"$TUCKFOLD" pack a.npy -o a.tuck --rename data=image --quiet
"$TUCKFOLD" pack a.npy -o raw.tuck --codec raw --quiet
try
try a.npy
try a.npy b.npy c.npy
try missing.tuck a.npy
try a.tuck missing.npy
try a.tuck a.npy
try a.npy b.npy
try a.npy c.npy
try a.npy b.npy --range 3:5
try a.npy b.npy --select image
try a.tuck a.tuck --select imge
try a.npy a.npy --fail-below nan
try a.tuck a.npy --rename data
try a.npy a.tuck --format npy
try a.npy --against a.npy a.tuck
head -c 600 raw.tuck >cut.tuck
try cut.tuck a.npy
python3 - <<PY
from pathlib import Path
data = bytearray(Path("raw.tuck").read_bytes())
data[600] ^= 1
Path("raw.tuck").write_bytes(data)
PY
try raw.tuck a.npy
