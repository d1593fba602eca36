"$MAKE_NPY" ramp.npy "<i4" 20,2 ramp
"$TUCKFOLD" pack ramp.npy -o ramp.tuck --quiet
"$TUCKFOLD" unpack ramp.tuck -o all --json | sed 's/"seconds":[0-9.e-]*/"seconds":S/'
"$TUCKFOLD" slice ramp.tuck 3:5 -o some.npy --json | sed 's/"seconds":[0-9.e-]*/"seconds":S/'
"$TUCKFOLD" unpack ramp.tuck -o - --json || echo "status $?"
