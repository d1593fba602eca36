"$TUCKFOLD" info missing.tuck
