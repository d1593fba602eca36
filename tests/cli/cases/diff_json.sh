"$MAKE_NPY" image.npy "|u1" 6,12,12 wave
"$MAKE_NPY" label.npy "<i4" 6 ramp
python3 -m zipfile -c both.npz image.npy label.npy
"$TUCKFOLD" pack both.npz -o both.tuck --codec "dct_quant(rate=3)" --quiet
"$TUCKFOLD" pack image.npy --rename data=image -o image.tuck --quiet
"$TUCKFOLD" diff both.tuck image.tuck --json
"$TUCKFOLD" diff image.tuck both.tuck
