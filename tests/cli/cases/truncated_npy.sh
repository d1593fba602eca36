"$MAKE_NPY" whole.npy '<f4' 16,16
head -c 200 whole.npy > cut.npy
"$TUCKFOLD" eval cut.npy --codec raw
