# What is valid, but holds no tensors that can be packed: status 4, and what would do.
cat >make.py <<PY
import struct
from pathlib import Path
types = {"big_endian": "'>f4'", "objects": "'|O'", "complex": "'<c8'", "text": "'<U4'", "times": "'<M8[s]'",
         "long_double": "'<f16'", "records": "[('a', '<f4'), ('b', '<i4')]"}
for name, descr in types.items():
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (4,)}}".encode().ljust(117) + b"\n"
    Path(name + ".npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(64))
Path("later.npy").write_bytes(b"\x93NUMPY\x09\0" + bytes(200))
PY
python3 make.py
for name in big_endian objects complex text times long_double records later; do
  "$TUCKFOLD" pack $name.npy -o out.tuck || echo "$name $?"
done
