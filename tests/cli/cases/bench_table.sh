"$MAKE_NPY" a.npy '<f4' 16,16
"$MAKE_NPY" b.npy '<f2' 2,8,24
"$TUCKFOLD" bench --codec 'dct_chop(keep=2, coef=f16)' raw a.npy b.npy --threads 1 --min-time 0 --repeat 1
