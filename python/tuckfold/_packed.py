"""A packed array that knows itself."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from tuckfold import _codec
from tuckfold import _library as lib
from tuckfold._errors import CorruptDataError
from tuckfold._spec import CodecSpec, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

# Readers of frames trust a header up to so many bytes, and above that up to so many times the frame's.
_TRUSTED_BYTES = 1 << 30
_MOST_RATIO = 32768  # zstd, alone, stays below it


class Packed:
    """The bytes of an array with what unpacking them takes: codec, dtype and shape.

    It pickles, compares, and is written to bytes that describe themselves by :meth:`to_bytes`: one
    frame of the file format, with checksums.

    >>> images = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    >>> packed = tuckfold.Packed.pack(images, "dct_chop(keep=4)")
    >>> packed
    Packed(dct_chop(keep=4), f32, (64, 64), 4096 bytes)
    >>> packed.ratio
    4.0
    >>> bool(np.abs(packed.unpack() - images).max() < 0.01)
    True
    >>> tuckfold.Packed.from_bytes(packed.to_bytes()) == packed
    True
    """

    __slots__ = ("bytes", "dtype", "shape", "spec")

    bytes: np.ndarray  #: uint8, of one axis
    spec: CodecSpec
    dtype: str  #: of the array: ``"f32"`` …
    shape: tuple[int, ...]

    def __init__(self, bytes: Any, spec: str | CodecSpec, dtype: Any, shape: Sequence[int]) -> None:
        from tuckfold import _arrays

        self.bytes = _arrays.bytes_of("Packed", bytes)
        self.spec = spec_of(spec)
        self.dtype = _arrays.dtype_name("Packed", dtype)
        self.shape = tuple(int(n) for n in shape)

    @classmethod
    def pack(cls, array: Any, spec: str | CodecSpec, *, dtype: Any = None, seed: int = 0) -> Packed:
        """Packs an array; arguments as for :func:`tuckfold.pack`."""
        from tuckfold import _arrays

        view = _arrays.array_of("pack", array)
        packed = _codec.pack(view, spec, dtype=dtype, seed=seed)
        return cls(packed, spec, _arrays.stored_dtype("pack", view, dtype), view.shape)

    def unpack(self, *, out: Any = None) -> Any:
        """The array, or out filled with it."""
        return _codec.unpack(self.bytes, self.spec, self.shape, self.dtype, out=out)

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return self.bytes.nbytes

    @property
    def ratio(self) -> float:
        """How many times smaller they are than the array."""
        whole = math.prod(self.shape) * lib.DTYPE_BYTES[self.dtype]
        return whole / self.nbytes if self.nbytes else 1.0

    def _claims_too_much(self) -> bool:
        whole = math.prod(self.shape) * lib.DTYPE_BYTES[self.dtype]
        return whole > _TRUSTED_BYTES and whole >= _MOST_RATIO * self.nbytes

    def to_bytes(self) -> bytes:  # noqa: A003
        """One frame: a header that says codec, dtype and shape, then the bytes, with checksums.

        Raises:
            ValueError: the array has more than 1 GiB, and is packed to less than a 32768th of that,
                which readers refuse; :func:`dumps` takes ``zstd`` there.
        """
        plan = _codec.plan_of(str(self.spec), self.dtype, self.shape)
        room = lib.frame_bytes(plan.handle, self.nbytes)
        frame = (ctypes.c_char * room)()
        lib.call(
            "write_frame",
            plan.handle,
            self.bytes.ctypes.data,
            self.nbytes,
            ctypes.byref(frame),
            room,
        )
        return frame.raw

    @classmethod
    def from_bytes(cls, frame: Any) -> Packed:
        """What :meth:`to_bytes` wrote.

        Raises:
            CorruptDataError: the bytes are no whole frame, a checksum is wrong, or they are not what
                the codec makes of such an array.
            NotImplementedError: the codec or dtype is not known here.
        """
        from tuckfold import _arrays

        data = _arrays.bytes_of("from_bytes", frame)
        return cls._of_frame(data, _read_frame(data))

    @classmethod
    def _of_frame(cls, data: np.ndarray, found: lib.Frame) -> Packed:
        start = found.packed - data.ctypes.data if found.packed_bytes else 0
        return cls(
            data[start : start + found.packed_bytes].copy(),
            ctypes.string_at(found.codec, found.codec_bytes).decode(),
            lib.DTYPES[found.dtype],
            tuple(found.shape[: found.rank]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packed):
            return NotImplemented
        same = (self.spec, self.dtype, self.shape) == (other.spec, other.dtype, other.shape)
        return same and self.bytes.tobytes() == other.bytes.tobytes()

    def __hash__(self) -> int:
        return hash((self.spec, self.dtype, self.shape, self.bytes.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.bytes, str(self.spec), self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Packed({self.spec}, {self.dtype}, {self.shape}, {self.nbytes} bytes)"


def dumps(array: Any, spec: str | CodecSpec = "zstd", *, dtype: Any = None, seed: int = 0) -> bytes:
    """An array as bytes that describe themselves: one frame of the file format, with checksums.

    An array of more than 1 GiB that the codec packs to less than a 32768th, as it may pack equal values, is
    packed with ``zstd``: readers refuse frames that claim so much.

    Args: as for :func:`pack`.

    >>> x = np.arange(6).reshape(2, 3)
    >>> tuckfold.loads(tuckfold.dumps(x)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    packed = Packed.pack(array, spec, dtype=dtype, seed=seed)
    if packed._claims_too_much():
        packed = Packed.pack(array, "zstd", dtype=dtype)
    return packed.to_bytes()


def _read_frame(data: np.ndarray) -> lib.Frame:
    found = lib.Frame()
    lib.call("read_frame", data.ctypes.data, data.nbytes, ctypes.byref(found))
    return found


def loads(frame: Any) -> Any:
    """The array of :func:`dumps`.

    Args:
        frame: bytes, or anything with a buffer. It is one frame, and nothing follows it.

    Raises:
        CorruptDataError: the bytes are no complete frame, more follow, a checksum is wrong, or they
            are not what the codec makes of such an array.
        NotImplementedError: the codec or dtype is not known here, or numpy has no such array.
    """
    from tuckfold import _arrays

    data = _arrays.bytes_of("loads", frame)
    found = _read_frame(data)
    if found.frame_bytes != data.nbytes:
        raise CorruptDataError(
            f"[loads] the frame has {found.frame_bytes} bytes, got {data.nbytes}; pass it alone"
        )
    packed = Packed._of_frame(data, found)
    try:
        out = _arrays.empty(packed.shape, packed.dtype)
    except ValueError as error:  # no values, and axes whose product numpy cannot count
        raise NotImplementedError(
            f"[loads] numpy has no array of {packed.dtype} {packed.shape}: {error}"
        ) from None
    return packed.unpack(out=out)
