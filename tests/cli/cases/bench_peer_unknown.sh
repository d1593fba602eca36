"$MAKE_NPY" a.npy '<f4' 16,16
"$TUCKFOLD" bench a.npy --peer jpeg
