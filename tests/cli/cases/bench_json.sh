# u8 is packed as f32: the ratio against what is stored is a quarter.
"$MAKE_NPY" images.npy '|u1' 2,3,16,16
"$TUCKFOLD" bench images.npy --codec 'dct_chop(keep=4)' --codec raw --threads 1 --min-time 0 --json | python3 -c '
import json, sys
for row in json.load(sys.stdin):
    speeds = [row.pop(k) for k in list(row) if "gbps" in k or "of_copy" in k]
    assert len(speeds) == 11 and min(speeds) > 0, speeds
    assert row.pop("rounds") >= 7
    assert row.pop("cpu_target")
    if row["psnr_db"] is not None:
        assert row["psnr_db"] > 20 and row["max_error"] > 0
        row["psnr_db"] = row["max_error"] = "lossy"
    print(json.dumps(row))
'
