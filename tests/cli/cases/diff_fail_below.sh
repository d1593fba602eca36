"$MAKE_NPY" image.npy "<f4" 4,16,16 wave
"$TUCKFOLD" pack image.npy -o image.tuck --codec "dct_chop(keep=4)" --quiet
"$TUCKFOLD" diff image.tuck image.npy --fail-below 30 --quiet
"$TUCKFOLD" diff image.npy image.npy --fail-below 200 --quiet
"$TUCKFOLD" diff image.tuck image.npy --fail-below 60 --quiet
