# A reader that leaves ends the writer quietly; where signals are ignored, with a word.
python3 -c 'import sys; sys.stdout.buffer.write(bytes(1 << 20))' >values.bin
export TMPDIR=$PWD/tmp
mkdir tmp
pack=("$TUCKFOLD" pack values.bin --dtype u8 --shape 1024 --codec data=raw)
"${pack[@]}" -o values.tuck --quiet
for command in "cat values.tuck" "unpack values.tuck -o -" "slice values.tuck 1: -o -"; do
  "$TUCKFOLD" $command | head -c 10 | wc -c
  echo "${PIPESTATUS[@]}"
done
"${pack[@]}" -o - | head -c 8 | wc -c
echo "${PIPESTATUS[@]}"
(trap '' PIPE; "$TUCKFOLD" cat values.tuck || echo "exit $?" >&2) | head -c 10 | wc -c
ls tmp
