#!/usr/bin/env python3
"""Writes a .npy file with nothing but the standard library: make_npy.py OUT DESCR SHAPE [PATTERN].

make_npy.py images.npy '<f4' 2,3,16,16 wave

Patterns: ramp (0, 1, 2 …), wave (smooth, 0..1; integers 0..255), zero, unit (0/255 … 255/255 and over
again), nan (a wave with a NaN).
"""

import math
import struct
import sys
from pathlib import Path

# struct's letters for numpy's types.
LETTERS = {
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "b1": "?",
    "u1": "B",
    "i1": "b",
    "i2": "h",
    "u2": "H",
    "i4": "i",
    "u4": "I",
    "i8": "q",
    "u8": "Q",
}


def values(pattern: str, shape: list[int], whole: bool):
    cols = shape[-1] if shape else 1
    for i in range(math.prod(shape)):
        if pattern == "ramp":
            value = i
        elif pattern == "unit":
            value = i % 256 / 255
        elif pattern == "zero":
            value = 0
        elif pattern == "nan" and i == 5:
            value = math.nan
        else:
            value = 0.5 + 0.3 * math.sin(i // cols / 3.0) + 0.2 * math.cos(i % cols / 2.0)
            value = 255 * value if whole else value
        yield int(value) if whole else value


def main() -> None:
    path, descr, axes = sys.argv[1:4]
    pattern = sys.argv[4] if len(sys.argv) > 4 else "wave"
    shape = [int(axis) for axis in axes.split(",") if axis]
    letter = LETTERS[descr[1:]]
    order = ">" if descr[0] == ">" else "<"
    numbers = list(values(pattern, shape, letter not in "efd"))
    data = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header = header.ljust((len(header) + 10) // 64 * 64 + 64 - 11) + "\n"
    front = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    Path(path).write_bytes(front + data)


if __name__ == "__main__":
    main()
