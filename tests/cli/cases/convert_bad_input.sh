try() { "$TUCKFOLD" convert "$@" || echo "exit $?"; }
"$MAKE_NPY" a.npy "<f4" 4,8,8 wave
"$MAKE_NPY" b.npy "<f4" 4,8,9 wave
"$TUCKFOLD" pack a.npy -o a.tuck --codec raw --quiet
"$TUCKFOLD" pack b.npy -o b.tuck --quiet
try
try a.tuck
try a.npy -o c.tuck
try missing.tuck -o c.tuck
try a.tuck b.tuck -o c.tuck
"$TUCKFOLD" pack a.npy -o filled.tuck --fill -999 --quiet
try a.tuck filled.tuck -o c.tuck
try a.tuck -o b.tuck
try a.tuck -o c.csv
try a.tuck -o a.npy
try a.tuck -o c.npy --codec raw
try a.tuck -o c.tuck --select imge
try a.tuck -o c.tuck --codec imge=raw
try a.tuck -o c.tuck --codec raw --codec zstd
try a.tuck -o c.tuck --codec "dct_chp(keep=4)"
try a.tuck -o c.tuck --codec "bits(width=1)"
try a.tuck -o c.tuck --rename data=
try a.tuck -o no/such/folder/c.tuck
try a.tuck -o no/c --select data --rename data=../x
python3 - <<PY
from pathlib import Path
data = bytearray(Path("a.tuck").read_bytes())
data[600] ^= 1
Path("a.tuck").write_bytes(data)
PY
try a.tuck -o c.tuck
ls
