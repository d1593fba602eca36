"""HDF5 files that unpack writes have the attributes that the inputs had, and name their fill values."""

import json

import numpy as np
import pytest
from test_fill_values import ocean

ATTRIBUTES = {
    "units": "K",
    "_FillValue": 1e20,
    "valid_range": [270.0, 310.5],
    "levels": [1, 2, 3],
    "odd": [1.5, "nan", "-inf"],
    "words": ["a", "b é"],
    "count": 9223372036854775807,
    "empty": "",
}


def metadata(tool, file: str) -> dict:
    (about,) = json.loads(tool.run("info", file, "--json").stdout)
    said = about["metadata"]
    return json.loads(said) if isinstance(said, str) else said


def test_fill_values_are_named_in_the_output(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    fills = ("--fill", 1e20, "--fill", "nan", "--fill", -5)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=6)", *fills)
    for verb in ("unpack", "convert"):
        tool.run(verb, "x.tuck", "-o", "x.h5", "-f")
        tool.run("pack", "x.h5", "-o", "again.tuck", "-f", "--codec", "dct_quant(rate=6)")
        # All three are missing values of the new file, without --fill.
        again = tool.run("info", "again.tuck").stdout
        assert all(value in again for value in ("1e+20", "nan", "-5"))
        np.testing.assert_array_equal(tool.unpacked("again.tuck")[land], field[land])


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "u2", "i4", "u1"])
def test_attributes_come_back_through_hdf5(tool, dtype):
    values = (np.arange(2 * 300 * 40) % 250).astype(dtype).reshape(2, 300, 40)
    np.save(tool.folder / "x.npy", values)
    fill = {"f2": 1000.0}.get(dtype, 1e20 if dtype[0] == "f" else 255)
    of_array = ATTRIBUTES | {"_FillValue": fill, "valid_range": [1, 200]}
    tool.run("pack", "x.npy", "-o", "a.tuck", "--codec", "zstd")
    name = json.loads(tool.run("info", "a.tuck", "--json").stdout)[0]["arrays"][0]["name"]
    said = {"attributes": {"title": "t", "n": 3}, "array_attributes": {name: of_array}}
    given = json.dumps({"source": said})
    tool.run("pack", "x.npy", "-o", "b.tuck", "--codec", "zstd", "--metadata", given)
    tool.run("unpack", "b.tuck", "-o", "b.h5")
    tool.run("pack", "b.h5", "-o", "c.tuck", "--codec", "zstd")
    assert metadata(tool, "c.tuck")["source"] == said
    np.testing.assert_array_equal(tool.unpacked("c.tuck"), values)


def test_hostile_metadata_does_not_stop_unpacking(tool):
    np.save(tool.folder / "x.npy", np.zeros((2, 3, 3), np.float32))
    odd = {"": 1, "nested": {"a": [1]}, "none": None, "yes": True, "mixed": [1, "a"], "no": []}
    odd |= {"_FillValue": "text", "long": "x" * 200_000, "big": 1e300, "minus": -1.5}
    for said in (
        {"attributes": odd, "array_attributes": {"x": odd, "y": odd, "data": odd, "image": odd}},
        {"attributes": [1], "array_attributes": {"x": 3}},
        {"attributes": 3, "array_attributes": []},
        [],
    ):
        given = json.dumps({"source": said})
        (tool.folder / "m.json").write_text(given, "utf-8")
        tool.run("pack", "x.npy", "-o", "b.tuck", "-f", "--metadata", "@m.json")
        tool.run("unpack", "b.tuck", "-o", "b.h5", "-f")
        tool.run("pack", "b.h5", "-o", "c.tuck", "-f")


def test_large_arrays_are_compressed_and_odd_shapes_are_kept(tool):
    for shape in ((0, 4), (7,), (1, 1, 1), (5, 700, 900), (1, 3_000_000), (40000, 2, 3)):
        values = (np.arange(np.prod(shape, dtype=int)) // 50).astype(np.int32).reshape(shape)
        np.save(tool.folder / "x.npy", values)
        tool.run("pack", "x.npy", "-o", "x.tuck", "-f", "--samples-per-chunk", 3)
        tool.run("unpack", "x.tuck", "-o", "x.h5", "-f")
        tool.run("pack", "x.h5", "-o", "y.tuck", "-f")
        back = tool.unpacked("y.tuck")
        np.testing.assert_array_equal(back, values)
        assert back.shape == shape
        if values.nbytes > 1 << 20:
            assert (tool.folder / "x.h5").stat().st_size < values.nbytes / 10
