"$MAKE_NPY" images.npy "<f4" 10,8,8 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec raw
"$TUCKFOLD" pack images.npy -o images.tuck --codec raw --append
"$TUCKFOLD" verify images.tuck
