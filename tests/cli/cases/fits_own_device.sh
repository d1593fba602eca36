# A device is one more file: by its path, or by its name in a folder of one's own.
mkdir mine
cat > mine/toy.json <<'END'
{"name": "toy", "title": "A toy", "kind": "none", "target": "torch", "software": "none",
 "sources": {"me": "a guess"}, "numbers": {},
 "dtypes": {"names": ["f32"], "source": "me", "at": "page 1"},
 "operators": [{"names": ["matmul"], "source": "me", "at": "page 1"}],
 "limits": [{"rule": "matrix_side", "value": 64, "text": "it is small", "source": "me", "at": "page 2"}]}
END
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/toy.json
TUCKFOLD_DEVICES=mine "$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,128,128 --device toy || echo "exit $?"
sed -i 's/"value": 64/"value": "small"/' mine/toy.json
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/toy.json || echo "exit $?"
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/none.json || echo "exit $?"
# The file's name is the device's, and the folder must be there.
cp mine/toy.json mine/chip.json
sed -i 's/"value": "small"/"value": 64/' mine/chip.json
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/chip.json || echo "exit $?"
for verb in fits time; do
  TUCKFOLD_DEVICES=/nope "$TUCKFOLD" $verb "dct_chop(keep=4)" --shape 8,64,64 --device sn30 || echo "exit $?"
done
TUCKFOLD_DEVICES=/nope "$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 8,64,64 --target samba -o a.py || echo "exit $?"
# What is written is what is checked: an ONNX model of this size builds its matrices by Mul and Reshape.
cat > mine/products.json <<'END'
{"name": "products", "title": "Products alone", "kind": "none", "target": "onnx", "software": "none",
 "sources": {"me": "a guess"}, "numbers": {}, "dtypes": {"names": ["f32"], "source": "me", "at": "page 1"},
 "operators": [{"names": ["matmul"], "source": "me", "at": "page 1"}]}
END
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 2,512,512 --device mine/products.json || echo "exit $?"
for target in onnx torch; do
  "$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 2,512,512 --target $target --device mine/products.json -o a.$target ||
    echo "exit $?"
done
# A file of one's own is taken instead of the one that is built in, and the answer names it.
sed 's/"value": 524288, "text": "one PMU holds 0.5 MiB/"value": 100, "text": "one PMU is tiny/' \
  "$(dirname "$TUCKFOLD")/share/tuckfold/devices/sn30.json" > mine/sn30.json
ask() { "$TUCKFOLD" "$@" "dct_chop(keep=4)" --shape 8,64,64 --device sn30 || echo "exit $?"; }
ask fits
TUCKFOLD_DEVICES=mine ask fits
TUCKFOLD_DEVICES=./mine/ ask time
TUCKFOLD_DEVICES=mine ask fits --json
ask fits --json | python3 -c 'import json, os, sys; (one,) = json.load(sys.stdin); print(os.path.exists(one["device_file"]), one["fits"], one["remedy"], one["text"])'
# An operator that is listed twice, and limits that are none.
sed -i 's/"names": \["matmul"\]/"names": ["matmul", "matmul"]/' mine/products.json
"$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/products.json || echo "exit $?"
for value in -1 0; do
  sed "s/\"value\": 64/\"value\": $value/; s/\"name\": \"toy\"/\"name\": \"small\"/" mine/chip.json > mine/small.json
  "$TUCKFOLD" fits "dct_chop(keep=4)" --shape 8,64,64 --device mine/small.json || echo "exit $?"
done
