# By whatever name an output goes to standard output, its bytes are all that is there: what a verb says of
# it goes to standard error.
"$MAKE_NPY" image.npy "<f4" 10,16,16 wave
"$TUCKFOLD" pack image.npy -o image.tuck --quiet
ln -s /dev/stdout link.tuck
ln -s /dev/stdout link.png
ln -s /dev/stdout link.py
same() { # FILE NAME COMMAND...: what the command writes to NAME is the file
  local file=$1 name=$2
  shift 2
  "$TUCKFOLD" "$@" "$name" 2>said | cmp - "$file"
  echo "$1 $name: $(wc -l <said) lines"
}
export_it=(export codec "dct_chop(keep=4)" --shape 8,3,64,64)
"$TUCKFOLD" "${export_it[@]}" --target onnx --only pack -o pack.onnx >/dev/null
"$TUCKFOLD" "${export_it[@]}" --target torch -o codec.py >/dev/null
for name in - /dev/stdout /dev/fd/1 /proc/self/fd/1; do
  same pack.onnx $name "${export_it[@]}" --target onnx --only pack -o
  same pack.onnx $name "${export_it[@]}" --target onnx --only pack --json -o
  same image.npy $name convert image.tuck -o
  same image.npy $name unpack image.tuck -o
done
same codec.py link.py "${export_it[@]}" --target torch -o
"$TUCKFOLD" eval image.npy --codec "dct_chop(keep=4)" --png eval.png >/dev/null
same eval.png /dev/stdout eval image.npy --codec "dct_chop(keep=4)" --png
same eval.png /dev/stdout eval image.npy --codec "dct_chop(keep=4)" --json --png
"$TUCKFOLD" view image.npy -o view.png >/dev/null
same view.png link.png view image.npy -o
same view.png link.png view image.npy --json -o
for name in - /dev/stdout link.tuck; do
  for verb in "pack image.npy" "repair image.tuck" "repair image.tuck --json"; do
    "$TUCKFOLD" $verb -o $name 2>said >via.tuck
    "$TUCKFOLD" verify via.tuck >/dev/null
    "$TUCKFOLD" unpack via.tuck -o - | cmp - image.npy
    echo "$verb $name: $(wc -l <said) lines"
  done
done
"$TUCKFOLD" convert image.tuck -o link.tuck 2>said >via.tuck
"$TUCKFOLD" verify via.tuck >/dev/null
"$TUCKFOLD" convert image.tuck --json -o /dev/stdout 2>said | cmp - image.npy
# A descriptor of the same file.
"$TUCKFOLD" "${export_it[@]}" --target torch -o /dev/fd/3 3>&1 2>said | cmp - codec.py
# One of another does not hide what is said.
"$TUCKFOLD" "${export_it[@]}" --target torch -o /dev/fd/3 3>other.py | head -n 1
cmp other.py codec.py
"$TUCKFOLD" "${export_it[@]}" --target torch -o /dev/null | wc -l
# What cannot be there is refused.
try() { "$TUCKFOLD" "$@" >got || echo "exit $?, $(wc -c <got) bytes"; }
try "${export_it[@]}" --target onnx -o /dev/stdout
try unpack image.tuck --json -o /dev/stdout
try pack image.npy --shards 2 -o /dev/stdout
try pack image.npy --append -o /dev/stdout
