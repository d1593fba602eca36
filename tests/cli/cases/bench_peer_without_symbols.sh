# Any library that is no zfp: every Linux has this one.
"$MAKE_NPY" a.npy '<f4' 16,16
"$TUCKFOLD" bench a.npy --peer zfp=libc.so.6
