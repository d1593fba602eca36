# A .tuck file by standard input, as a file and as a pipe: convert, and both sides of diff.
try() { "$TUCKFOLD" "$@" || echo "status $?"; }
"$MAKE_NPY" images.npy "<f4" 10,3,8,8 wave
"$TUCKFOLD" pack images.npy -o images.tuck --quiet
try convert images.tuck -o by_name.tuck --quiet
try convert - -o file.tuck --quiet <images.tuck
cat images.tuck | try convert - -o pipe.tuck --quiet
cmp by_name.tuck file.tuck && cmp by_name.tuck pipe.tuck && echo same
cat images.tuck | try diff - images.npy
try diff images.tuck - <images.tuck
try convert - -o out.tuck <images.npy
try convert - - -o out.tuck <images.tuck
