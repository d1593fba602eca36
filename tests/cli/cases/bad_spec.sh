"$TUCKFOLD" bench a.npy --codec 'dct_chop(keep=4 | raw'
