"$TUCKFOLD" codecs > /dev/full
