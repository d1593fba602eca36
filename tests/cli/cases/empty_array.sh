"$MAKE_NPY" a.npy '<f4' 0,16
"$TUCKFOLD" eval a.npy --codec raw
