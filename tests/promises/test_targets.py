"""Targets are judged over all samples: a bound is kept, a goal that is missed is said."""

import json
import os
import re
import signal
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from program import ROOT

MISSED = 6  # exit status of --strict


def noise(samples: int = 200, loud: int | None = None) -> np.ndarray:
    values = np.random.default_rng(0).random((samples, 64, 64)).astype(np.float32)
    if loud is not None:
        values[loud] *= 100
    return values


def smooth(samples: int = 60) -> np.ndarray:
    t, y, x = np.meshgrid(*map(np.arange, (samples, 48, 40)), indexing="ij")
    field = np.sin(t / 9) + np.cos(y / 7) * np.sin(x / 5)
    return (field + 0.01 * np.random.default_rng(1).standard_normal(field.shape)).astype(np.float32)


def easy_ends(samples: int = 400) -> np.ndarray:
    """Noise, but for the first and the last sample, which a trial of two samples takes."""
    values = noise(samples)[:, :48, :40].copy()
    values[0, :, 4:] = values[-1, :, 4:] = 0
    return values


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(divide="ignore"):
        return 20 * np.log10(np.ptp(a)) - 10 * np.log10(np.mean((a - b) ** 2))


def packed(tool, *args, **kwargs) -> tuple[dict, str]:
    """What pack or convert says of the first array with --json, and its warnings."""
    done = tool.run(*args, "--json", **kwargs)
    return json.loads(done.stdout)[0]["arrays"][0], done.stderr


def test_a_psnr_is_that_of_all_samples(tool):
    values = smooth()
    np.save(tool.folder / "x.npy", values)
    said, _ = packed(tool, "pack", "x.npy", "-o", "x.tuck", "--target-psnr", 45)
    true = psnr(values, tool.unpacked("x.tuck"))
    assert said["psnr_db"] == pytest.approx(true, abs=1e-6)
    assert said["target"]["figure"] == "psnr_db" and said["target"]["asked"] == 45
    assert said["target"]["reached"] == pytest.approx(true, abs=1e-6)
    assert said["target"]["reaches"] == (true >= 45)
    assert true > 44


def test_a_missed_psnr_is_a_warning_and_an_exit_status_of_its_own(tool):
    values = easy_ends()
    np.save(tool.folder / "x.npy", values)
    args = ("pack", "x.npy", "--target-psnr", 60, "--trial-values", 4000)
    said, warnings = packed(tool, *args, "-o", "x.tuck")
    true = psnr(values, tool.unpacked("x.tuck"))
    assert true < 60 and not said["target"]["reaches"]
    assert said["target"]["reached"] == pytest.approx(true, abs=1e-6)
    assert f"a PSNR of {true:.2f} dB over all samples" in warnings
    assert "a PSNR of 60 dB was asked for" in warnings
    done = tool.run(*args, "-o", "y.tuck", "--strict", exit=MISSED)
    assert "y.tuck: 400 samples" in done.stdout
    assert (
        tool.run(*args, "-o", "z.tuck", "--strict", "--quiet", exit=MISSED).stderr.count("\n") == 1
    )
    # The file is whole anyway.
    assert (tool.folder / "y.tuck").read_bytes() == (tool.folder / "x.tuck").read_bytes()


@pytest.mark.parametrize("ratio", [3, 8, 16, 25])
def test_a_ratio_is_that_of_the_file(tool, ratio):
    np.save(tool.folder / "x.npy", smooth(400))
    said, warnings = packed(tool, "pack", "x.npy", "-o", "x.tuck", "--target-ratio", ratio)
    info = json.loads(tool.run("info", "x.tuck", "--json").stdout)[0]["arrays"][0]
    assert said["target"]["reached"] == pytest.approx(info["bytes"] / info["packed_bytes"])
    assert said["ratio"] == said["target"]["reached"] >= ratio
    assert said["target"]["reaches"] and warnings == ""


def test_a_missed_ratio_is_said(tool):
    values = easy_ends()
    np.save(tool.folder / "x.npy", values)
    args = ("pack", "x.npy", "--target-ratio", 20, "--trial-values", 4000)
    said, warnings = packed(tool, *args, "-o", "x.tuck")
    assert said["target"]["reached"] < 20
    assert not said["target"]["reaches"]
    assert "a ratio of 20 was asked for" in warnings
    tool.run(*args, "-o", "y.tuck", "--strict", exit=MISSED)


