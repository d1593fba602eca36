"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
"$TUCKFOLD" pack images.npy -o images.tuck --max-error 0 --threads 1 | sed "s/codec.*//; s/zstd.*//; s/bytes_of.*//" | head -1
"$TUCKFOLD" unpack images.tuck -o back.npy
cmp images.npy back.npy && echo exact
