"$MAKE_NPY" a.npy '<f4' 4
"$TUCKFOLD" eval a.npy --codec 'dct_chop(keep=4)'
