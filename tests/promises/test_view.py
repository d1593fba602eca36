"""Pictures and their figures leave missing values out, and show arrays of files whose others do not fit."""

import json
import re

import numpy as np
import pytest
from test_fill_values import ocean, psnr

BLUE, RED = (112, 144, 192), (200, 30, 90)


def pixels(tool, png: str) -> np.ndarray:
    """3 x H x W, read by the tool itself."""
    tool.run("pack", png, "-o", "pixels.tuck", "-f", "--codec", "raw")
    return tool.unpacked("pixels.tuck")[0]


def count(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((picture == np.array(colour, np.uint8)[:, None, None]).all(axis=0).sum())


def view(tool, *args) -> dict:
    return json.loads(tool.run("view", *args, "-f", "--json").stdout)[0]["results"]


@pytest.mark.parametrize("fill", [1e20, np.nan, -999.0])
def test_figures_of_codecs_leave_fill_values_out(tool, fill):
    field, land = ocean(fill=fill)
    np.save(tool.folder / "x.npy", field)
    codecs = ("dct_quant(rate=4)", "bounded(abs=0.01) | zstd", "zstd")
    args = [word for codec in codecs for word in ("--codec", codec)]
    results = view(tool, "x.npy", "--fill", fill, "--count", 20, "-o", "x.png", *args)
    for codec, result in zip(codecs, results, strict=True):
        tool.run("pack", "x.npy", "-o", "x.tuck", "-f", "--codec", codec, "--fill", fill)
        back = tool.unpacked("x.tuck")
        errors = np.abs(back.astype(float) - field)[~land]
        assert result["fill_values"] == land.sum() and result["changed_not_finite"] == 0
        # Chunks of other lengths round otherwise where a codec adapts to them.
        assert result["max_error"] == pytest.approx(errors.max(), rel=0.05)
        if errors.max() > 0:
            assert result["psnr_db"] == pytest.approx(psnr(field[~land], back[~land]), abs=0.1)


def test_figures_against_an_original_leave_fill_values_out(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=4)", "--fill", 1e20)
    back = tool.unpacked("x.tuck")
    shown = [0, 3, 7, 11]  # one without holes, one that is nothing else
    some = field[shown], back[shown], ~land[shown]
    true = psnr(some[0][some[2]], some[1][some[2]])
    # The file names them, or --fill; the original does not.
    tool.run("unpack", "x.tuck", "-o", "back/")
    name = next((tool.folder / "back").iterdir()).name
    for args in (("x.tuck",), (f"back/{name}", "--fill", 1e20)):
        (result,) = view(tool, *args, "--against", "x.npy", "--samples", "0,3,7,11", "-o", "x.png")
        assert result["psnr_db"] == pytest.approx(true, abs=1e-6)
        assert result["max_error"] == pytest.approx(np.abs(some[0] - some[1])[some[2]].max())
        assert result["fill_values"] == land[shown].sum()


def test_pictures_show_the_range_of_the_values_that_are_there(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    tool.run("view", "x.npy", "--fill", 1e20, "--samples", "0", "-o", "x.png")
    picture = pixels(tool, "x.png")
    enlarged = count(picture, BLUE) / land[0].sum()
    assert enlarged == 9  # each value a square
    assert len(np.unique(picture[0])) > 100  # shades, where there were two
    # A whole file with a mask, and its errors: the same places.
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=4)", "--fill", 1e20)
    tool.run("view", "x.tuck", "--against", "x.npy", "--samples", "0", "-o", "y.png")
    assert count(pixels(tool, "y.png"), BLUE) == 3 * count(picture, BLUE)
    assert count(pixels(tool, "y.png"), RED) == 0
    page = tool.run("view", "x.tuck", "--samples", "0", "-o", "x.html") and (
        tool.folder / "x.html"
    ).read_text("utf-8")
    assert f"{land[0].sum()} values are missing" in page


def test_a_fill_value_that_changed_is_no_missing_value(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    other = field.copy()
    other[0][land[0]] = 285.0
    (tool.folder / "b").mkdir()
    np.save(tool.folder / "b" / "x.npy", other)
    args = ("b/x.npy", "--against", "x.npy", "--fill", 1e20, "--samples", "0,1", "-o", "y.png")
    (result,) = view(tool, *args)
    assert result["changed_not_finite"] == land[0].sum()
    assert result["max_error"] == 0
    assert "exact" not in tool.run("view", *args, "-f").stdout


def test_eval_draws_missing_values_as_such(tool):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "zstd", "--fill", 1e20)
    tool.run("eval", "x.tuck", "--codec", "dct_quant(rate=4)", "--png", "e.png")
    assert count(pixels(tool, "e.png"), BLUE) == 3 * land[0].sum() * 16


@pytest.fixture
def unequal(tool):
    """A file whose arrays have other lengths, as netCDF files do."""
    field, land = ocean(10)
    file = {"field": field, "lat": np.arange(40.0), "lon": np.arange(56.0)}
    np.savez(tool.folder / "x.npz", **file)
    return tool, field, land


def test_view_takes_one_array_of_a_file_whose_arrays_do_not_fit(unequal):
    tool, field, _ = unequal
    for more in ((), ("--codec", "dct_quant(rate=4)"), ("--rename", "field=y")):
        done = tool.run("view", "x.npz", "--select", "field", *more, "-f", "-o", "x.png")
        assert "of 10 samples" in done.stdout
    done = tool.run("view", "x.npz", "-o", "y.png", exit=2)
    assert re.search(r"--select: 'field' \(f32 10x40x56\)", done.stderr)
    done = tool.run("view", "x.npz", "--select", "fild", "-o", "y.png", exit=2)
    assert "asked for" in done.stderr and "'field'" in done.stderr
    tool.run(
        "pack", "x.npz", "--select", "field", "-o", "x.tuck", "--fill", 1e20, "--codec", "zstd"
    )
    (result,) = view(tool, "x.tuck", "--against", "x.npz", "-o", "z.png")
    assert result["max_error"] == 0 and result["fill_values"] > 0


def test_labels_are_still_found_beside_a_selected_array(tool):
    np.savez(tool.folder / "x.npz", image=np.zeros((3, 8, 8), np.uint8), label=np.arange(3) + 40)
    tool.run("view", "x.npz", "--select", "image", "-o", "x.html")
    assert "label 41" in (tool.folder / "x.html").read_text("utf-8")


def test_diff_compares_arrays_of_the_same_name_and_lists_the_rest(unequal):
    tool, _, _ = unequal
    tool.run("pack", "x.npz", "--select", "field", "-o", "x.tuck", "--codec", "zstd")
    done = tool.run("diff", "x.tuck", "x.npz")
    assert "exact" in done.stdout and "only 'x.npz' has lat, lon" in done.stdout
    rows = json.loads(tool.run("diff", "x.tuck", "--against", "x.npz", "--json").stdout)
    assert rows[0]["array"] == "field" and rows[0]["exact"]
    assert [(row["array"], row["only_in"]) for row in rows[1:]] == [
        ("lat", "original"),
        ("lon", "original"),
    ]
    tool.run("convert", "x.tuck", "-o", "y.tuck", "--rename", "field=lat")
    done = tool.run("diff", "y.tuck", "x.npz", "--rename", "field=f", "--rename", "lat=g", exit=2)
    assert "one number of samples" in done.stderr  # no name in common: the first reason is given
    tool.run("convert", "x.tuck", "-o", "z.tuck", "--rename", "field=t")
    done = tool.run("diff", "z.tuck", "x.npz", "--rename", "field=t", "--rename", "lat=g")
    assert "exact" in done.stdout and "has g, lon" in done.stdout


@pytest.mark.parametrize("fill", ["1e20", "x=1e20"])
def test_eval_and_choose_of_a_plain_array_know_fill_values(tool, fill):
    field, land = ocean()
    np.save(tool.folder / "x.npy", field)
    args = ("--codec", "dct_quant(rate=4)", "--fill", fill, "--json")
    (report,) = json.loads(tool.run("eval", "x.npy", *args).stdout)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=4)", "--fill", 1e20)
    back = tool.unpacked("x.tuck")
    assert report["psnr_db"] == pytest.approx(psnr(field[~land], back[~land]), abs=0.1)
    assert report["range"] == np.ptp(field[~land])
    done = tool.run("choose", "x.npy", "--max-error", 0.01, "--fill", fill, "--json")
    assert json.loads(done.stdout)["best"]["range"] == np.ptp(field[~land])
    tool.run("eval", "x.npy", "--codec", "zstd", "--fill", "y=1", exit=2)
