# An error of 0 asks for what is exact; a vector of three has no blocks.
"$MAKE_NPY" a.npy '<f2' 3 ramp
"$TUCKFOLD" choose a.npy --max-error 0 --threads 1 --json |
  python3 -c 'import json, sys; best = json.load(sys.stdin)["best"]; print(best["max_error"], best["psnr_db"], best["ratio"] >= 1)'
