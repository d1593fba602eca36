"$MAKE_NPY" a.npy '<f4' 16,16
export TUCKFOLD_CPU=mmx
"$TUCKFOLD" bench a.npy --peer zfp || echo "exit $?"
"$TUCKFOLD" eval a.npy --codec raw
