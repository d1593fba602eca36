# Without a rate of its own, zfp gets the codec's: both have the same ratio.
"$MAKE_NPY" a.npy '<f4' 2,32,32
if ! "$TUCKFOLD" bench a.npy --codec 'dct_chop(keep=4)' --peer zfp --min-time 0 --json > out 2> err; then
  grep 'peer zfp is not installed' err && exit 77
  cat err
  exit 1
fi
python3 -c '
import json
for row in json.load(open("out")):
    print(row["codec"], row["peer"], row["fixed"], row["ratio"], row["psnr_db"] > 30, row["pack_gbps"] > 0)
'
