# The codec and the peer are one library, so their figures are the same.
"$MAKE_NPY" a.npy '<f4' 2,32,32
if ! "$TUCKFOLD" bench a.npy --codec 'zfp(rate=4)' --peer zfp@4 --min-time 0 --json > out 2> err; then
  grep 'peer zfp is not installed' err && exit 77
  cat err
  exit 1
fi
python3 -c '
import json
codec, peer = json.load(open("out"))
for key in "codec", "fixed", "ratio", "psnr_db", "max_error":
    print(key, codec[key] == peer[key])
'
