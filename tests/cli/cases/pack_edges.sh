# Sizes at the edge: no samples, scalars, one thread and 255, chunks larger than the data, seeds.
"$MAKE_NPY" none.npy "<f4" 0,3,8,8
"$MAKE_NPY" labels.npy "<i8" 10 ramp
"$MAKE_NPY" images.npy "<f4" 100,3,8,8 wave
"$TUCKFOLD" pack none.npy -o none.tuck
"$TUCKFOLD" pack none.npy -o target.tuck --target-psnr 45
"$TUCKFOLD" pack none.npy --dry-run | head -n 3
for verb in info verify cat; do "$TUCKFOLD" $verb none.tuck; done
"$TUCKFOLD" unpack none.tuck -o back.npy
cmp back.npy none.npy
"$TUCKFOLD" slice none.tuck 0:0 -o slice.npy
"$TUCKFOLD" repair none.tuck -o repaired.tuck
"$TUCKFOLD" pack images.npy -o none.tuck --append
"$TUCKFOLD" pack labels.npy -o labels.tuck --samples-per-chunk 100000
"$TUCKFOLD" cat labels.tuck --range 9 | od -An -td8
for threads in 1 255; do "$TUCKFOLD" pack images.npy -o threads$threads.tuck --threads $threads -q; done
cmp threads1.tuck threads255.tuck
"$TUCKFOLD" pack images.npy -o whole.tuck --samples-per-chunk 2147483648
stochastic="block_quant(bits=4, round=stochastic)"
for seed in 0 1 18446744073709551615; do
  "$TUCKFOLD" pack images.npy -o seed$seed.tuck --codec "$stochastic" --seed $seed -q
done
"$TUCKFOLD" pack images.npy -o again.tuck --codec "$stochastic" --seed 1 -q
cmp seed1.tuck again.tuck
cmp -s seed0.tuck seed1.tuck || echo "other seeds, other bytes"
