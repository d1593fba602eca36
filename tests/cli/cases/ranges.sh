# Ranges of samples, good and bad.
"$MAKE_NPY" ramp.npy "<i4" 10 ramp
"$TUCKFOLD" pack ramp.npy -o ramp.tuck --quiet
for range in 3 3:5 7: :2 : 4:4 10:10 -1 :-7 -2: ::4 1:8:3; do
  echo "$range:" $("$TUCKFOLD" cat ramp.tuck --range="$range" | od -An -td4)
done
for range in 10 5:3 5:30 11:11 abc 1:2:3:4 ::0 ::-1 1.5 +3 99999999999999999999 9223372036854775807 -11:; do
  "$TUCKFOLD" cat ramp.tuck --range="$range" || echo "status $?"
done
"$TUCKFOLD" slice ramp.tuck -o out.npy || echo "status $?"
"$TUCKFOLD" slice ramp.tuck 11 -o out.npy || echo "status $?"
"$TUCKFOLD" unpack ramp.tuck --select nope -o out.npy || echo "status $?"
"$TUCKFOLD" unpack ramp.tuck || echo "status $?"
"$TUCKFOLD" unpack || echo "status $?"
ls
