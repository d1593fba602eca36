"""What `pack --dask` says of its inputs before a cluster has to do with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tuckfold
from tuckfold._pack_dask import _warn_of_scale


def test_a_bound_of_scaled_numbers_is_explained(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        for name, dtype, factor in (("z", "f4", 10.0), ("one", "f4", 1.0), ("exact", "i2", 10.0)):
            file[name] = np.zeros((2, 4, 4), dtype)
            file[name].attrs["scale_factor"] = factor
        file["plain"] = np.zeros((2, 4, 4), "f4")
        inputs = {name: [("hdf5", "x.nc", name, file[name])] for name in file}
        with pytest.warns(tuckfold.DataWarning) as said:
            _warn_of_scale(inputs, 5)
    (one,) = said
    assert str(one.message) == (
        "[pack] 'z' has scale_factor 10: the bound 5 is one of stored numbers, and 50 of the values that "
        "netCDF readers make of them; give 0.5 for 5 of those"
    )
    said_so = {"source": {"array_attributes": {"x": {"scale_factor": 0.5}}}}
    tuckfold.save(tmp_path / "x.tuck", {"x": np.zeros((2, 4, 4), "f4")}, metadata=said_so)
    with tuckfold.open(tmp_path / "x.tuck") as file, pytest.warns(tuckfold.DataWarning, match="2.5 of the values"):  # fmt: skip
        _warn_of_scale({"x": [("tuck", str(tmp_path / "x.tuck"), "x", file["x"])]}, 5)
