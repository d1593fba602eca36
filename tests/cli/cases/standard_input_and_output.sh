# "-" is standard input or output: the same bytes as with files, and nothing else in them.
"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec raw
cat images.npy | "$TUCKFOLD" pack - -o piped.tuck --codec raw
cmp images.tuck piped.tuck
cat images.npy | "$TUCKFOLD" pack - -o - --codec raw | cmp - images.tuck
"$TUCKFOLD" pack - -o - --codec raw --quiet <images.npy | cmp - images.tuck
"$TUCKFOLD" pack images.npy -o - --target-ratio 4 2>target.txt | "$TUCKFOLD" verify -
tail -n 1 target.txt
tail -c +129 images.npy | "$TUCKFOLD" pack - --dtype f32 --shape 3x16x16 -o - --codec raw -q | cmp - images.tuck
cat images.tuck | "$TUCKFOLD" info -
cat images.tuck | "$TUCKFOLD" verify -
"$TUCKFOLD" verify - <images.tuck
cat images.tuck | "$TUCKFOLD" unpack - -o - | cmp - images.npy
cat images.tuck | "$TUCKFOLD" slice - 3:5 -o - | tail -c +129 | cmp - <(tail -c +$((129 + 3 * 3072)) images.npy | head -c 6144)
cat images.tuck | "$TUCKFOLD" cat - --range 3:5 | cmp - <(tail -c +$((129 + 3 * 3072)) images.npy | head -c 6144)
cat images.tuck | "$TUCKFOLD" repair - -o - | cmp - images.tuck
# A part of what a shell has open, and a file under a name that looks like an option.
(head -c 0; "$TUCKFOLD" info --json -) <images.tuck | head -n 2 | cut -c -40
cp images.tuck ./-
"$TUCKFOLD" verify ./-
ls
