"$MAKE_NPY" gray.npy '<f4' 16,16
"$TUCKFOLD" eval gray.npy --codec raw --png no/such/folder/out.png
