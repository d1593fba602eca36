# An append takes the codecs of the file; arrays must be those it has.
try() { "$TUCKFOLD" pack "$@" || echo "status $?"; }
"$MAKE_NPY" images.npy "<f4" 10,3,8,8 wave
"$MAKE_NPY" labels.npy "<i8" 10 ramp
try images.npy -o images.tuck --codec "dct_chop(keep=4)"
try images.npy -o images.tuck --append
"$TUCKFOLD" info images.tuck
try images.npy -o images.tuck
try images.npy -o images.tuck --append --codec raw
try images.npy -o images.tuck --append --samples-per-chunk 3
try images.npy -o images.tuck --append --rename data=other
try labels.npy -o images.tuck --append
try images.npy -o missing.tuck --append
try images.npy -o labels.npy --append
"$TUCKFOLD" verify images.tuck
