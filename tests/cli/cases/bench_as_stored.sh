"$MAKE_NPY" images.npy '|u1' 16,16
"$TUCKFOLD" bench images.npy --codec raw --as stored --threads 1 --min-time 0 --repeat 1 --json |
  python3 -c 'import json, sys; row, = json.load(sys.stdin); print(row["dtype"], row["ratio"], row["ratio_stored"])'
"$MAKE_NPY" depth.npy '<u2' 16,16
"$TUCKFOLD" bench depth.npy --codec raw --as stored
