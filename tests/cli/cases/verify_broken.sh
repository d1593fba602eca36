"$MAKE_NPY" ramp.npy "<i4" 4000,2 ramp
"$TUCKFOLD" pack ramp.npy -o ramp.tuck --codec data=raw --samples-per-chunk 1000 --quiet
python3 - <<PY
from pathlib import Path
data = bytearray(Path("ramp.tuck").read_bytes())
at = data.index((2500).to_bytes(4, "little") + (2501).to_bytes(4, "little"))
data[at] ^= 1
Path("ramp.tuck").write_bytes(data)
PY
"$TUCKFOLD" verify ramp.tuck || echo "exit $?"
"$TUCKFOLD" unpack ramp.tuck -o back.npy || echo "exit $?"
"$TUCKFOLD" repair ramp.tuck -o saved.tuck
"$TUCKFOLD" verify saved.tuck
ls
