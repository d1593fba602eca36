"$TUCKFOLD" man benhc
