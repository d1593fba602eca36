"""layout, pack and unpack."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuckfold import _library as lib
from tuckfold._errors import CorruptDataError
from tuckfold._spec import CodecSpec, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


@dataclass(frozen=True)
class Layout:
    """What packing a tensor of some dtype and shape takes."""

    max_bytes: int  #: the most that pack writes
    fixed: bool  #: whether it always writes exactly that
    workspace_bytes: int  #: scratch that packing and unpacking each need
    dtype: str  #: the packed bytes, max_bytes of them, seen as a tensor:
    shape: tuple[int, ...]  #: row-major, of this shape


def layout(spec: str | CodecSpec, dtype: Any, shape: Sequence[int]) -> Layout:
    """How large a tensor becomes, without packing it.

    For a codec of a fixed size the bytes follow from spec, dtype and shape alone: for ``dct_chop`` of
    blocks of N × N values that keeps K × K of them, K²/N² of what there was.

    Args:
        spec: the codec, or its text.
        dtype: ``"f32"``, ``"f16"``, ``"bf16"``, ``"f64"``, ``"u8"``, ``"i32"``, ``"i64"``, or
            a dtype of numpy.
        shape: axis lengths.

    Raises:
        ValueError: the tensor does not fit the codec, or a fixed size would be larger than the tensor.

    >>> tuckfold.layout("dct_chop(keep=4)", "f32", (64, 3, 256, 256))
    Layout(max_bytes=12582912, fixed=True, workspace_bytes=0, dtype='f32', shape=(64, 3, 128, 128))
    """
    if not (isinstance(dtype, str) and dtype in lib.DTYPES):
        from tuckfold._arrays import dtype_name

        dtype = dtype_name("layout", dtype)
    fit = lib.Layout()
    lengths = tuple(int(n) for n in shape)
    lib.call(
        "layout_of",
        spec_of(spec)._handle,
        lib.DTYPES.index(dtype),
        len(lengths),
        lib.axes(lengths),
        ctypes.byref(fit),
    )
    return Layout(
        max_bytes=fit.max_bytes,
        fixed=bool(fit.fixed),
        workspace_bytes=fit.workspace_bytes,
        dtype=lib.DTYPES[fit.dtype],
        shape=tuple(fit.shape[: fit.rank]),
    )


def pack(
    array: Any, spec: str | CodecSpec, *, dtype: Any = None, seed: int = 0, threads: int = 0
) -> np.ndarray:
    """Folds an array into fewer bytes.

    The bytes depend on spec, values and seed alone: not on threads, CPU or strides. They have no
    header: give unpack the same spec, dtype and shape.

    Args:
        array: a numpy array, or anything with ``__array_interface__``, ``__dlpack__`` on the CPU or a
            buffer. Strides of any kind are walked in place; nothing is copied first.
        spec: the codec, or its text.
        dtype: ``"bf16"`` where a uint16 array holds bits of bf16; else the array says it.
        seed: for stochastic rounding; give each tensor its own.
        threads: 0 stands for every core.

    Returns:
        A uint8 array of the bytes, one axis.

    Raises:
        ValueError: the array does not fit the codec.
        NotImplementedError: it is not in the memory of the CPU.

    >>> labels = np.array([3, 0, 2, 1] * 256)
    >>> tuckfold.pack(labels, "bits(width=2)").nbytes, labels.nbytes
    (264, 8192)
    """
    from tuckfold import _arrays

    view = _arrays.array_of("pack", array)
    tensor = _arrays.Tensor("pack", view, _arrays.stored_dtype("pack", view, dtype))
    spec = spec_of(spec)
    fit = lib.Layout()
    source = tensor.view
    lib.call("layout_of", spec._handle, source.dtype, source.rank, source.shape, ctypes.byref(fit))
    out = _arrays.empty((fit.max_bytes,), "u8")
    written = ctypes.c_size_t()
    lib.call(
        "pack",
        spec._handle,
        ctypes.byref(source),
        out.ctypes.data,
        out.nbytes,
        ctypes.byref(lib.options(seed, threads)),
        ctypes.byref(written),
    )
    # A view of a few bytes would keep all the room for the worst case.
    return out if written.value == out.nbytes else out[: written.value].copy()


def unpack(
    packed: Any,
    spec: str | CodecSpec,
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
) -> Any:
    """Unfolds what pack made.

    Args:
        packed: the bytes: what pack returned, or bytes, bytearray, memoryview, mmap …
        spec: the codec that packed them.
        shape: of the array that was packed; not needed with out.
        dtype: of the array that was packed, ``"f32"`` unless given. ``"bf16"`` gives an array of
            ml_dtypes' bfloat16 where that is installed, else the bits as uint16.
        out: an array to fill, of any strides, instead of a new one.
        threads: 0 stands for every core.

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
    from tuckfold import _arrays

    data = _arrays.bytes_of("unpack", packed)
    if out is None:
        if shape is None:
            raise ValueError("[unpack] needs the shape of the array, or out= to fill")
        spec = spec_of(spec)
        name = _arrays.dtype_name("unpack", "f32" if dtype is None else dtype)
        lengths = tuple(int(n) for n in shape)
        # Bytes that cannot fit must not cost the memory of a shape that somebody made up.
        fit = layout(spec, name, lengths)
        if data.nbytes != fit.max_bytes and (fit.fixed or data.nbytes > fit.max_bytes):
            raise CorruptDataError(
                f"[unpack] {spec} of {name} {lengths} packs to {'' if fit.fixed else 'at most '}"
                f"{fit.max_bytes} bytes, got {data.nbytes}"
            )
        view = result = _arrays.empty(lengths, name)
    else:
        spec, result = spec_of(spec), out
        view = _arrays.array_of("unpack", out)
        name = _arrays.stored_dtype("unpack", view, dtype)
        if not view.flags.writeable:
            raise ValueError("[unpack] out must be writeable")
        if shape is not None and tuple(shape) != view.shape:
            raise ValueError(f"[unpack] out has shape {view.shape}, not {tuple(shape)}")
    tensor = _arrays.Tensor("unpack", view, name)
    lib.call(
        "unpack",
        spec._handle,
        data.ctypes.data,
        data.nbytes,
        ctypes.byref(tensor.view),
        ctypes.byref(lib.options(0, threads)),
    )
    return result


