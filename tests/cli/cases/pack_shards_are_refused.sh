"$MAKE_NPY" images.npy "<f4" 10,8,8 wave
"$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 11 || echo "exit $?"
"$MAKE_NPY" none.npy "<f4" 0,8,8 wave
"$TUCKFOLD" pack none.npy -o train.tuck --codec raw --shards 4 || echo "exit $?"
rm none.npy
"$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 0 || echo "exit $?"
"$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 2 --append || echo "exit $?"
touch train-00001-of-00002.tuck
"$TUCKFOLD" pack images.npy -o train.tuck --codec raw --shards 2 || echo "exit $?"
ls
