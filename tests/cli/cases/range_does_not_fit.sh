"$MAKE_NPY" labels.npy '<i8' 18 ramp
"$TUCKFOLD" eval labels.npy --codec 'bits(width=4)'
