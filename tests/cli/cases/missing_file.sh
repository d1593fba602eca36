"$TUCKFOLD" bench no_such_file.npy --codec raw