@dataclass(frozen=True)
class MatmulForm:
    """The matrices of :func:`matmul_form`, and of how many tiles of which sides a plane is made."""

    tiles: int
    tile_rows: int
    tile_cols: int
    lhs: np.ndarray
    rhs: np.ndarray
    back_lhs: np.ndarray
    back_rhs: np.ndarray


def matmul_form(spec: str | CodecSpec, rows: int, cols: int) -> MatmulForm:
    """dct_chop as two matrix products, for hardware that has nothing else.

    A plane A packs to ``Y = lhs @ A @ rhs`` (the paper's eq. 4) and unpacks to
    ``back_lhs @ Y @ back_rhs`` (eq. 6). lhs is block-diagonal, each block the first ``keep`` rows of
    the orthonormal DCT-II,

        T[0, x] = √(1/N),   T[v, x] = √(2/N) cos(π (2x + 1) v / 2N).

    With ``serialize=s`` a plane is cut into s × s tiles, each multiplied by the same matrices.

    Raises:
        ValueError: spec is not one square dct_chop, or the sides are no whole tiles.

    >>> form = tuckfold.matmul_form("dct_chop(keep=4)", 64, 64)
    >>> plane = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    >>> packed = tuckfold.pack(plane, "dct_chop(keep=4)").view(np.float32).reshape(32, 32)
    >>> bool(np.allclose(form.lhs @ plane @ form.rhs, packed, atol=1e-5))
    True
    """
    import numpy as np

    handle = spec_of(spec)._handle
    sizes = lib.MatmulSizes()
    lib.call("matmul_form", handle, rows, cols, ctypes.byref(sizes), None, None, None, None)
    kept, plane = (sizes.kept_rows, sizes.kept_cols), (sizes.tile_rows, sizes.tile_cols)
    shapes = [
        (kept[0], plane[0]),
        (plane[1], kept[1]),
        (plane[0], kept[0]),
        (kept[1], plane[1]),
    ]
    matrices = [np.empty(shape, np.float32) for shape in shapes]
    pointers = [m.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for m in matrices]
    lib.call("matmul_form", handle, rows, cols, ctypes.byref(sizes), *pointers)
    return MatmulForm(sizes.tiles, *plane, *matrices)
