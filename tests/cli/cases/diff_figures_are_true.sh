# keep=1 leaves the mean of every block, so that figures can be worked out by hand.
"$MAKE_NPY" a.npy "<f4" 3,8,16 ramp
"$TUCKFOLD" pack a.npy -o a.tuck --codec "dct_chop(keep=1)" --quiet
"$TUCKFOLD" diff a.tuck a.npy --json | python3 -c '
import json, math, sys
row, = json.load(sys.stdin)
blocks = [[16 * y + x + 8 * b for y in range(8) for x in range(8)] for b in range(2)]
errors = [v - sum(block) / 64 for block in blocks for v in block]
mean = sum(e * e for e in errors) / 128
psnr = 10 * math.log10(383 ** 2 / mean)
assert row["range"] == 383 and row["samples"] == 3 and not row["exact"]
assert math.isclose(row["psnr_db"], psnr, rel_tol=1e-5), (row["psnr_db"], psnr)
assert math.isclose(row["worst_psnr_db"], psnr, rel_tol=1e-5)
assert math.isclose(row["mean_square_error"], mean, rel_tol=1e-4)
assert math.isclose(row["max_error"], max(map(abs, errors)), rel_tol=1e-5)
assert 0 < row["ssim"] < 1 and row["lost_values"] == 0
'
