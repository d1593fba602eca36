"$TUCKFOLD" frobnicate
