"$MAKE_NPY" gray.npy '<f8' 20,20
"$TUCKFOLD" eval gray.npy --codec raw --png out.png --threads 1 --json |
  python3 -c 'import json, sys; row, = json.load(sys.stdin); row.pop("cpu_target"); print(json.dumps(row))'