def test_ratio_lines_are_against_the_values_of_the_input(tool):
    values = (smooth() * 3000 + 8000).astype(np.uint16)
    np.save(tool.folder / "x.npy", values)
    text = tool.run("pack", "x.npy", "-o", "x.tuck").stdout
    size = (tool.folder / "x.tuck").stat().st_size
    assert float(re.search(r"\((\d+\.\d+)x\)", text)[1]) == pytest.approx(
        values.nbytes / size, abs=0.006
    )
    said, _ = packed(tool, "pack", "x.npy", "-o", "y.tuck", "--target-ratio", 4)
    info = json.loads(tool.run("info", "y.tuck", "--json").stdout)[0]["arrays"][0]
    assert said["ratio"] == pytest.approx(values.nbytes / info["packed_bytes"])
    assert said["ratio"] >= 4


@pytest.mark.parametrize("shards", [0, 2])
def test_one_loud_plane_keeps_the_bound(tool, shards):
    values = noise(loud=131)
    np.save(tool.folder / "x.npy", values)
    more = ("--shards", shards) if shards else ()
    args = ("x.npy", "-o", "x.tuck", "--max-error", 0.2, "--trial-values", 100000)
    said, _ = packed(tool, "pack", *args, *more)
    true = np.abs(values.astype(np.float64) - tool.unpacked("x.tuck")).max()
    assert true <= 0.2
    assert said["target"] == {"figure": "max_error", "asked": 0.2, "reached": true, "reaches": True}


def test_an_outlier_in_one_sample_of_thousands(tool):
    values = smooth(60)[:, :8, :8].repeat(50, 0)
    values[1717, 3, 3] = 1e6
    np.save(tool.folder / "x.npy", values)
    said, warnings = packed(
        tool, "pack", "x.npy", "-o", "x.tuck", "--target-psnr", 40, "--trial-values", 6400
    )
    back = tool.unpacked("x.tuck")
    assert said["psnr_db"] == pytest.approx(psnr(values, back), abs=1e-6)
    assert "values of 'data' range over 1e+06" in warnings  # a PSNR of that says nothing
    said, _ = packed(
        tool, "pack", "x.npy", "-o", "y.tuck", "--max-error", 0.01, "--trial-values", 6400
    )
    assert np.abs(values.astype(np.float64) - tool.unpacked("y.tuck")).max() <= 0.01
    # Where it is among the values tried, it is said before anything is packed.
    dry = tool.run("pack", "x.npy", "--dry-run", "--target-psnr", 40)
    assert (
        "1 of 192000 values of 'data' that were tried lie far from the others (1e+06)" in dry.stderr
    )


def test_a_codec_chosen_on_a_part_takes_the_rest(tool):
    """`bits` would pack the samples that are tried, and refuse one of the others."""
    values = np.random.default_rng(0).integers(0, 4, (500, 16, 16)).astype(np.uint8)
    values[250] = 255
    np.save(tool.folder / "x.npy", values)
    for target in (("--max-error", 0), ()):
        tool.run("pack", "x.npy", "-o", "x.tuck", "-f", *target, "--trial-values", 600)
        np.testing.assert_array_equal(tool.unpacked("x.tuck"), values)


def test_an_append_measures_what_is_added(tool):
    values = smooth(60)
    np.save(tool.folder / "a.npy", values[:30])
    np.save(tool.folder / "b.npy", values[30:] * 100)
    tool.run(
        "pack", "a.npy", "-o", "x.tuck", "--rename", "data=x", "--codec", "block_quant(bits=8)"
    )
    args = ("pack", "b.npy", "-o", "x.tuck", "--rename", "data=x", "--append")
    said, warnings = packed(tool, *args, "--max-error", 0.05)
    back = tool.unpacked("x.tuck")[30:]
    assert np.abs(values[30:] * 100.0 - back).max() <= 0.05
    assert said["codec"].startswith("block_quant(bits=8")
    assert said["stored_as_they_are"]["past_max_error"] > 0
    assert "are stored as they are: block_quant" in warnings
    said, warnings = packed(tool, *args, "--target-psnr", 90)
    back = tool.unpacked("x.tuck")[60:]
    assert said["target"]["reached"] == pytest.approx(psnr(values[30:] * 100, back), abs=1e-6)
    assert not said["target"]["reaches"]
    tool.run(*args, "--target-psnr", 90, "--strict", exit=MISSED)


