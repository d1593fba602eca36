# Nothing is written where something is wrong.
try() { "$TUCKFOLD" export "$@" || echo "exit $?"; }
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torhc -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch
try codec "dct_chop(keep=4)" --shape 4,64,64 -o a.py
try codec "dct_chop(keep=4)" --target torch -o a.py
try codec --shape 4,64,64 --target torch -o a.py
try model "dct_chop(keep=4)" --shape 4,64,64 --target torch -o a.py
try codec "dct_chop(keep=9)" --shape 4,64,64 --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,none --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 4,0,64 --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --dtype f61 --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --dtype u8 --target torch -o a.py
try codec "dct_chop(keep=4, serialize=3)" --shape 4,64,64 --target torch -o a.py
try codec "bounded(abs=0.1)" --shape 4,64,64 --target torch -o a.py
try codec "dct_chop(keep=4) | block_quant(bits=4)" --shape 4,64,64 --target onnx -o a.onnx
try codec "dct_quant(rate=4)" --shape 4,64,64 --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 100,3,512,512 --target samba -o a.py
try codec "dct_chop(keep=4)" --shape 100,3,64,64 --dtype f16 --target samba -o a.py
try codec "dct_chop(keep=4, shape=triangle)" --shape 4,3,64,64 --target groq -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch --device ipu -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target samba --device ipu-bow -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o -
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch --opset 17 -o a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o no/such/folder/a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o b.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o sub/b.onnx
try codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o /dev/null
try codec "dct_chop(keep=4)" --shape 4,64,64 --target poptorch -o poptorch.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o sub/torch.py
# Names that say something else, in whatever case; that Python has already; or that it cannot import.
try codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o x.PY
try codec "dct_chop(keep=4)" --shape 4,64,64 --only pack --target onnx -o x.Py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o class.ONNX
for name in __future__ typing_extensions tuckfold my-codec 3 class my.codec; do
  try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o sub/$name.py
done
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o .py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o codec.PY
# What would be larger than the tensor, or has tiles beyond 16384.
try codec "dct_chop(keep=8)" --shape 4,64,64 --dtype f16 --target torch -o a.py
try codec "dct_chop(keep=4)" --shape 1,16392,16 --target torch -o a.py
ls
echo mine > a.py
try codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o a.py
cat a.py
echo mine > b.unpack.onnx
try codec "dct_chop(keep=4)" --shape 4,64,64 --target onnx -o b.onnx
ls
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 4,64,64 --target torch -o a.py --force > said
head -n 1 said
