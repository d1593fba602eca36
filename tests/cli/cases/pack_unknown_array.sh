"$MAKE_NPY" images.npy "<f4" 4,8,8 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec imges=raw
