# Samples that pack alone are put together anew; others are packed again.
"$MAKE_NPY" image.npy "<f4" 10,3,16,16 wave
"$TUCKFOLD" pack image.npy -o image.tuck --codec "dct_quant(rate=4)" --samples-per-chunk 4 --quiet
"$TUCKFOLD" convert image.tuck -o chunks.tuck --samples-per-chunk 3
"$TUCKFOLD" diff chunks.tuck image.tuck
"$TUCKFOLD" pack image.npy -o image.tuck --codec "block_quant(bits=8)" --samples-per-chunk 4 --quiet --force
"$TUCKFOLD" convert image.tuck -o chunks.tuck --samples-per-chunk 3 --force
"$TUCKFOLD" convert chunks.tuck -o larger.tuck --samples-per-chunk 5 --quiet
"$TUCKFOLD" info larger.tuck
