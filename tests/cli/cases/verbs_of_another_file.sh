# Verbs that read .tuck files alone say what to do with others.
"$MAKE_NPY" images.npy "<f4" 4,8,8 wave
for verb in cat info verify "slice images.npy 0:2 -o x.npy" "unpack images.npy -o x.npy" "repair images.npy -o x.tuck" "convert images.npy -o x.tuck"; do
  case "$verb" in *\ *) "$TUCKFOLD" $verb ;; *) "$TUCKFOLD" "$verb" images.npy ;; esac || echo "$verb: status $?"
done
ls
