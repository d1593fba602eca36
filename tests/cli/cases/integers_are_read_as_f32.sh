"$MAKE_NPY" depth.npy '<i2' 16,16 ramp
"$TUCKFOLD" eval depth.npy --codec raw
