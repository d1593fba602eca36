# Nothing is lost of noise but by what is exact; one axis has no blocks.
"$MAKE_NPY" a.npy '<f2' 3 ramp
"$TUCKFOLD" choose a.npy --max-error 0 --threads 1 --json |
  python3 -c 'import json, sys; best = json.load(sys.stdin)["best"]; print(best["codec"], best["max_error"], best["psnr_db"])'
