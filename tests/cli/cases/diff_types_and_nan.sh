# The original has a NaN that stays, one that becomes a number, and a number that is lost.
python3 - <<PY
import math, struct
from pathlib import Path
def write(path, letter, values):
    descr = {"f": "<f4", "d": "<f8"}[letter]
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2, 3), }}"
    header = header.ljust(128 - 11) + "\n"
    front = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    Path(path).write_bytes(front + struct.pack(f"<6{letter}", *values))
write("a.npy", "d", [0, 1, math.nan, math.nan, 4, 5])
write("b.npy", "f", [0, 1.5, math.nan, 3, math.inf, 5])
PY
"$TUCKFOLD" diff b.npy a.npy
"$TUCKFOLD" diff b.npy a.npy --range 0 --json
