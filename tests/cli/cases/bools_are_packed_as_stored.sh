"$MAKE_NPY" mask.npy '|b1' 40,50 ramp
"$TUCKFOLD" bench mask.npy --codec mask --as stored --threads 1 --min-time 0 --repeat 1 --json |
  python3 -c 'import json, sys; row, = json.load(sys.stdin); print(row["dtype"], row["stored"], row["ratio"], row["max_error"])'
