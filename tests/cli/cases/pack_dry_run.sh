"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec "dct_chop(keep=4)" --dry-run --threads 2
ls
