"$MAKE_NPY" a.npy '<f4' 16,16
"$TUCKFOLD" bench --codec raw || echo "exit $?"
"$TUCKFOLD" bench a.npy || echo "exit $?"
"$TUCKFOLD" bench a.npy --codec raw --threads -1 || echo "exit $?"
"$TUCKFOLD" bench a.npy --codec raw --fast || echo "exit $?"
"$TUCKFOLD" bench --codec raw --synthetic 0x3 || echo "exit $?"
