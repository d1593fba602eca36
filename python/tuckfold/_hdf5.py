"""HDF5 files with chunks that are packed by Tuckfold, through h5py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tuckfold import _library as lib
from tuckfold._codec import _dtype, plan_of
from tuckfold._spec import CodecSpec, spec_of

FILTER = 461  #: the filter's number, in HDF5's range for testing
_OF_DATASET = 0xFFFFFFFF  # in place of a dtype: the filter looks it up


def hdf5_plugin_path() -> str:
    """The folder for ``HDF5_PLUGIN_PATH``, with which every HDF5 program reads such files.

    >>> tuckfold.hdf5_plugin_path().endswith("hdf5")
    True
    """
    return str(lib.library_path("hdf5"))


def hdf5(
    spec: str | CodecSpec, chunks: Sequence[int] | None = None, dtype: Any = None
) -> dict[str, Any]:
    """Arguments of h5py's ``create_dataset``, for a dataset whose chunks are packed.

    Programs that read the file need the plug-in alone: see :func:`hdf5_plugin_path`. h5py, if it is
    imported, finds it after this call.

    The filter looks up dtype and chunks where the dataset is created. That fails if they are not those that
    are given here, if the codec does not take them, or if another filter comes first: ``shuffle=True``.

    Args:
        spec: the codec, or its text.
        chunks: the sides of a chunk; h5py chooses them unless given.
        dtype: of the dataset; needed only for ``"bf16"`` in whole numbers of 16 bits and for ``"bool"``.

    Raises:
        ValueError: the codec does not take such chunks, of the dtype, or of any unless one is given.

    >>> tuckfold.hdf5("dct_quant(rate=4)", (1, 64, 64))["compression"]
    461

    ``file.create_dataset("x", data=x, **tuckfold.hdf5("dct_quant(rate=4)", (1, 64, 64)))``
    """
    text = str(spec_of(spec))
    if isinstance(spec, str):
        short = "".join(spec.split())  # h5repack of HDF5 1.10 takes 20 numbers at most
        text = short if len(short) < len(text) and str(spec_of(short)) == text else text
    name = None if dtype is None else _dtype("hdf5", dtype)
    sides = () if chunks is None else tuple(int(n) for n in chunks)
    if chunks is not None and (not sides or min(sides) < 1):
        raise ValueError(f"[hdf5] chunks must have sides of 1 or more, got {sides}")
    if sides:  # HDF5 would refuse them without a word
        _check_chunks(text, name, sides)
    data = text.encode()
    values = [1, _OF_DATASET if name is None else lib.DTYPES.index(name), len(sides)]
    for side in sides:
        values += [side & 0xFFFFFFFF, side >> 32]
    padded = data + bytes(-len(data) % 4)
    values.append(len(data))
    values += [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]
    h5py = sys.modules.get("h5py")
    if h5py is not None:
        _add_path(h5py)
    given = {"chunks": sides} if sides else {}
    return {**given, "compression": FILTER, "compression_opts": tuple(values)}


def _check_chunks(spec: str, dtype: str | None, sides: tuple[int, ...]) -> None:
    """Refuses chunks that the codec does not take, of any dtype unless one is given."""
    refused: ValueError | None = None
    for name in lib.DTYPES if dtype is None else (dtype,):
        try:
            plan_of(spec, name, sides)
            return
        except ValueError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _add_path(h5py: Any) -> None:
    path = hdf5_plugin_path().encode()
    known = [h5py.h5pl.get(i) for i in range(h5py.h5pl.size())]
    if path not in known:
        h5py.h5pl.prepend(path)
