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
