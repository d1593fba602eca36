"$MAKE_NPY" a.npy '>f4' 16,16
"$TUCKFOLD" eval a.npy --codec raw
