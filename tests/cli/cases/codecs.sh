"$TUCKFOLD" codecs
