"$MAKE_NPY" images.npy '<f4' 16,32 unit
"$TUCKFOLD" eval images.npy --codec bytes_of 'bytes_of | bits'
"$TUCKFOLD" eval images.npy --codec 'bytes_of(scale=1/256)'
