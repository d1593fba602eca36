"$MAKE_NPY" a.npy '<f4' 64
"$TUCKFOLD" eval a.npy --codec raw --png out.png
