"$TUCKFOLD" --help
