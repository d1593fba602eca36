"""HDF5 files with chunks that are packed by Tuckfold, through h5py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tuckfold import _library as lib
from tuckfold._codec import _dtype, plan_of
from tuckfold._spec import CodecSpec, spec_of

FILTER = 461  #: the filter's number, in HDF5's range for testing


def hdf5_plugin_path() -> str:
    """The folder for ``HDF5_PLUGIN_PATH``, with which every HDF5 program reads such files.

    >>> tuckfold.hdf5_plugin_path().endswith("hdf5")
    True
    """
    return str(lib.library_path("hdf5"))


def hdf5(spec: str | CodecSpec, chunks: Sequence[int], dtype: Any = "f32") -> dict[str, Any]:
    """Arguments of h5py's ``create_dataset``, for a dataset whose chunks are packed.

    Programs that read the file need the plug-in alone: see :func:`hdf5_plugin_path`. h5py, if it is
    imported, finds it after this call.

    Args:
        spec: the codec, or its text.
        chunks: the sides of a chunk.
        dtype: of the dataset.

    Raises:
        ValueError: the codec does not take such chunks.

    >>> tuckfold.hdf5("dct_quant(rate=4)", (1, 64, 64))["compression"]
    461

    ``file.create_dataset("x", data=x, **tuckfold.hdf5("dct_quant(rate=4)", (1, 64, 64), x.dtype))``
    """
    text, name = str(spec_of(spec)), _dtype("hdf5", dtype)
    sides = tuple(int(n) for n in chunks)
    if not sides or min(sides) < 1:
        raise ValueError(f"[hdf5] chunks must have sides of 1 or more, got {sides}")
    plan_of(text, name, sides)  # refuses what HDF5 would refuse without a word
    data = text.encode()
    values = [1, lib.DTYPES.index(name), len(sides)]
    for side in sides:
        values += [side & 0xFFFFFFFF, side >> 32]
    padded = data + bytes(-len(data) % 4)
    values.append(len(data))
    values += [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]
    h5py = sys.modules.get("h5py")
    if h5py is not None:
        _add_path(h5py)
    return {"chunks": sides, "compression": FILTER, "compression_opts": tuple(values)}


def _add_path(h5py: Any) -> None:
    path = hdf5_plugin_path().encode()
    known = [h5py.h5pl.get(i) for i in range(h5py.h5pl.size())]
    if path not in known:
        h5py.h5pl.prepend(path)
