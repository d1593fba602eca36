# A .partial of an earlier run, or of another writer, stays whatever goes wrong now.
"$MAKE_NPY" images.npy "<f4" 400,3,8,8 wave
"$MAKE_NPY" labels.npy "<i8" 10 ramp
pack=("$TUCKFOLD" pack images.npy --codec raw --samples-per-chunk 20 -o out.tuck)
(trap '' XFSZ; ulimit -f 100; "${pack[@]}") || echo "status $?"
cp out.tuck.partial kept
"$TUCKFOLD" pack labels.npy --codec "data=dct_chop(keep=4)" -o out.tuck || echo "status $?"
"$TUCKFOLD" pack labels.npy --metadata "[]" -o out.tuck || echo "status $?"
"$TUCKFOLD" pack labels.npy --codec "data=dct_chop(keep=4)" --resume -o out.tuck || echo "status $?"
"$TUCKFOLD" pack labels.npy --metadata "[]" --resume -o out.tuck || echo "status $?"
"$TUCKFOLD" pack labels.npy --resume -o out.tuck || echo "status $?"
cmp kept out.tuck.partial
flock out.tuck.partial "${pack[@]}" || echo "status $?"
flock out.tuck.partial "${pack[@]}" --resume || echo "status $?"
cmp kept out.tuck.partial
"${pack[@]}" --resume
echo "# what nobody can go on with is removed"
"$TUCKFOLD" pack labels.npy --codec "data=bits(width=2)" -o other.tuck || echo "status $?"
ls
