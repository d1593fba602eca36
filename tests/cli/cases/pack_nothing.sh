"$TUCKFOLD" pack -o images.tuck
