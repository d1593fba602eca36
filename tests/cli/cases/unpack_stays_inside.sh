# A name of an array must not lead out of the folder; one with a slash makes a folder in it.
"$MAKE_NPY" a.npy "<f4" 4,8,8 wave
"$TUCKFOLD" pack a.npy -o inside.tuck --rename data=group/images --quiet
"$TUCKFOLD" unpack inside.tuck -o out
cmp a.npy out/group/images.npy
"$TUCKFOLD" pack a.npy -o outside.tuck --rename data=../../images --quiet
"$TUCKFOLD" unpack outside.tuck -o out || echo "exit $?"
"$TUCKFOLD" unpack outside.tuck -o images.npy
cmp a.npy images.npy
