"""Arrays of numpy, and whatever numpy can look at without copying, as tensors of the C API.

Imported when the first array arrives, since numpy takes longer to load than all the rest.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

import numpy as np

from tuckfold import _library as lib

# f32 is <f4 for numpy, whose codes have bytes in place of bits. It has no bf16.
_NUMPY = {
    name: np.dtype("?" if name == "bool" else f"<{name[0]}{lib.DTYPE_BYTES[name]}")
    for name in lib.DTYPES
    if name != "bf16"
}
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}
_U8 = np.dtype("u1")
_NUMBERS = {name: number for number, name in enumerate(lib.DTYPES)}  # of the C API
_MaskedArray = np.ma.MaskedArray
_DLPACK_HOST = (1, 3)  # CPU, and memory of the CPU that CUDA has pinned


def _kind(value: Any) -> str:
    """What a value is called in an error, whatever it holds."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


def dtype_name(what: str, dtype: Any) -> str:
    """Our name of a dtype: of "f32", "float32", numpy.float32, ml_dtypes.bfloat16 …"""
    if isinstance(dtype, str) and dtype in lib.DTYPES:
        return dtype
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is None and not isinstance(dtype, str):
        raise TypeError(f"[{what}] dtype must be a name or a dtype of numpy, got {_kind(dtype)}")
    name = "bf16" if str(found) == "bfloat16" else _NAMES.get(found)
    if name is None:
        shown = repr(dtype)[:40] if found is None else str(found)[:40]
        little = None if found is None else found.newbyteorder("<")
        remedy = (
            f", which is big-endian; astype('{little.str}') converts it" if little in _NAMES else ""
        )
        raise ValueError(
            f"[{what}] dtype must be one of {', '.join(lib.DTYPES)}, got {shown}{remedy}"
        )
    return name


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array to unpack to. numpy has no bf16: it is ml_dtypes' where that is installed, else the
    bits as uint16."""
    if dtype != "bf16":
        return np.empty(shape, _NUMPY[dtype])
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return np.empty(shape, np.uint16)
    return np.empty(shape, bfloat16)


def room(size: int) -> np.ndarray:
    """Bytes to pack to."""
    return np.empty(size, _U8)


def refuse(what: str, source: Any) -> NoReturn:
    """Of what is no array in memory: says how to make one of it."""
    remedies = {
        "dask": "compute() makes one, and tuckfold.dask.pack writes a file from a Dask array",
        "xarray": "the .values of a DataArray are one",
    }
    remedy = remedies.get(type(source).__module__.partition(".")[0], "numpy.asarray makes one")
    raise TypeError(
        f"[{what}] needs a numpy array, or what has __array_interface__, __dlpack__ or a "
        f"buffer, got {type(source).__name__}; {remedy}"
    )


def array_of(what: str, source: Any) -> np.ndarray:
    """A numpy view of the source's own memory; what cannot be viewed is refused, never copied."""
    if type(source) is np.ndarray:
        return source
    if isinstance(source, _MaskedArray):
        raise TypeError(
            f"[{what}] a masked array would lose its mask; pack its .filled() and its .mask apart"
        )
    if isinstance(source, np.ndarray):
        return source
    if hasattr(source, "__array_interface__"):
        return np.asarray(source)
    if hasattr(source, "__dlpack__"):
        device, _ = source.__dlpack_device__()
        if device not in _DLPACK_HOST:
            raise NotImplementedError(
                f"[{what}] the tensor is not in the memory of the CPU; copy it there first, or use "
                "tuckfold.torch, which takes tensors on a GPU"
            )
        if getattr(source, "is_neg", bool)():  # of torch, which does not tell others
            raise ValueError(
                f"[{what}] the tensor is negated when it is read; call resolve_neg() first, or use tuckfold.torch"
            )
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"[{what}] numpy cannot look at this {type(source).__name__}: {error}; bf16 can be "
                'viewed as uint16, with dtype="bf16"'
            ) from None
    try:
        return np.asarray(memoryview(source))
    except TypeError:
        pass
    refuse(what, source)


def bytes_of(what: str, source: Any) -> np.ndarray:
    """Packed bytes in one piece, whatever they are kept in."""
    array = array_of(what, source)
    if not array.flags.c_contiguous:
        raise ValueError(f"[{what}] packed bytes must be contiguous; copy them first")
    if array.ndim == 1 and array.dtype == _U8:
        return array
    return array.reshape(-1).view(_U8)


def tensor_of(what: str, array: np.ndarray, dtype: str, shape: ctypes.Array) -> lib.Tensor:
    """A tensor of the C API in the array's memory, which must outlive it."""
    width = lib.DTYPE_BYTES[dtype]
    if array.itemsize != width:
        raise ValueError(
            f"[{what}] {dtype} has {width} bytes a value, but the array is of {array.dtype}"
        )
    strides = None
    if not array.flags.c_contiguous:
        if any(step % width for step in array.strides):
            raise ValueError(
                f"[{what}] strides must be whole elements of {width} bytes, got {array.strides} "
                "bytes; copy the array first"
            )
        strides = ctypes.cast(
            lib.axes(tuple(step // width for step in array.strides)),
            ctypes.POINTER(ctypes.c_int64),
        )
    return lib.Tensor(
        array.__array_interface__["data"][0], _NUMBERS[dtype], array.ndim, shape, strides
    )


def whole_tensor(what: str, array: np.ndarray, dtype: str) -> lib.Tensor:
    """The same, with the array's own shape."""
    shape = ctypes.cast(lib.axes(array.shape), ctypes.POINTER(ctypes.c_int64))
    return tensor_of(what, array, dtype, shape)


def stored_dtype(what: str, array: np.ndarray, dtype: Any) -> str:
    """The dtype of an array; a given one may only say that 16 bits are those of bf16."""
    if dtype is None:
        return _NAMES.get(array.dtype) or dtype_name(what, array.dtype)
    name = dtype_name(what, dtype)
    if name == "bf16" and array.dtype in (np.uint16, np.int16):
        return name
    if dtype_name(what, array.dtype) != name:
        raise ValueError(
            f"[{what}] the array is of {array.dtype}, not {name}; dtype= is for bf16 in uint16"
        )
    return name
