"""layout, pack and unpack."""

from __future__ import annotations

import ctypes
import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuckfold import _library as lib
from tuckfold._errors import CorruptDataError
from tuckfold._spec import CodecSpec, spec_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


_arrays: Any = None  # the module, once an array has arrived


def _import_arrays() -> Any:
    global _arrays
    from tuckfold import _arrays as module

    _arrays = module
    return module


@dataclass(frozen=True)
class Layout:
    """What packing a tensor of some dtype and shape takes."""

    max_bytes: int  #: the most that pack writes
    fixed: bool  #: whether it always writes exactly that
    workspace_bytes: int  #: scratch that packing and unpacking each need
    dtype: str  #: the packed bytes, max_bytes of them, seen as a tensor:
    shape: tuple[int, ...]  #: row-major, of this shape


class Plan:
    """A plan of the C API and what calls need of it. Whoever uses the handle holds this object."""

    __slots__ = ("handle", "layout", "max_bytes", "shape", "shape_pointer")

    def __init__(self, spec: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.shape = lib.axes(shape)
        self.shape_pointer = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        handle = ctypes.c_void_p()
        lib.call(
            "plan_get",
            lib.encoded(spec),
            lib.DTYPES.index(dtype),
            len(shape),
            self.shape,
            ctypes.byref(handle),
        )
        self.handle = handle
        fit = lib.plan_layout(handle).contents
        self.layout = Layout(
            max_bytes=fit.max_bytes,
            fixed=bool(fit.fixed),
            workspace_bytes=fit.workspace_bytes,
            dtype=lib.DTYPES[fit.dtype],
            shape=tuple(fit.shape[: fit.rank]),
        )
        self.max_bytes = fit.max_bytes

    def __del__(self, release: Any = lib.plan_release) -> None:  # the module may be gone by then
        if getattr(self, "handle", None):
            release(self.handle)


@functools.lru_cache(maxsize=1024)
def plan_of(spec: str, dtype: str, shape: tuple[int, ...]) -> Plan:
    """The plan for a spec's text, one of our names of dtypes, and a shape."""
    return Plan(spec, dtype, shape)


def _lengths(what: str, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(
            f"[{what}] shape must be a sequence of integers, got {type(shape).__name__}"
        ) from None


def layout(spec: str | CodecSpec, dtype: Any, shape: Sequence[int]) -> Layout:
    """How large a tensor becomes, without packing it.

    For a codec of a fixed size the bytes follow from spec, dtype and shape alone: for ``dct_chop`` of
    blocks of N × N values that keeps K × K of them, K²/N² of what there was.

    Args:
        spec: the codec, or its text.
        dtype: ``"f32"``, ``"f16"``, ``"bf16"``, ``"f64"``, ``"u8"`` to ``"u64"``, ``"i8"`` to
            ``"i64"``, ``"bool"``, or a dtype of numpy.
        shape: axis lengths.

    Raises:
        ValueError: the tensor does not fit the codec, or a fixed size would be larger than the tensor.

    >>> tuckfold.layout("dct_chop(keep=4)", "f32", (64, 3, 256, 256))
    Layout(max_bytes=12582912, fixed=True, workspace_bytes=0, dtype='f32', shape=(64, 3, 128, 128))
    """
    return plan_of(text_of(spec), _dtype("layout", dtype), _lengths("layout", shape)).layout


def takes(spec: str | CodecSpec, dtype: Any, shape: Sequence[int]) -> bool:
    """Whether the codec packs tensors of that dtype and shape: whether :func:`layout` has an answer.

    Args: as for :func:`layout`.

    >>> tuckfold.takes("dct_quant(rate=4)", "f32", (64, 56, 56)), tuckfold.takes("bits", "f32", (64,))
    (True, False)
    """
    text, name, lengths = str(spec_of(spec)), _dtype("takes", dtype), _lengths("takes", shape)
    try:
        plan_of(text, name, lengths)
    except ValueError:
        return False
    return True


def _dtype(where: str, dtype: Any) -> str:
    if isinstance(dtype, str) and dtype in lib.DTYPES:
        return dtype
    from tuckfold._arrays import dtype_name

    return dtype_name(where, dtype)


def pack(array: Any, spec: str | CodecSpec, *, dtype: Any = None, seed: int = 0) -> np.ndarray:
    """Folds an array into fewer bytes.

    The bytes depend on spec, values and seed alone: not on threads, CPU or strides. They have no
    header: give unpack the same spec, dtype and shape, or keep a :class:`Packed`.

    Args:
        array: a numpy array, or anything with ``__array_interface__``, ``__dlpack__`` on the CPU or a
            buffer. Strides of any kind are read in place; nothing is copied first. Elements must be aligned to their size, and strides be whole elements.
        spec: the codec, or its text.
        dtype: ``"bf16"`` where a uint16 array holds bits of bf16; else the array says it.
        seed: for stochastic rounding, -2**63 to 2**64 - 1; give each tensor its own.

    Returns:
        A uint8 array of the bytes, one axis.

    Raises:
        ValueError: the array does not fit the codec.
        NotImplementedError: it is not in the memory of the CPU.

    >>> labels = np.array([3, 0, 2, 1] * 256)
    >>> tuckfold.pack(labels, "bits(width=2)").nbytes, labels.nbytes
    (264, 8192)
    """
    arrays = _arrays or _import_arrays()
    view = arrays.array_of("pack", array)
    name = arrays.stored_dtype("pack", view, dtype)
    plan = plan_of(text_of(spec), name, view.shape)
    tensor = arrays.tensor_of("pack", view, name, plan.shape_pointer)
    room = plan.max_bytes
    out = arrays.room(room)
    written = ctypes.c_size_t()
    lib.check(
        lib.pack(
            plan.handle,
            ctypes.byref(tensor),
            out.__array_interface__["data"][0],
            room,
            ctypes.byref(lib.options(seed)),
            ctypes.byref(written),
        )
    )
    # A view of a few bytes would keep all the room for the worst case.
    return out if written.value == room else out[: written.value].copy()


def unpack(
    packed: Any,
    spec: str | CodecSpec,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    out: Any = None,
) -> Any:
    """Unfolds what pack made.

    Args:
        packed: the bytes: what pack returned, or bytes, bytearray, memoryview, mmap …
        spec: the codec that packed them.
        shape: of the array that was packed; not needed with out.
        dtype: of the array that was packed. ``"f32"`` unless given, where the codec takes no
            integers; codecs that do, such as ``raw``, ``bits`` and ``zstd``, need it. ``"bf16"``
            gives an array of ml_dtypes' bfloat16 where that is installed, else the bits as uint16.
        out: an array to fill, of any strides, instead of a new one; not in the memory of the bytes.

    Returns:
        The array, or out.

    Raises:
        CorruptDataError: the bytes are not of that codec, shape and dtype.

    >>> values = np.arange(12.0).reshape(3, 4)
    >>> out = np.zeros((4, 3))
    >>> _ = tuckfold.unpack(tuckfold.pack(values, "raw"), "raw", out=out.T)
    >>> out[:, 0].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    arrays = _arrays or _import_arrays()
    text = text_of(spec)
    data = arrays.bytes_of("unpack", packed)
    if out is None:
        if shape is None:
            raise ValueError("[unpack] needs the shape of the array, or out= to fill")
        lengths = _lengths("unpack", shape)
        if dtype is None:
            check_dtype_is_known(text)
        name = arrays.dtype_name("unpack", "f32" if dtype is None else dtype)
        plan = plan_of(text, name, lengths)
        # Bytes that cannot fit must not cost the memory of a shape that somebody made up.
        fit = plan.layout
        if data.nbytes != fit.max_bytes and (fit.fixed or data.nbytes > fit.max_bytes):
            raise CorruptDataError(
                f"[unpack] {text} of {name} {lengths} packs to {'' if fit.fixed else 'at most '}"
                f"{fit.max_bytes} bytes, got {data.nbytes}"
            )
        view = result = arrays.empty(lengths, name)
    else:
        result = out
        view = arrays.array_of("unpack", out)
        name = arrays.stored_dtype("unpack", view, dtype)
        if not view.flags.writeable:
            raise ValueError("[unpack] out must be writeable")
        if shape is not None and _lengths("unpack", shape) != view.shape:
            raise ValueError(f"[unpack] out has shape {view.shape}, not {tuple(shape)}")
        plan = plan_of(text, name, view.shape)
    tensor = arrays.tensor_of("unpack", view, name, plan.shape_pointer)
    lib.check(
        lib.unpack(
            plan.handle,
            data.__array_interface__["data"][0],
            data.nbytes,
            ctypes.byref(tensor),
            ctypes.byref(lib.options()),
        )
    )
    return result


def check_dtype_is_known(spec: str) -> None:
    """Refuses a codec that takes integers. Values of others come back right in any float dtype."""
    if _takes_integers(spec):
        raise ValueError(f'[unpack] {spec} holds values of any dtype; say which, as in dtype="i64"')


@functools.lru_cache(maxsize=1024)
def _takes_integers(spec: str) -> bool:
    try:
        plan_of(spec, "i64", (64, 64))
        return True
    except ValueError:
        spec_of(spec)  # a spec that is wrong is refused as such
        return False


@dataclass(frozen=True, eq=False)
class MatmulForm:
    """The matrices of :func:`matmul_form`, and of how many tiles of which sides a plane is made."""

    tiles: int
    tile_rows: int
    tile_cols: int
    lhs: np.ndarray
    rhs: np.ndarray
    back_lhs: np.ndarray
    back_rhs: np.ndarray

    def _key(self) -> tuple[Any, ...]:
        matrices = (self.lhs, self.rhs, self.back_lhs, self.back_rhs)
        sizes = (self.tiles, self.tile_rows, self.tile_cols)
        return (*sizes, *((m.shape, m.tobytes()) for m in matrices))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, MatmulForm) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def _side(name: str, side: Any) -> int:
    """A plane's side for C; ctypes alone would drop high bits."""
    try:
        length = operator.index(side)
    except TypeError:
        raise TypeError(
            f"[matmul_form] {name} must be an integer, got {side!r:.40}; give int({name})"
        ) from None
    if not 1 <= length < 2**63:
        raise ValueError(
            f"[matmul_form] {name} must be 1..2**63 - 1, got {length}; give the side of a plane"
        )
    return length


def matmul_form(spec: str | CodecSpec, rows: int, cols: int) -> MatmulForm:
    """dct_chop as two matrix products, for hardware that has nothing else.

    A plane A packs to ``Y = lhs @ A @ rhs`` (the paper's eq. 4) and unpacks to
    ``back_lhs @ Y @ back_rhs`` (eq. 6). lhs is block-diagonal, each block the first ``keep`` rows of
    the orthonormal DCT-II,

        T[0, x] = √(1/N),   T[v, x] = √(2/N) cos(π (2x + 1) v / 2N).

    With ``serialize=s`` a plane is cut into s × s tiles, each multiplied by the same matrices.

    Raises:
        ValueError: spec is not one square dct_chop, or the sides are no whole tiles.
        TypeError: a side is no integer.

    >>> form = tuckfold.matmul_form("dct_chop(keep=4)", 64, 64)
    >>> plane = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    >>> packed = tuckfold.pack(plane, "dct_chop(keep=4)").view(np.float32).reshape(32, 32)
    >>> bool(np.allclose(form.lhs @ plane @ form.rhs, packed, atol=1e-5))
    True
    """
    import numpy as np

    rows, cols = (_side(name, side) for name, side in (("rows", rows), ("cols", cols)))
    spec = spec_of(spec)  # holds the handle until the last call has returned
    sizes = lib.MatmulSizes()
    lib.call("matmul_form", spec._handle, rows, cols, ctypes.byref(sizes), None, None, None, None)
    kept, plane = (sizes.kept_rows, sizes.kept_cols), (sizes.tile_rows, sizes.tile_cols)
    shapes = [
        (kept[0], plane[0]),
        (plane[1], kept[1]),
        (plane[0], kept[0]),
        (kept[1], plane[1]),
    ]
    matrices = [np.empty(shape, np.float32) for shape in shapes]
    pointers = [m.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for m in matrices]
    lib.call("matmul_form", spec._handle, rows, cols, ctypes.byref(sizes), *pointers)
    return MatmulForm(sizes.tiles, *plane, *matrices)
