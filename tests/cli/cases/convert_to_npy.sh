"$MAKE_NPY" image.npy "<f4" 10,4,4 wave
"$MAKE_NPY" label.npy "<i8" 10 ramp
python3 -m zipfile -c data.npz image.npy label.npy
"$TUCKFOLD" pack data.npz -o a.tuck --quiet
"$TUCKFOLD" convert a.tuck -o out.npy --select image
cmp out.npy image.npy
"$TUCKFOLD" convert a.tuck a.tuck -o twice
"$TUCKFOLD" convert a.tuck -o - --select label | cmp - label.npy
"$TUCKFOLD" convert a.tuck -o one --select label --rename label=y --json
ls one twice
