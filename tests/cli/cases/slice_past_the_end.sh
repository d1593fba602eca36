"$MAKE_NPY" ramp.npy "<i4" 20,2 ramp
"$TUCKFOLD" pack ramp.npy -o ramp.tuck --quiet
"$TUCKFOLD" slice ramp.tuck 10:21 -o some.npy
