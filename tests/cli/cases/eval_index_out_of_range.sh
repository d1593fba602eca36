"$MAKE_NPY" images.npy '<f4' 4,3,16,16
"$TUCKFOLD" eval images.npy --codec raw --png out.png --index 4
