"$TUCKFOLD" eval a.npy --codec 'dct_chop(keep=9)'
