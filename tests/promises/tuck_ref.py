"""A reader of .tuck files whose codec is raw, by docs/format.md alone: a judge that is not the tool.

It compares no checksums, so it reads megabytes in no time; tests/formats/decode.py compares all.
"""

import json
from pathlib import Path

import numpy as np

DTYPES = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "u8": "u1", "i32": "<i4", "i64": "<i8"}


def number(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def read_file(path: Path) -> np.ndarray:
    """The samples of the last state of a file with one array."""
    data = path.read_bytes()
    assert data[:8] == b"TuckFile" and data[16:64] == bytes(48), f"{path}: no whole file"
    end = len(data) // 64 * 64
    while data[end - 8 : end] != b"TuckEnd." or number(data, end - 48) != end:
        end -= 64
        assert end > 64, f"{path}: no trailer"
    at = number(data, end - 64) + 32
    samples, count, schema_bytes = number(data, at), number(data, at + 16), number(data, at + 24)
    entries = at + 32
    schema = json.loads(data[entries + 40 * count :][:schema_bytes])
    (array,) = schema["arrays"]
    assert array["codec"] == "raw"
    parts = []
    for i in range(count):
        entry = entries + 40 * i
        rows, offset, skip = (
            number(data, entry + 4, 4),
            number(data, entry + 16),
            number(data, entry + 32, 4),
        )
        assert number(data, entry + 8) == sum(map(len, parts))
        frame = offset + 32 + 16
        rank, spec = data[frame + 6], number(data, frame + 8, 4)
        shape = [number(data, frame + 32 + 8 * axis) for axis in range(rank)]
        packed = frame + (32 + 8 * rank + spec + 15) // 16 * 16
        dtype = np.dtype(DTYPES[array["dtype"]])
        values = np.frombuffer(data, dtype, int(np.prod(shape)), packed).reshape(shape)
        parts.append(values[skip : skip + rows])
    values = np.concatenate(parts) if parts else np.empty((0, *array["shape"]))
    assert len(values) == samples
    return values


def read(path: Path) -> np.ndarray:
    """The samples of a file or a manifest."""
    if path.read_bytes()[:1] != b"{":
        return read_file(path)
    shards = json.loads(path.read_text())["shards"]
    return np.concatenate([read_file(path.parent / shard["file"]) for shard in shards])
