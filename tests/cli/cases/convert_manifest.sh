"$MAKE_NPY" a.npy "<i4" 6,2 ramp
"$TUCKFOLD" pack a.npy -o a.tuck --quiet
"$TUCKFOLD" pack a.npy -o b.tuck --codec data=raw --samples-per-chunk 4 --metadata '{"b": 1}' --quiet
"$MAKE_MANIFEST" all.json a.tuck b.tuck
"$TUCKFOLD" convert all.json a.tuck -o c.tuck --json
"$TUCKFOLD" cat c.tuck --range 5:7 | od -An -td4
"$TUCKFOLD" diff c.tuck --against all.json a.tuck
"$TUCKFOLD" convert a.tuck b.tuck -o d.tuck
