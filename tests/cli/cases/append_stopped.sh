# An append that was stopped is no damage; a trailer that was there and is broken is.
try() { "$@" || echo "exit $?"; }
"$MAKE_NPY" images.npy "<f4" 10,8,8 wave
"$TUCKFOLD" pack images.npy -o once.tuck --codec raw --quiet
cp once.tuck twice.tuck
"$TUCKFOLD" pack images.npy -o twice.tuck --codec raw --append --quiet
once=$(stat -c %s once.tuck) twice=$(stat -c %s twice.tuck)

echo "# cut in the appended chunk, before its trailer, and zeros in that one's place"
head -c $((once + 1000)) twice.tuck >cut.tuck
head -c $((twice - 64)) twice.tuck >index.tuck
(cat index.tuck; head -c 64 /dev/zero) >zeros.tuck
for file in cut index zeros; do
  try "$TUCKFOLD" verify $file.tuck
  try "$TUCKFOLD" info $file.tuck
done
"$TUCKFOLD" verify cut.tuck --json
"$TUCKFOLD" pack images.npy -o cut.tuck --codec raw --append
cmp cut.tuck twice.tuck

echo "# a flipped bit in the last trailer, in its checksum, in its magic"
for at in 60 10 3; do
  python3 - $at <<PY
import sys
from pathlib import Path
data = bytearray(Path("twice.tuck").read_bytes())
data[-int(sys.argv[1])] ^= 1
Path("broken.tuck").write_bytes(data)
PY
  try "$TUCKFOLD" verify broken.tuck
done
try "$TUCKFOLD" info broken.tuck
"$TUCKFOLD" info broken.tuck --json | grep -o '"trailer_broken":[a-z]*'
try "$TUCKFOLD" pack images.npy -o broken.tuck --codec raw --append
try "$TUCKFOLD" repair broken.tuck -o saved.tuck
try "$TUCKFOLD" verify saved.tuck

echo "# a flipped bit in the last index"
python3 - <<PY
from pathlib import Path
data = bytearray(Path("twice.tuck").read_bytes())
data[-200] ^= 1
Path("broken.tuck").write_bytes(data)
PY
try "$TUCKFOLD" verify broken.tuck
try "$TUCKFOLD" info broken.tuck
try "$TUCKFOLD" repair broken.tuck -o saved.tuck --force
try "$TUCKFOLD" verify saved.tuck
