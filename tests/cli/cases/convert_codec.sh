# Packing raw samples again gives the file that packing them at once does.
"$MAKE_NPY" image.npy "<f4" 10,3,16,16 wave
"$MAKE_NPY" label.npy "<i8" 10 ramp
python3 -m zipfile -c data.npz image.npy label.npy
"$TUCKFOLD" pack data.npz -o raw.tuck --codec raw --samples-per-chunk 4 --quiet
"$TUCKFOLD" pack data.npz -o chop.tuck --codec "dct_chop(keep=4)" --samples-per-chunk 4 --quiet
"$TUCKFOLD" convert raw.tuck -o made.tuck --codec "dct_chop(keep=4)"
cmp made.tuck chop.tuck
"$TUCKFOLD" convert chop.tuck -o again.tuck --codec image="block_quant(bits=8)"
"$TUCKFOLD" convert chop.tuck -o exact.tuck --codec zstd --codec label=raw
"$TUCKFOLD" diff exact.tuck chop.tuck
