# A model each way, or one of them; json says the same as the table.
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,3,64,64 --target onnx -o codec.onnx
"$TUCKFOLD" export codec "dct_quant(rate=4)" --shape 4,64,64 --only unpack --target onnx -o unpack.onnx --json |
  python3 -c 'import json, sys; (one,) = json.load(sys.stdin); print(one["files"], one["ratio"], one["ratio_eq3"], "pack" in one)'
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,3,64,64 --only pack --target onnx -o - 2>said | cmp - codec.pack.onnx
head -n 1 said
ls
# Names that say the direction already; a folder is none.
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,3,64,64 --target onnx -o z.pack.onnx | head -n 2
mkdir folder
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,3,64,64 --target onnx -o folder || echo "exit $?"
ls
# Only the ending .onnx is left out, in whatever case: another one is part of the name.
for name in codec.k4 codec.k5 e.ONNX v1.2.onnx f.pack; do
  "$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o $name | head -n 2
done
# With --only the name is taken as it is, whatever its ending.
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,64,64 --only pack --target onnx -o z.txt | head -n 1
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o my-codec.txt | head -n 1
