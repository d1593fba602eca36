"$MAKE_NPY" labels.npy '<i8' 40,50 ramp
"$MAKE_NPY" counts.npy '<i4' 40,50 ramp
"$TUCKFOLD" eval labels.npy --codec raw bits 'bits(width=12)'
"$TUCKFOLD" eval counts.npy --codec bits
"$TUCKFOLD" eval labels.npy --codec 'dct_chop(keep=4)'
