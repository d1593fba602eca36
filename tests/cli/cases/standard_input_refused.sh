# What "-" cannot be; messages call it /dev/stdin once its bytes are there.
try() { "$@" || echo "exit $?" >&2; }
"$MAKE_NPY" images.npy "<f4" 40,3,16,16 wave
"$TUCKFOLD" pack images.npy -o images.tuck --codec raw --quiet
try "$TUCKFOLD" info - </dev/null
try "$TUCKFOLD" info - <&-
try "$TUCKFOLD" info - <.
head -c 1000 images.tuck | try "$TUCKFOLD" verify -
head -c 200 images.npy | try "$TUCKFOLD" pack - -o out.tuck
try "$TUCKFOLD" pack - -o out.tuck </dev/null
try "$TUCKFOLD" pack - - -o out.tuck <images.npy
try "$TUCKFOLD" pack images.npy -o - --append
TMPDIR=missing try "$TUCKFOLD" info - < <(cat images.tuck)
TMPDIR=missing try "$TUCKFOLD" pack images.npy -o -
try "$TUCKFOLD" pack images.npy -o - >/dev/full
try "$TUCKFOLD" unpack images.tuck -o - >/dev/full
try "$TUCKFOLD" cat images.tuck >/dev/full
ls