@pytest.mark.parametrize("shards", [0, 2])
def test_convert_measures_all_samples(tool, shards):
    values = smooth()
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck")
    more = ("--shards", shards) if shards else ()
    said, _ = packed(tool, "convert", "x.tuck", "-o", "y.tuck", "--target-psnr", 45, *more)
    true = psnr(values, tool.unpacked("y.tuck"))
    assert said["psnr_db"] == said["target"]["reached"] == pytest.approx(true, abs=1e-6)
    said, _ = packed(tool, "convert", "x.tuck", "-o", "z.tuck", "--max-error", 1e-3, *more)
    true = np.abs(values.astype(np.float64) - tool.unpacked("z.tuck")).max()
    assert said["target"]["reached"] == true <= 1e-3
    tool.run(
        *("convert", "x.tuck", "-o", "w.tuck", "--target-ratio", 2, "--trial-values", 2000), *more
    )


def test_convert_says_what_is_missed(tool):
    values = easy_ends()
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck")
    args = ("convert", "x.tuck", "--target-psnr", 60, "--trial-values", 4000)
    said, warnings = packed(tool, *args, "-o", "y.tuck")
    assert not said["target"]["reaches"] and "[convert] 'data' has a PSNR of" in warnings
    tool.run(*args, "-o", "z.tuck", "--strict", exit=MISSED)


@pytest.mark.parametrize("shards", [0, 3])
def test_a_resumed_run_measures_what_the_stopped_one_packed(tool, shards):
    values = noise(3000)
    np.save(tool.folder / "x.npy", values)
    more = ("--shards", shards) if shards else ()
    args = ("pack", "x.npy", "-o", "x.tuck", "--target-psnr", 30, "--trial-values", 1000, *more)
    whole, _ = packed(tool, *(arg if arg != "x.tuck" else "whole.tuck" for arg in args))
    stopped = False
    for wait in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        run = tool.start(*args)
        time.sleep(wait)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        partial = tool.folder / "x.tuck.partial"
        if partial.exists() and (shards or partial.stat().st_size > 200_000):
            stopped = True
            break
        for left in tool.folder.glob("x*.tuck*"):
            left.unlink()
    if not stopped:
        pytest.skip("the run ended before it could be stopped")
    again, _ = packed(tool, *args, "--resume")
    assert again["target"]["reached"] == pytest.approx(whole["target"]["reached"], abs=1e-9)
    assert again["ratio"] == whole["ratio"]
    assert again["psnr_db"] == pytest.approx(psnr(values, tool.unpacked("x.tuck")), abs=1e-6)


def test_a_codec_for_all_that_suits_none_is_said(tool):
    np.save(tool.folder / "labels.npy", np.arange(100) % 10)
    done = tool.run("pack", "labels.npy", "-o", "x.tuck", "--codec", "bits(width=4)")
    assert "no array has such; 'data' is packed without loss" in done.stderr
    done = tool.run("pack", "labels.npy", "-o", "y.tuck", "--codec", "data=bits(width=4)")
    assert done.stderr == ""


def test_samples_that_a_codec_does_not_suit_are_said(tool):
    np.save(tool.folder / "x.npy", np.ones((5, 7, 13), np.float32))
    done = tool.run(
        *("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_chop(block=16, keep=8)"), exit=None
    )
    if done.returncode == 0:
        assert "5 of 5 samples of 'data' are stored as they are" in done.stderr
        assert "does not make 5x7x13 f32 smaller" in done.stderr
    else:
        assert done.returncode == 2 and "5x7x13" in done.stderr


def test_refusals_have_the_shape_of_the_input(tool):
    np.save(tool.folder / "x.npy", np.ones((5, 7, 13), np.float32))
    done = tool.run(
        "pack", "x.npy", "-o", "x.tuck", "--codec", "dct_chop(block=16, keep=16)", exit=2
    )
    assert "5x7x13" in done.stderr


def test_without_a_codec_the_smallest_exact_one_is_taken(tool):
    values = smooth()
    np.save(tool.folder / "x.npy", values)
    np.save(tool.folder / "u.npy", (values * 500 + 9000).astype(np.uint16))
    for name in ("x", "u"):
        tool.run("pack", f"{name}.npy", "-o", "d.tuck", "-f")
        sizes = {}
        for delta in ("", "none", "sub", "xor", "rows", "plane"):
            codec = f"shuffle(delta={delta}) | zstd(level=3)" if delta else "zstd"
            tool.run("pack", f"{name}.npy", "-o", "c.tuck", "-f", "--codec", codec)
            sizes[codec] = (tool.folder / "c.tuck").stat().st_size
        assert (tool.folder / "d.tuck").stat().st_size <= 1.02 * min(sizes.values()), sizes
        np.testing.assert_array_equal(tool.unpacked("d.tuck"), np.load(tool.folder / f"{name}.npy"))


