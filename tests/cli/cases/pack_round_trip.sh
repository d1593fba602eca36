"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec raw
"$TUCKFOLD" info images.tuck
"$TUCKFOLD" verify images.tuck
"$TUCKFOLD" unpack images.tuck -o out
cmp images.npy out/*.npy
ls
