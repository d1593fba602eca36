# What is recommended has the figures that bench finds, and reaches the target.
"$MAKE_NPY" images.npy '|u1' 2,3,32,32
for target in '--target-psnr 40' '--target-ratio 5' '--max-error 3' '--target-psnr 40 --fastest'; do
  "$TUCKFOLD" choose images.npy $target --threads 1 --json > choice
  spec=$(python3 -c 'import json; print(json.load(open("choice"))["best"]["codec"])')
  "$TUCKFOLD" bench images.npy --codec "$spec" --as stored --threads 1 --min-time 0 --repeat 1 --json > bench
  python3 - "$target" <<'END'
import json, sys
choice, (bench,) = json.load(open("choice")), json.load(open("bench"))
best, tried = choice["best"], choice["tried"]
for key in "codec", "fixed", "packed_bytes", "ratio", "ratio_stored", "psnr_db", "max_error", "range":
    assert best[key] == bench[key], key
assert choice["trial"] == {"values": 6144, "of": 6144}
assert best["reaches_target"] and best["pack_gbps"] > 0 and best["unpack_gbps"] > 0
assert best["codec"] in [one["codec"] for one in tried]
reaching = [one for one in tried if one["reaches_target"]]
assert reaching == tried[: len(reaching)]
target = choice["target"]
if "ratio" in target:
    assert all(one["ratio"] >= 5 for one in reaching)
    assert max(one["psnr_db"] or 1e9 for one in reaching) == (best["psnr_db"] or 1e9)
elif target["prefer"] == "smallest":
    assert min(one["packed_bytes"] for one in reaching) == best["packed_bytes"]
print(sys.argv[1], sorted(choice))
END
done
