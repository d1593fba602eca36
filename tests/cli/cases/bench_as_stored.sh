shown() { python3 -c 'import json, sys; row, = json.load(sys.stdin); print(row["dtype"], row["ratio"], row["ratio_stored"], row["max_error"])'; }
for descr in '|u1' '<u2' '|i1' '<u4' '<u8' '|b1'; do
  "$MAKE_NPY" values.npy "$descr" 16,7 ramp
  "$TUCKFOLD" bench values.npy --codec raw --as stored --threads 1 --min-time 0 --repeat 1 --json | shown
done
"$MAKE_NPY" values.npy '<u2' 16,16
"$TUCKFOLD" bench values.npy --codec 'bounded(abs=1)' --as stored --threads 1 --min-time 0 --repeat 1 --json | shown
"$TUCKFOLD" bench values.npy --codec 'bounded(abs=1)' --threads 1 --min-time 0 --repeat 1 --json | shown
