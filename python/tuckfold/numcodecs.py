"""Codecs for numcodecs, and so for Zarr's format 2, kerchunk and others that name codecs by ``id``.

>>> import numcodecs, tuckfold.numcodecs
>>> codec = numcodecs.get_codec({"id": "tuckfold", "spec": "bounded(abs=0.01)"})
>>> x = np.linspace(0, 1, 4096).reshape(64, 64)
>>> back = codec.decode(codec.encode(x)).reshape(x.shape)
>>> bool(np.abs(back - x).max() <= 0.01)
True

Where Tuckfold is installed, numcodecs finds the codec by itself, without this import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from tuckfold import _arrays
from tuckfold._codec import _takes_integers
from tuckfold._errors import CorruptDataError
from tuckfold._packed import dumps, loads
from tuckfold._spec import CodecSpec, spec_of

__all__ = ["Tuckfold"]


class Tuckfold(Codec):
    """A spec as a codec of numcodecs: each chunk becomes a frame that describes itself, with checksums.

    Lossy specs take arrays, of the dtypes that the codec takes, and see their shape. Exact ones that take
    integers pack any bytes.

    Args:
        spec: the codec, or its text.
    """

    codec_id: str | None = "tuckfold"

    def __init__(self, spec: str | CodecSpec) -> None:
        self.spec = str(spec_of(spec))

    def encode(self, buf: Any) -> bytes:
        """A chunk as a frame."""
        array = ensure_ndarray(buf)
        if array.dtype == object:
            raise TypeError("[numcodecs] objects have no bytes to pack; encode them first")
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = np.ascontiguousarray(array)
        if not array.flags.c_contiguous:
            array = array.T  # in the order of memory, which is Zarr's order="F"
        known = array.dtype in _arrays._NAMES or str(array.dtype) == "bfloat16"
        if not known or not isinstance(buf, np.ndarray):
            if not _takes_integers(self.spec):
                raise ValueError(
                    f"[numcodecs] {self.spec} packs numbers, got {type(buf).__name__} of {array.dtype}; it "
                    "must be the first codec, for an array of a dtype that it takes"
                )
            array = array.reshape(-1).view(np.uint8)
        return dumps(array, self.spec)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The values of a frame in the order of memory, or out filled with them."""
        values = loads(ensure_contiguous_ndarray(buf)).reshape(-1)
        if out is None:
            return values
        to = ensure_contiguous_ndarray(out)  # no objects
        kinds = (values.dtype, to.dtype.newbyteorder("<"))
        if np.uint8 not in kinds and kinds[0] != kinds[1]:  # u8 stands for bytes of any dtype
            raise CorruptDataError(
                f"[numcodecs] the frame has values of {kinds[0]}, and out is of {to.dtype}"
            )
        return ndarray_copy(values, to)

    def get_config(self) -> dict[str, Any]:
        """What Zarr keeps in an array's metadata."""
        return {"id": self.codec_id, "spec": self.spec}


register_codec(Tuckfold)
