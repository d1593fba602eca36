# A goal for an array whose dtype allows no loss has no effect, and a line says so.
"$MAKE_NPY" heights.npy "<i2" 40,16,16 ramp
"$TUCKFOLD" pack heights.npy -o a.tuck --max-error 5 >table
"$TUCKFOLD" pack heights.npy -o a.tuck -f --target-psnr 60 >table
"$TUCKFOLD" pack heights.npy -o a.tuck -f --target-ratio 1.1 --dry-run >table
"$TUCKFOLD" choose heights.npy --max-error 5 >table
"$TUCKFOLD" convert a.tuck -o b.tuck --target-psnr 60 >table
echo "# not where nothing is to be lost, nor where nothing is to be said" >&2
"$TUCKFOLD" pack heights.npy -o a.tuck -f --max-error 0 >table
"$TUCKFOLD" choose heights.npy --max-error 0 >table
"$TUCKFOLD" choose heights.npy --as f32 --max-error 5 >table
"$TUCKFOLD" pack heights.npy -o a.tuck -f --max-error 5 --quiet
"$TUCKFOLD" convert a.tuck -o b.tuck -f --target-psnr 60 --quiet
