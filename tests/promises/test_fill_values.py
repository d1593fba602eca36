"""Fill values come back exactly, whatever happens to a file, and no figure is about them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from program import ROOT

LOSSY = ["dct_quant(rate=6)", "dct_chop(keep=5)", "block_quant(bits=8)", "bounded(abs=0.01) | zstd"]


def ocean(samples: int = 20, fill: float = 1e20) -> tuple[np.ndarray, np.ndarray]:
    """A field of 280 to 300 with islands, land at two edges, and a sample that is all land; where that is."""
    t, y, x = np.meshgrid(*map(np.arange, (samples, 40, 56)), indexing="ij")
    field = (290 + 6 * np.sin(y / 9 + t / 5) + 4 * np.cos(x / 11)).astype(np.float32)
    land = (y < 3) | (x > 52) | ((y - 20) ** 2 + (x - 30) ** 2 < 60) | (t == 7)
    land[3] = False
    field[land] = fill
    return field, land


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return 20 * np.log10(np.ptp(a)) - 10 * np.log10(np.mean((a - b) ** 2))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("fill", [1e20, np.nan, -999.0, np.inf])
def test_fill_values_come_back_and_their_neighbours_are_kept(tool, codec, fill):
    field, land = ocean(fill=fill)
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", codec, "--fill", fill)
    back = tool.unpacked("x.tuck")
    assert same_bits(back[land], field[land])
    assert np.abs(back[~land] - field[~land]).max() < 1.5
    # A file without holes is not much better.
    whole, _ = ocean()
    whole[land] = 290
    np.save(tool.folder / "y.npy", whole)
    tool.run("pack", "y.npy", "-o", "y.tuck", "--codec", codec)
    assert psnr(field[~land], back[~land]) > psnr(whole[~land], tool.unpacked("y.tuck")[~land]) - 3


def test_figures_leave_fill_values_out(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    done = tool.run("pack", "x.npy", "-o", "x.tuck", "--fill", 1e20, "--target-psnr", 50, "--json")
    said = json.loads(done.stdout)[0]["arrays"][0]
    true = psnr(field[~land], tool.unpacked("x.tuck")[~land])
    assert said["psnr_db"] == pytest.approx(true, abs=1e-6)
    assert said["fill_values"] == land.sum()
    assert 49 < true < 60
    for more in ((), ("--fill", 1e20)):  # the file names them, too
        diff = json.loads(tool.run("diff", "x.tuck", "x.npy", "--json", *more).stdout)[0]
        assert diff["psnr_db"] == pytest.approx(true, abs=1e-6)
        assert diff["range"] == np.ptp(field[~land].astype(np.float64))
        assert (diff["fill_values"], diff["changed_not_finite"]) == (land.sum(), 0)
        assert 0.9 < diff["ssim"] <= 1
    info = json.loads(tool.run("info", "x.tuck", "--json").stdout)[0]
    assert [array["name"] for array in info["arrays"]] == ["data"]
    assert info["arrays"][0]["fill"] == ["1e+20"]


def test_a_changed_fill_value_is_counted(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    field[land] = 0
    np.save(tool.folder / "y.npy", field)
    diff = tool.run("diff", "y.npy", "x.npy", "--fill", 1e20, "--json")
    assert json.loads(diff.stdout)[0]["changed_not_finite"] == land.sum()


@pytest.mark.parametrize("bound", [0.5, 1e-3, 0])
def test_a_bound_holds_beside_fill_values(tool, bound):
    field, land = ocean(fill=np.nan)
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--fill", "nan", "--max-error", bound)
    back = tool.unpacked("x.tuck")
    assert np.isnan(back[land]).all()
    assert np.abs(back[~land].astype(np.float64) - field[~land]).max() <= bound


@pytest.mark.parametrize("fill", [0, 255, 128])
@pytest.mark.parametrize(
    "how", [("--max-error", 2), ("--target-psnr", 25), ("--codec", "dct_quant(rate=2)")]
)
def test_valid_bytes_do_not_become_fill_values(tool, how, fill):
    y, x = np.mgrid[:64, :64]
    waves = 4 * np.sin(x / 5 + np.arange(50)[:, None, None]) * np.cos(y / 6)
    values = waves + np.random.default_rng(0).normal(0, 2, (50, 64, 64))
    values = {0: np.clip(6 + values, 1, 255), 255: np.clip(249 + values, 0, 254), 128: 128 + values}
    values = values[fill].astype(np.uint8)
    values[values == fill] -= np.uint8(1) if fill else np.uint8(0)
    values[:, :20, :20] = fill
    np.save(tool.folder / "a.npy", values)
    tool.run("pack", "a.npy", "-o", "a.tuck", "--fill", fill, *how)
    back = tool.unpacked("a.tuck")
    np.testing.assert_array_equal(back == fill, values == fill)
    if how[0] == "--max-error":
        assert np.abs(back.astype(int) - values.astype(int)).max() <= 2
    # Nor where a conversion copies chunks, or cuts them.
    tool.run("convert", "a.tuck", "-o", "b.tuck", "--samples-per-chunk", 3)
    np.testing.assert_array_equal(tool.unpacked("b.tuck") == fill, values == fill)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fill", [0, -1.5])
@pytest.mark.parametrize(
    "how",
    [("--max-error", 1e-2), ("--codec", "dct_quant(rate=2)"), ("--codec", "block_quant(bits=4)")],
)
def test_valid_numbers_do_not_become_fill_values(tool, how, fill, dtype):
    values = np.random.default_rng(0).normal(0, 0.02, (50, 64, 64)) + fill
    values = values.astype(dtype)
    values[values == fill] = dtype(fill + 0.5)
    values[:, :20, :20] = fill
    values[:, 40:44] = fill + np.finfo(dtype).smallest_normal  # rounds to it, or is next to it
    valid = values != fill
    np.save(tool.folder / "a.npy", values)
    tool.run("pack", "a.npy", "-o", "a.tuck", "--fill", fill, *how)
    back = tool.unpacked("a.tuck")
    assert (back[values == fill] == fill).all()
    assert (back[valid] != fill).all()
    if how[0] == "--max-error":
        assert np.abs(back.astype(np.float64) - values.astype(np.float64)).max() <= 1e-2


def test_several_fill_values_and_arrays(tool):
    field, land = ocean()
    field[:, 39, ::3] = -999
    field[5, 10:14, 40:44] = np.nan
    np.savez(tool.folder / "x.npz", a=field, b=-field, label=np.arange(20))
    fills = (
        "--fill",
        "a=1e20",
        "--fill",
        "b=-1e20",
        "--fill",
        "-999",
        "--fill",
        "nan",
        "--fill",
        999,
    )
    tool.run("pack", "x.npz", "-o", "x.tuck", "--codec", "dct_quant(rate=6)", *fills)
    tool.run("unpack", "x.tuck", "-o", "out")
    marked = land | (field == -999) | np.isnan(field)
    for name, values in (("a", field), ("b", -field)):
        back = np.load(tool.folder / "out" / f"{name}.npy")
        np.testing.assert_array_equal(back[marked], values[marked])
        assert np.abs(back[~marked] - values[~marked]).max() < 1.5
    assert {path.name for path in (tool.folder / "out").iterdir()} == {
        "a.npy",
        "b.npy",
        "label.npy",
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float16, np.float64])
def test_fill_values_of_other_dtypes(tool, dtype):
    field, land = ocean(fill=0)
    whole = np.issubdtype(dtype, np.integer)
    values = np.where(land, 255 if whole else -500, field - 200).astype(dtype)
    np.save(tool.folder / "x.npy", values)
    codec = "zstd" if dtype == np.int16 else "dct_quant(rate=6)"
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", codec, "--fill", 255 if whole else -500)
    back = tool.unpacked("x.tuck")
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back[land], values[land])
    assert np.abs(back[~land].astype(float) - values[~land].astype(float)).max() < 2


def test_verbs_that_change_files_keep_them(tool):
    field, land = ocean()
    np.save(tool.folder / "a.npy", field[:12])
    np.save(tool.folder / "b.npy", field[12:])
    codec = ("--codec", "dct_quant(rate=6)", "--fill", 1e20, "--samples-per-chunk", 5)
    tool.run("pack", "a.npy", "-o", "x.tuck", *codec)
    tool.run("pack", "b.npy", "-o", "x.tuck", "--append", "--fill", 1e20)
    tool.run(
        "pack",
        "a.npy",
        "b.npy",
        "-o",
        "s.tuck",
        "--rename",
        "a=x",
        *codec,
        "--shards",
        3,
        exit=None,
    )

    def holds(file: str) -> bool:
        back = tool.unpacked(file)
        return same_bits(back[land], field[land]) and np.abs(back - field)[~land].max() < 1.5

    assert holds("x.tuck")
    tool.run("convert", "x.tuck", "-o", "copy.tuck")
    assert holds("copy.tuck")
    tool.run("convert", "copy.tuck", "-o", "shards.tuck", "--shards", 2)
    assert holds("shards.tuck")
    tool.run("convert", "shards.tuck", "-o", "exact.tuck", "--codec", "zstd")
    assert holds("exact.tuck")
    tool.run("convert", "exact.tuck", "-o", "again.tuck", "--target-psnr", 55)
    assert holds("again.tuck")
    tool.run("verify", "again.tuck")
    tool.run("repair", "again.tuck", "-o", "repaired.tuck")
    assert holds("repaired.tuck")
    tool.run("slice", "x.tuck", "5:9", "-o", "some.npy")
    np.testing.assert_array_equal(
        np.load(tool.folder / "some.npy")[land[5:9]], field[5:9][land[5:9]]
    )


def test_an_append_with_other_fill_values_is_refused(tool):
    field, _ = ocean()
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=6)", "--fill", 1e20)
    done = tool.run("pack", "x.npy", "-o", "x.tuck", "--append", exit=2)
    assert "--fill data=1e+20" in done.stderr


def test_resume_keeps_fill_values_and_refuses_others(tool):
    field, land = ocean(2000)
    np.save(tool.folder / "x.npy", field)
    args = ("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=6)")
    tool.run(*args[:3], "whole.tuck", *args[4:], "--fill", 1e20)
    whole = (tool.folder / "whole.tuck").read_bytes()
    # What a stopped run leaves: the start of the file, under its other name, with the inputs' identity.
    run = tool.start(*args, "--fill", 1e20)
    partial = tool.folder / "x.tuck.partial"
    while run.poll() is None and not (partial.exists() and partial.stat().st_size > 100_000):
        pass
    run.kill()
    run.communicate()
    if not partial.exists():
        pytest.skip("the run ended before it could be stopped")
    done = tool.run(*args, "--resume", "--fill", -1, exit=2)
    assert "was begun with something else" in done.stderr
    tool.run(*args, "--resume", "--fill", 1e20)
    assert (tool.folder / "x.tuck").read_bytes() == whole
    assert same_bits(tool.unpacked("x.tuck")[land], field[land])


def test_wrong_fill_values_are_refused(tool):
    np.save(tool.folder / "x.npy", np.zeros((4, 8, 8), np.uint8))
    for fill in ("1e20", "0.5", "nan", "data=-1", "y=1", "one", "", "=1"):
        done = tool.run("pack", "x.npy", "-o", "x.tuck", "--fill", fill, exit=2)
        assert "--fill" in done.stderr, done.stderr


# ---- what is said where fill values are not named -----------------------------------------------


def test_a_fill_value_that_nobody_names_is_said_before_packing(tool):
    field, _ = ocean()
    np.save(tool.folder / "x.npy", field)
    done = tool.run("pack", "x.npy", "--dry-run", "--codec", "dct_quant(rate=6)")
    assert "values of 'data' that were tried" in done.stderr and "--fill 1e+20" in done.stderr
    mostly, land = ocean()
    mostly[:, ::2] = 1e20  # more than half of all values
    np.save(tool.folder / "y.npy", mostly)
    done = tool.run("pack", "y.npy", "--dry-run", "--codec", "dct_quant(rate=6)")
    assert "are 1e+20, far from the others" in done.stderr
    for codec in ("zstd", "raw"):  # nothing is lost
        assert tool.run("pack", "x.npy", "--dry-run", "--codec", codec).stderr == ""
    assert (
        tool.run("pack", "x.npy", "--dry-run", "--codec", "dct_quant", "--fill", 1e20).stderr == ""
    )


@pytest.mark.parametrize("kind", ["normal", "lognormal", "uniform", "sparse", "constant"])
def test_usual_values_are_no_outliers(tool, kind):
    random = np.random.default_rng(3)
    values = {
        "normal": random.standard_normal((20, 64, 64)),
        "lognormal": random.lognormal(0, 1.5, (20, 64, 64)),
        "uniform": random.random((20, 64, 64)),
        "sparse": np.maximum(random.standard_normal((20, 64, 64)) - 1, 0),
        "constant": np.full((20, 64, 64), 7.0),
    }[kind]
    np.save(tool.folder / "x.npy", values.astype(np.float32))
    assert tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=6)").stderr == ""


def test_lost_values_are_counted(tool):
    field, _ = ocean()
    field[field == 1e20] = 290
    field[4, 10, 10] = np.nan
    field[9, 20, 20] = -np.inf
    np.save(tool.folder / "x.npy", field)
    done = tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=6)", "--json")
    said = json.loads(done.stdout)[0]["arrays"][0]
    back = tool.unpacked("x.tuck")
    finite = np.isfinite(field)
    changed = ~finite & ~((field == back) | (np.isnan(field) & np.isnan(back)))
    assert said["lost_values"] == (finite & ~np.isfinite(back)).sum() > 0
    assert said["changed_not_finite"] == changed.sum()
    assert f"{said['lost_values']} finite values came back as NaN or infinity" in done.stderr
    assert "--fill nan" in done.stderr
    done = tool.run("pack", "x.npy", "-o", "y.tuck", "--codec", "dct_quant(rate=6)", *("--fill", "nan"),
                    *("--fill", "-inf"))  # fmt: skip
    assert done.stderr == ""
    assert np.array_equal(np.isfinite(tool.unpacked("y.tuck")), finite)


def test_huge_f64_are_counted(tool):
    values = np.add.outer(np.arange(30.0), np.add.outer(np.arange(16.0), np.arange(16.0)))
    values[11, 3, 3] = 1e300
    np.save(tool.folder / "x.npy", values)
    for codec in ("dct_quant(rate=8)", "dct_chop(keep=4)", "block_quant(bits=8)"):
        done = tool.run("pack", "x.npy", "-o", "x.tuck", "-f", "--codec", codec, "--json")
        said = json.loads(done.stdout)[0]["arrays"][0]
        back = tool.unpacked("x.tuck")
        assert said["lost_values"] == (~np.isfinite(back)).sum()
    done = tool.run("pack", "x.npy", "-o", "y.tuck", "--max-error", 0.5)
    assert np.abs(tool.unpacked("y.tuck") - values).max() <= 0.5


# ---- real files ---------------------------------------------------------------------------------


def real(name: str) -> Path:
    path = (
        Path(os.environ.get("TUCKFOLD_DATA", ROOT.parent / "shared" / "data")) / "sci_float" / name
    )
    if not path.exists():
        pytest.skip(f"no sci_float/{name} under TUCKFOLD_DATA")
    return path


def test_sea_temperatures_are_kept(tool):
    path = real("ostia_monthly.nc")
    select = ("--select", "surface_temperature")
    tool.run("pack", path, *select, "-o", "exact.tuck")
    exact = tool.unpacked("exact.tuck")
    sea = np.isfinite(exact) & (exact < 1e19)
    assert 0.5 < sea.mean() < 0.8
    done = tool.run("pack", path, *select, "-o", "x.tuck", "--target-psnr", 60, "--json")
    back = tool.unpacked("x.tuck")
    assert same_bits(back[~sea], exact[~sea])
    said = json.loads(done.stdout)[0]["arrays"][0]
    assert said["psnr_db"] == pytest.approx(psnr(exact[sea], back[sea]), abs=1e-6)
    assert said["fill_values"] == (~sea).sum()
    assert said["psnr_db"] > 59
    assert np.abs(back[sea] - exact[sea]).max() < 2


def test_what_holes_cost_a_bound(tool):
    """The table of docs/codecs/bounded.md: what is stored unchanged around NaN and around large values."""
    y, x = np.mgrid[:128, :512]
    smooth = (15 + 10 * np.sin(y / 40) * np.cos(x / 50)).astype(np.float32)[None]
    spread = np.random.default_rng(0).random(smooth.shape) < 0.38
    alone = np.zeros(smooth.shape, bool)
    alone[0, 5, 5] = True

    def packed(holes: np.ndarray, value: float, codec: str, *fill) -> int:
        field = smooth.copy()
        field[holes] = value
        np.save(tool.folder / "x.npy", field)
        tool.run("pack", "x.npy", "-o", "x.tuck", "-f", "-q", "--codec", codec, *fill)
        (array,) = json.loads(tool.run("info", "x.tuck", "--json").stdout)[0]["arrays"]
        back = tool.unpacked("x.tuck")
        assert same_bits(back[holes], field[holes])
        assert np.abs(back[~holes] - field[~holes]).max() <= 0.01
        return array["packed_bytes"]

    bits, both, whole = "bounded(abs=0.01)", "bounded(abs=0.01) | zstd", smooth.nbytes
    none = packed(np.zeros_like(alone), 0, bits)
    for value in (np.nan, np.inf, 1e20, 32768):
        assert packed(spread, value, bits) >= whole
        assert 4096 - 512 < packed(alone, value, bits) - none < 4096 + 64  # a chunk of 1024
    for value in (np.nan, -np.inf):
        assert packed(spread, value, both) < whole / 1.5
        assert packed(alone, value, both) < packed(np.zeros_like(alone), 0, both) + 64
    # A part, before zstd.
    part = "bounded(abs=0.01, codes=bytes)"
    more = packed(alone, 1e20, part) - packed(np.zeros_like(alone), 0, part)
    assert 16_929 * 4 * 0.5 < more <= 16_929 * 4
    for value in (np.nan, 1e20, -32768):
        for codec in (bits, both):
            assert packed(spread, value, codec, "--fill", value) < whole / 3


def test_a_fill_value_that_the_dtype_does_not_have_is_said(tool):
    h5py = pytest.importorskip("h5py")
    values = np.clip(ocean(4, 255)[0], 0, 255).astype("u1")
    with h5py.File(tool.folder / "a.nc", "w") as file:
        for name, fill in (("foreign", np.int8(-1)), ("text", "255"), ("own", np.int16(255))):
            file[name] = values
            file[name].attrs["_FillValue"] = fill
    codec = ("--codec", "dct_quant(rate=4)")
    for name, note in (
        ("foreign", "_FillValue -1 is no value of u8"),
        ("text", "_FillValue 255 is a text"),
        ("own", ""),
    ):
        wanted = f"[pack] '{name}': {note}, so no value is taken as missing by it; if some are, name them with --fill {name}=VALUE"
        for words, told in (
            (codec, True),
            ((*codec, "--quiet"), False),
            (("--codec", "zstd"), False),
        ):
            done = tool.run("pack", "a.nc", "-o", "a.tuck", "-f", "--select", name, *words)
            notes = [line for line in done.stderr.splitlines() if "_FillValue" in line]
            assert notes == ([f"tuckfold: warning: {wanted}"] if told and note else []), words
    tool.run("pack", "a.nc", "-o", "b.tuck", "--select", "foreign", *codec, "--fill", "foreign=255")
    assert ((tool.unpacked("b.tuck") == 255) == (values == 255)).all()
