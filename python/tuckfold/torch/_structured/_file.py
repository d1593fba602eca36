"""safetensors files: a header of JSON with names, dtypes, shapes and places, then the bytes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import torch
from torch import Tensor

from tuckfold._errors import CorruptDataError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_HEADER = 100_000_000  # the format's own limit


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; CorruptDataError where it is none."""
    data = path.read_bytes()

    def wrong(why: str) -> CorruptDataError:
        return CorruptDataError(f"[factorize] {path} is no safetensors file: {why}")

    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else _MOST_HEADER + 1
    if length > min(_MOST_HEADER, len(data) - 8):
        raise wrong("its header is longer than the file")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        body, tensors = memoryview(bytearray(data[8 + length :])), {}
        for name, entry in header.items():
            dtype, shape = _DTYPES.get(entry["dtype"]), [int(n) for n in entry["shape"]]
            begin, end = entry["data_offsets"]
            if dtype is None:
                raise wrong(f"{name} has dtype {entry['dtype']}, which is not known")
            count = 1
            for n in shape:
                count *= n
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(body):
                raise wrong(f"{name} is outside of it")
            if end - begin != count * dtype.itemsize:
                raise wrong(f"{name} has {end - begin} bytes, not those of {shape}")
            values = (
                torch.frombuffer(body[begin:end], dtype=dtype)
                if count
                else torch.empty(0, dtype=dtype)
            )
            tensors[name] = values.reshape(shape)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptDataError):
            raise
        raise wrong(f"its header cannot be read: {error}") from None
    return tensors, metadata


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a file whole, or leaves what was there."""
    header: dict[str, object] = {"__metadata__": metadata}
    at, parts = 0, []
    for name, tensor in tensors.items():
        values = tensor.detach().to("cpu").contiguous()
        parts.append(
            values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""
        )
        header[name] = {
            "dtype": _NAMES[values.dtype],
            "shape": list(values.shape),
            "data_offsets": [at, at + len(parts[-1])],
        }
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for part in parts:
                file.write(part)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