# ---- against HDF5's filters ----------------------------------------------------------------------


def deflated(values: np.ndarray, samples: int) -> int:
    """Bytes of HDF5's shuffle and gzip filters, in chunks of as many samples, at h5py's level of 4."""
    flat = values.reshape(-1)
    step = samples * int(np.prod(values.shape[1:]))
    size = 0
    for at in range(0, flat.size, step):
        part = np.ascontiguousarray(flat[at : at + step])
        planes = np.ascontiguousarray(part.view(np.uint8).reshape(-1, flat.itemsize).T)
        size += len(zlib.compress(planes.tobytes(), 4))
    return size


REAL = {
    "A1B_north_america.nc": "air_temperature",
    "E1_north_america.nc": "air_temperature",
    "ostia_monthly.nc": "surface_temperature",
    "orca2_votemper.nc": "votemper",
    "cesm_cam-fv.T.3months.fpzip.nc": "T",
    "cesm_cam-fv.PRECT.60days.zfp1e-7.nc": "PRECT",
}


@pytest.mark.parametrize("name", REAL)
def test_without_a_codec_real_fields_are_smaller_than_with_shuffle_and_gzip(tool, name):
    path = (
        Path(os.environ.get("TUCKFOLD_DATA", ROOT.parent / "shared" / "data")) / "sci_float" / name
    )
    if not path.exists():
        pytest.skip(f"no sci_float/{name} under TUCKFOLD_DATA")
    tool.run("pack", path, "--select", REAL[name], "-o", "x.tuck")
    info = json.loads(tool.run("info", "x.tuck", "--json").stdout)[0]
    array = info["arrays"][0]
    # The values alone: the file has the attributes of the input as well.
    assert array["packed_bytes"] <= deflated(tool.unpacked("x.tuck"), array["samples_per_chunk"])


# ---- numbers that readers of netCDF multiply

NOTE = (
    "[{verb}] 'z' has scale_factor 10: the bound 5 is one of stored numbers, and 50 of the values that netCDF "
    "readers make of them; give 0.5 for 5 of those"
)


def test_a_bound_of_scaled_numbers_is_explained(tool):
    h5py = pytest.importorskip("h5py")
    values = np.round(smooth(4) * 1000 + 20000)
    with h5py.File(tool.folder / "a.nc", "w") as file:
        for name, dtype, factor in (("z", "u2", 10.0), ("same", "f4", 1), ("exact", "i2", 10.0)):
            file[name] = values.astype(dtype)
            file[name].attrs["scale_factor"] = factor
        file["words"] = values.astype("f4")
        file["words"].attrs["scale_factor"] = "ten"
    for words, told in (
        (("--max-error", 5), True),
        (("--max-error", 5, "--dry-run"), True),
        (("--max-error", 5, "--json"), True),
        (("--max-error", 5, "--quiet"), False),
        (("--max-error", 0), False),
        (("--codec", "z=bounded(abs=5) | zstd"), True),
        (("--codec", "z=bounded(rel=0.01) | zstd"), False),
        (("--target-psnr", 50, "--select", "z"), False),  # the same before and after a factor
        ((), False),
    ):
        done = tool.run("pack", "a.nc", "-o", "a.tuck", "-f", *words)
        notes = [line for line in done.stderr.splitlines() if "scale_factor" in line]
        wanted = ["tuckfold: warning: " + NOTE.format(verb="pack")] if told else []
        assert notes == wanted, words
    # The bound is as it was: one of what is stored.
    tool.run("pack", "a.nc", "-o", "b.tuck", "--select", "z", "--max-error", 5)
    errors = np.abs(tool.unpacked("b.tuck").astype("f8") - values)
    assert 1 < errors.max() <= 5
    done = tool.run("convert", "a.tuck", "-o", "c.tuck", "--select", "z", "--max-error", 5)
    assert NOTE.format(verb="convert") in done.stderr
    done = tool.run("choose", "a.nc", "--select", "z", "--max-error", 5)
    assert "has scale_factor 10: the bound 5 is one of stored numbers" in done.stderr
