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
    again = metadata(tool, "c.tuck")["source"]
    assert {key: again[key] for key in said} == said
    np.testing.assert_array_equal(tool.unpacked("c.tuck"), values)


TYPED = {
    "scale_factor": np.float64(100000.0),
    "add_offset": np.float32(0.1),
    "zero": np.float32(-0.0),
    "odd": np.float32(7.038531e-26),  # rounded twice, by f64, it is another
    "half": np.array([1.0, 0.333], "f2"),
    "nothing": np.float64("nan"),
    "ends": np.array([-np.inf, np.inf], "f4"),
    "wide": np.array([1e16, 2.0, 1e300]),
    "flag_values": np.array([-1, 0, 1], "i1"),
    "flag_masks": np.array([1, 2, 128], "u1"),
    "valid_range": np.array([0.0, 200.0]),
    "missing_value": np.float32(7.0),
    "orders": np.array([-(2**63), 2**63 - 1]),
    "largest": np.array([0, 2**64 - 1], "u8"),
    "small": np.array([3], "i2"),
    "units": "m2 s-2",
}


def same_attributes(found, wanted):
    """The types and the bits; netCDF has no scalars, so that lists of one are as good."""
    assert set(found) >= set(wanted)
    for name, value in wanted.items():
        if isinstance(value, str):
            assert found[name] == value
            continue
        value, back = np.atleast_1d(value), np.atleast_1d(found[name])
        assert (back.dtype, back.tobytes()) == (value.dtype, value.tobytes()), name


@pytest.mark.parametrize("dtype", ["i2", "u2", "f4", "f8"])
def test_attributes_keep_their_types(tool, dtype):
    h5py = pytest.importorskip("h5py")
    fill = {"_FillValue": np.array([99], dtype)}
    with h5py.File(tool.folder / "a.nc", "w") as file:
        file["z"] = (np.arange(2 * 8 * 8) % 50).astype(dtype).reshape(2, 8, 8)
        file["z"].attrs.update(TYPED | fill)
        file.attrs.update({"version": np.float64(2.0), "cycle": np.int16(4)})
    tool.run("pack", "a.nc", "-o", "a.tuck", "--rename", "z=height")
    said = metadata(tool, "a.tuck")["source"]["array_attributes"]["height"]
    assert isinstance(said["scale_factor"], float) and isinstance(said["wide"][1], float)
    assert said["flag_values"] == [-1, 0, 1] and said["nothing"] == "nan"
    tool.run("unpack", "a.tuck", "-o", "b.h5")
    tool.run("convert", "a.tuck", "-o", "copy.tuck", "--codec", "raw")
    tool.run("convert", "copy.tuck", "-o", "c.h5")
    for name in ("b.h5", "c.h5"):
        with h5py.File(tool.folder / name) as file:
            same_attributes(file["height"].attrs, TYPED | fill)
            same_attributes(file.attrs, {"version": np.float64(2.0), "cycle": np.int16(4)})


def test_metadata_without_types_give_types_that_hold_the_numbers(tool):
    h5py = pytest.importorskip("h5py")
    np.save(tool.folder / "x.npy", np.zeros((2, 3, 3), np.uint16))
    of_array = {"scale_factor": 100000.0, "steps": [1.0, 2.0], "levels": [1, 2], "far": [1, 2**40]}
    of_array |= {"flag_values": [-1, 0, 1], "valid_range": [0, 200], "valid_max": 1.5}
    of_array |= {"_FillValue": 255.0, "tiny": 7}
    said = {"array_attributes": {"data": of_array}}
    said |= {"array_attribute_types": {"data": {"tiny": "i99", "far": "u8", "levels": 3}}}
    for types in (said, {"array_attributes": {"data": of_array}, "array_attribute_types": [1]}):
        given = json.dumps({"source": types})
        tool.run("pack", "x.npy", "-o", "x.tuck", "-f", "--metadata", given)
        tool.run("unpack", "x.tuck", "-o", "x.h5", "-f")
        with h5py.File(tool.folder / "x.h5") as file:
            (name,) = file
            kinds = {key: value.dtype.str[1:] for key, value in file[name].attrs.items()}
        assert kinds == {
            "scale_factor": "f8",
            "steps": "f8",
            "levels": "i4",
            "far": "i8",
            "flag_values": "i4",  # u2 has no -1
            "valid_range": "u2",
            "valid_max": "f8",
            "_FillValue": "u2",
            "tiny": "i4",
        }


def test_hostile_metadata_does_not_stop_unpacking(tool):
    np.save(tool.folder / "x.npy", np.zeros((2, 3, 3), np.float32))
    odd = {"": 1, "nested": {"a": [1]}, "none": None, "yes": True, "mixed": [1, "a"], "no": []}
    odd |= {"_FillValue": "text", "long": "x" * 200_000, "big": 1e300, "minus": -1.5}
    kinds = {"big": "f16", "minus": "u8", "none": "f32", "long": "i8", "mixed": "bf16", "": "f32"}
    kinds |= {"_FillValue": "bool", "nested": {"a": "i8"}, "yes": None}
    for said in (
        {"attributes": odd, "array_attributes": {"x": odd, "y": odd, "data": odd, "image": odd}},
        {"attributes": odd, "attribute_types": kinds, "array_attributes": {"data": odd}}
        | {"array_attribute_types": {"data": kinds}},
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


@pytest.mark.parametrize("other", ["a/b", "/a", "a/./b/c"])
def test_datasets_within_datasets_are_refused_by_name(tool, other):
    np.savez(tool.folder / "x.npz", **{"a": np.zeros(4, np.float32), other: np.ones(4, np.float32)})
    tool.run("pack", "x.npz", "-o", "x.tuck")
    said = tool.run("unpack", "x.tuck", "-o", "x.h5", exit=2).stderr
    assert "cannot hold both" in said and "'a'" in said and f"'{other}'" in said
    assert not (tool.folder / "x.h5").exists()
