# What users say of a file comes back from info, whatever JSON it is. Bytes that are no UTF-8 and numbers that no double holds are refused.
"$MAKE_NPY" a.npy "<f4" 4,8,8 ramp
info() { "$TUCKFOLD" pack a.npy -o a.tuck --metadata "$1" --quiet --force && "$TUCKFOLD" info a.tuck --json | grep -o '"metadata":.*},"arrays"'; }
info '{"n": null, "t": [true, false], "i": 12345678901234, "f": -1.5e3, "s": "\u00e9\ud83d\ude00", "o": {}, "a": []}'
info '{"big": 99999999999999999999}'
info '{"huge": 1e999}' || echo "status $?"
info "$(printf '{"bytes": "\xff"}')" || echo "status $?"
