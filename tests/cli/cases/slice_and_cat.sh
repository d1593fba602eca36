"$MAKE_NPY" ramp.npy "<i4" 20,2 ramp
"$TUCKFOLD" pack ramp.npy -o ramp.tuck --quiet
"$TUCKFOLD" cat ramp.tuck --range 3:5 | od -An -td4
"$TUCKFOLD" slice ramp.tuck 3:5 -o some.npy
tail -c 16 some.npy | od -An -td4
"$TUCKFOLD" slice ramp.tuck 7 -o - | tail -c 8 | od -An -td4
