"$MAKE_NPY" image.npy "<f4" 40,3,16,16 wave
"$MAKE_NPY" label.npy "<i8" 40 ramp
python3 -m zipfile -c data.npz image.npy label.npy
"$TUCKFOLD" pack data.npz -o data.tuck --codec "dct_chop(keep=4)" --quiet
"$TUCKFOLD" diff data.tuck data.npz
"$TUCKFOLD" diff data.tuck --against data.npz --range 20: --select label
"$TUCKFOLD" diff data.tuck data.tuck --threads 1
