"$MAKE_NPY" image.npy "<f4" 10,3,16,16 wave
"$MAKE_NPY" label.npy "<i8" 10 ramp
python3 -m zipfile -c data.npz image.npy label.npy
"$TUCKFOLD" pack data.npz -o a.tuck --codec "bounded(abs=0.01)" --samples-per-chunk 4 --metadata '{"from": "a"}' --quiet
"$TUCKFOLD" convert a.tuck a.tuck -o all.tuck
"$TUCKFOLD" info all.tuck
"$TUCKFOLD" verify all.tuck
"$TUCKFOLD" slice all.tuck 10: -o second
"$TUCKFOLD" unpack a.tuck -o first
cmp first/image.npy second/image.npy
cmp first/label.npy second/label.npy
"$TUCKFOLD" convert a.tuck -o same.tuck --quiet
cmp a.tuck same.tuck
ls
