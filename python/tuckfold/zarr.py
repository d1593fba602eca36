"""A codec for Zarr's format 3: it goes in ``serializer=``, since it turns arrays into bytes.

>>> import zarr, tuckfold.zarr
>>> x = np.linspace(0, 1, 128 * 128, dtype=np.float32).reshape(128, 128)
>>> codec = tuckfold.zarr.TuckfoldCodec("dct_quant(rate=4)")
>>> z = zarr.create_array({}, data=x, chunks=(64, 64), serializer=codec, compressors=None)
>>> bool(np.abs(z[:] - x).max() < 0.01)
True

Where Tuckfold is installed, Zarr finds the codec by itself when it reads an array.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.common import parse_named_configuration
from zarr.registry import register_codec

from tuckfold._errors import CorruptDataError
from tuckfold._packed import dumps, loads
from tuckfold._spec import CodecSpec, spec_of

__all__ = ["TuckfoldCodec"]


@dataclasses.dataclass(frozen=True)
class TuckfoldCodec(ArrayBytesCodec):
    """A spec as a codec of Zarr: each chunk becomes a frame that describes itself, with checksums.

    Args:
        spec: the codec, or its text.
    """

    is_fixed_size = False

    spec: str

    def __init__(self, spec: str | CodecSpec) -> None:
        object.__setattr__(self, "spec", str(spec_of(spec)))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TuckfoldCodec:
        """From an array's metadata."""
        _, configuration = parse_named_configuration(data, "tuckfold")
        return cls(**configuration)

    def to_dict(self) -> dict[str, Any]:
        """What Zarr keeps in an array's metadata."""
        return {"name": "tuckfold", "configuration": {"spec": self.spec}}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Zarr asks codecs of a fixed size alone."""
        raise NotImplementedError("[zarr] the bytes of a frame are known when it is packed")

    def _encode(self, chunk: NDBuffer, spec: ArraySpec) -> Buffer:
        array = np.asarray(chunk.as_numpy_array(), order="C")  # keeps the shape () of a scalar
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return spec.prototype.buffer.from_bytes(dumps(array, self.spec))

    def _decode(self, data: Buffer, spec: ArraySpec) -> NDBuffer:
        array = loads(data.as_numpy_array())
        dtype = spec.dtype.to_native_dtype()
        if array.shape != spec.shape or array.dtype != dtype.newbyteorder("<"):
            raise CorruptDataError(
                f"[zarr] a chunk has {array.dtype} {array.shape}, and the array {dtype} {spec.shape}"
            )
        return spec.prototype.nd_buffer.from_ndarray_like(array.astype(dtype, copy=False))

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode, chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode, chunk_data, chunk_spec)


register_codec("tuckfold", TuckfoldCodec)
