"$MAKE_NPY" a.npy '<f4' 16,16 nan
"$TUCKFOLD" eval a.npy --codec raw 'dct_chop(keep=4)'
