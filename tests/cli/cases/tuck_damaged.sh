# A .tuck file cut short, or with a flipped bit, everywhere that matters; what repair saves of it.
"$MAKE_NPY" images.npy "<f4" 100,3,8,8 wave
"$TUCKFOLD" pack images.npy -o whole.tuck --codec raw --samples-per-chunk 20 --quiet
size=$(stat -c %s whole.tuck)
look() {
  for verb in info verify "unpack -o out.npy" "slice 5 -o out.npy" "cat --select data"; do
    rm -f out.npy
    set -- $verb
    # Only the first message is shown: those of the other verbs are the same but for its own.
    if "$TUCKFOLD" $1 file.tuck "${@:2}" >out.txt 2>err.txt; then echo "$1 0"; else echo "$1 $?"; fi
    [ $1 = info ] && cp err.txt first.txt
    [ $1 != verify ] || diff first.txt err.txt >/dev/null || cat out.txt err.txt
  done
  [ ! -s first.txt ] || cat first.txt
  "$TUCKFOLD" repair file.tuck -o saved.tuck --force || echo "repair $?"
}
for bytes in 0 5 63 64 200 1000 $((size / 2)) $((size - 65)) $((size - 64)) $((size - 1)); do
  echo "# cut to $bytes of $size"
  head -c $bytes whole.tuck >file.tuck
  look
done
for at in 0 8 12 64 70 100 1000 -300 -64 -16 -1; do
  echo "# flipped at $at"
  python3 - $at <<PY
import sys
from pathlib import Path
data = bytearray(Path("whole.tuck").read_bytes())
data[int(sys.argv[1])] ^= 1
Path("file.tuck").write_bytes(data)
PY
  look
done 
