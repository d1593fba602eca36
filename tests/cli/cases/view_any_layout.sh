"$MAKE_NPY" hwc.npy "<f2" 5,20,24,3 wave
"$MAKE_NPY" bands.npy "<f4" 5,64,64,4 wave
"$MAKE_NPY" nan.npy "<f8" 2,8,8 nan
"$MAKE_NPY" tall.npy "<i4" 2,600,2 ramp
for file in *.npy; do "$TUCKFOLD" view "$file" -o "${file%.npy}.png"; done
"$TUCKFOLD" view bands.npy --channel 3 --codec "bounded(abs=0.1)" -o bounded.png
"$TUCKFOLD" view nan.npy --codec "bounded(abs=0.1)" -o nan.html
ls
