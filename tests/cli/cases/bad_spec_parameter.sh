"$TUCKFOLD" eval a.npy --codec 'dct_chop(kep=4)'
