"$TUCKFOLD" codecs dctchop
