# keep=1 leaves the mean of every block, so that PSNR and largest error can be worked out by hand.
"$MAKE_NPY" a.npy '<f4' 8,16 ramp
"$TUCKFOLD" eval a.npy --codec 'dct_chop(keep=1)' --json | python3 -c '
import json, math, sys
row, = json.load(sys.stdin)
blocks = [[16 * y + x + 8 * b for y in range(8) for x in range(8)] for b in range(2)]
errors = [v - sum(block) / 64 for block in blocks for v in block]
psnr = 10 * math.log10(127 ** 2 / (sum(e * e for e in errors) / 128))
assert math.isclose(row["psnr_db"], psnr, rel_tol=1e-5), (row["psnr_db"], psnr)
assert math.isclose(row["max_error"], max(map(abs, errors)), rel_tol=1e-5)
assert row["range"] == 127 and row["ratio"] == 64
'
