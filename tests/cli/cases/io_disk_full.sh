# A write that fails half way, as on a full disk: here files may have 100 kB. What can be resumed stays.
"$MAKE_NPY" images.npy "<f4" 400,3,8,8 wave
pack=("$TUCKFOLD" pack images.npy --codec raw --samples-per-chunk 20)
"${pack[@]}" -o images.tuck --quiet
mkdir tmp
(
  trap '' XFSZ
  ulimit -f 100
  export TMPDIR=tmp
  "${pack[@]}" -o out.tuck || echo "status $?"
  "${pack[@]}" -o out.tuck --resume || echo "status $?"
  "${pack[@]}" -o images.tuck --append || echo "status $?"
  "${pack[@]}" -o - || echo "status $?"
  "$TUCKFOLD" unpack images.tuck -o out.npy || echo "status $?"
  "$TUCKFOLD" repair images.tuck -o repaired.tuck || echo "status $?"
  cat images.tuck | "$TUCKFOLD" info - || echo "status $?"
) 2>&1 | sed 's/tuckfold_[A-Za-z0-9]\{6\}/tuckfold_XXXXXX/'
"$TUCKFOLD" verify images.tuck
"${pack[@]}" -o out.tuck --resume
cmp out.tuck images.tuck
ls . tmp
