# Files hold every dtype as it is; only u8 and u16 among whole numbers may be lossy.
for descr in f2 f4 f8 u1 u2 u4 u8 i1 i2 i4 i8 b1; do
  order='<'
  [ "${descr#?}" = 1 ] && order='|'
  "$MAKE_NPY" "$descr.npy" "$order$descr" 4,8,3 ramp
done
"$TUCKFOLD" pack --side-by-side ??.npy -o all.tuck --quiet
"$TUCKFOLD" info all.tuck | awk '{print $1, $2, $3}'
"$TUCKFOLD" unpack all.tuck -o out
for file in ??.npy; do cmp "$file" "out/$file"; done
"$TUCKFOLD" diff all.tuck --against out/??.npy --side-by-side | awk '{print $1, $2, $4}'
"$MAKE_NPY" image.npy '<u2' 4,16,16 wave
"$TUCKFOLD" pack image.npy -o image.tuck --codec 'dct_quant(rate=8)'
"$TUCKFOLD" pack image.npy -o chosen.tuck --target-psnr 40 --quiet && "$TUCKFOLD" diff chosen.tuck image.npy --fail-below 40 --quiet
for descr in '<i2' '<u4' '|b1'; do
  "$MAKE_NPY" other.npy "$descr" 4,16,16 zero
  "$TUCKFOLD" pack other.npy -o other.tuck --codec 'dct_quant(rate=8)' || echo "status $?"
done
printf '\0\1\2\377' >bools.bin
"$TUCKFOLD" pack bools.bin --dtype bool --shape 2 -o bools.tuck --quiet && "$TUCKFOLD" cat bools.tuck | od -An -tu1
