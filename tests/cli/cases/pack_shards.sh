"$MAKE_NPY" images.npy "<f4" 10,8,8 wave
"$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 3
ls *.tuck
cat train.tuck
"$TUCKFOLD" verify train.tuck
"$TUCKFOLD" slice train.tuck 2:8 -o some.npy -q
"$TUCKFOLD" unpack train.tuck -o out.npy -q
cmp images.npy out.npy
# A run that was stopped goes on: whole shards stay as they are.
rm train*
"$MAKE_NPY" images.npy "<f4" 100,8,8 wave
pack=("$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 3)
(trap '' XFSZ; ulimit -f 9; "${pack[@]}") || echo "status $?"
ls
touch -d 2001-01-01 train-0000?-of-00003.tuck
"${pack[@]}" --resume
find . -name 'train-*' -newermt 2002-01-01
"$TUCKFOLD" verify train.tuck
