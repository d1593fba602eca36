"$MAKE_NPY" a.npy '<f4' 8,8
"$TUCKFOLD" choose a.npy --target-ratio 1000000
