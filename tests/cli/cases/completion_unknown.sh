"$TUCKFOLD" completion fsh
