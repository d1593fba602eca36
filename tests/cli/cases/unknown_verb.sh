"$TUCKFOLD" benhc a.npy
