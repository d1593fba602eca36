"""What a writer was asked for holds for every sample, and what is no sample number is refused."""

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

import tuckfold

X = np.random.default_rng(7).normal(size=(40, 16, 16)).astype(np.float32)


def error_of(path: Path, first: int = 0) -> float:
    with tuckfold.open(path) as f:
        got = f["x"][first:]
    return float(np.abs(got - np.resize(X, (first + len(got), 16, 16))[first:]).max())


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("bound", [1e-3, {"x": 1e-3}])
def test_an_append_keeps_its_bound(tmp_path: Path, shards: int, bound: object) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X, codec="dct_quant(rate=2)", shards=shards)
    assert error_of(where) > 0.1
    writer = tuckfold.Writer(where, append=True, max_error=bound)
    writer.write(x=X)
    with pytest.warns(tuckfold.DataWarning, match="does not keep max_error"):
        saved = writer.finish()
    assert saved["x"].measured == 40 and saved["x"].max_error <= 1e-3
    assert error_of(where, 40) <= 1e-3


@pytest.mark.parametrize("shards", [0, 2])
def test_an_append_with_other_options_is_refused(tmp_path: Path, shards: int) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X, codec="dct_quant(rate=2)", shards=shards)
    before = tuckfold.open(where).samples
    for options in (
        {"codec": "raw"},
        {"codec": {"x": "raw"}},
        {"fill": -999.0},
        {"samples_per_chunk": 3},
        {"arrays": {"x": ("f64", (16, 16))}},
        {"arrays": {"y": ("f32", (16, 16))}},
    ):
        with pytest.raises(ValueError, match="codec|fill|samples per chunk|dtype|arrays"):
            tuckfold.Writer(where, append=True, **options)
    with pytest.raises(ValueError, match="names 'y', and the arrays are x"):
        tuckfold.Writer(where, append=True, max_error={"y": 1.0})
    with tuckfold.Writer(where, append=True, codec="dct_quant(rate=2)") as writer:
        writer.write(x=X)
    assert tuckfold.open(where).samples == before + 40


def test_fill_values_of_a_file_are_those_of_what_is_appended(tmp_path: Path) -> None:
    where, holes = tmp_path / "a.tuck", X.copy()
    holes[:, 3:6] = -999
    tuckfold.save(where, x=holes, codec="dct_quant(rate=4)", fill=-999.0)
    for options in ({}, {"fill": -999.0}):
        with tuckfold.Writer(where, append=True, **options) as writer:
            writer.write(x=holes)
    with tuckfold.open(where) as f:
        got = f["x"][:]
    assert (got[:, 3:6] == -999).all() and (got[:, 6:] != -999).all()


@pytest.mark.parametrize("shards", [0, 3])
def test_another_bound_does_not_resume(tmp_path: Path, shards: int) -> None:
    where, big = tmp_path / "a.tuck", np.resize(X, (4000, 16, 16))

    def writer(**options: object) -> tuckfold.Writer:
        return tuckfold.Writer(
            where,
            {"x": ("f32", (16, 16))},
            codec="dct_quant(rate=2)",
            shards=shards,
            samples=len(big),
            **options,
        )

    first = writer()
    first.write(x=big[:2500])
    first.close()
    with pytest.raises(ValueError, match="max_error"):
        writer(resume=True, max_error=1e-3)
    again = writer(resume=True)
    assert again.samples > 0
    again.write(x=big[again.samples :])
    again.finish()
    assert tuckfold.open(where).samples == len(big)


def test_what_is_no_number_of_a_sample_is_refused(tmp_path: Path) -> None:
    tuckfold.save(tmp_path / "a.tuck", x=X)
    data = tuckfold.Dataset(tmp_path / "a.tuck", "x")
    readers = [data.read, data.file["x"].read]
    for read, wrong in itertools.product(
        readers, (np.arange(40) == 3, [True, False], [1.5], "12", np.array(["1"]))
    ):
        with pytest.raises((TypeError, ValueError), match="samples must"):
            read(wrong)
    for read in readers:
        assert read([]).shape == (0, 16, 16)
        assert np.array_equal(read(np.array([3, 1], np.uint8)), X[[3, 1]])


def test_masks_and_booleans_are_those_of_numpy(tmp_path: Path) -> None:
    x = np.arange(5 * 4 * 6, dtype=np.int32).reshape(5, 4, 6)
    tuckfold.save(tmp_path / "a.tuck", x=x, empty=x)
    array = tuckfold.open(tmp_path / "a.tuck")["x"]
    masks = [np.arange(n) % 2 == 0 for n in (1, 2, 4, 5, 6)]
    masks += [np.ones((4, 6), bool), np.ones((5, 4), bool), np.ones((6, 4), bool)]
    parts = [..., None, slice(1, 3), 2, True, False, np.array(True), [0, 2], *masks]
    for key in itertools.chain(((p,) for p in parts), itertools.product(parts, repeat=2),
                               itertools.product(parts[:8] + masks[1:4], repeat=3)):  # fmt: skip
        try:
            want = x[key]
        except IndexError:
            with pytest.raises(IndexError):
                array[key]
            continue
        got = array[key]
        assert got.shape == want.shape and np.array_equal(got, want), key


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    wrong = str(tmp_path / "a\0b")
    for call in (lambda: tuckfold.save(wrong, x=X), lambda: tuckfold.open(wrong),
                 lambda: tuckfold.Dataset(wrong), lambda: tuckfold.Writer(wrong, {"x": X})):  # fmt: skip
        with pytest.raises(ValueError, match="null byte"):
            call()
    assert not list(tmp_path.iterdir())


def test_outliers_that_decide_a_psnr_are_named(tmp_path: Path) -> None:
    far = X.copy()
    far[3, 4, 5] = 1e20
    with pytest.warns(tuckfold.DataWarning, match=r"1 of 10240 values of 'x'.*fill=1e\+20"):
        tuckfold.save(tmp_path / "a.tuck", x=far, psnr=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuckfold.save(tmp_path / "b.tuck", x=far, psnr=40, fill=1e20)
        tuckfold.save(tmp_path / "c.tuck", x=X, psnr=40)


def test_arguments_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seed"):
        tuckfold.save(tmp_path / "a.tuck", x=X, seed=2**64)
    with pytest.raises(ValueError, match="'x' is given twice"):
        tuckfold.save(tmp_path / "a.tuck", {"x": X}, x=X)
    tuckfold.save(tmp_path / "a.tuck", x=X)
    batches = tuckfold.Dataset(tmp_path / "a.tuck", "x").batches(8)
    for change in ({"batch": -1}, {"batch": 999}, {"epoch": -1}):
        with pytest.raises(ValueError, match="the state has"):
            batches.load_state_dict(batches.state_dict() | change)


def test_a_bound_of_0_is_as_small_as_no_bound(tmp_path: Path) -> None:
    x = np.cumsum(np.random.default_rng(0).integers(-3, 4, (60, 128, 128)), axis=2)
    x = (x + x.min()).astype(np.float32) / 7
    sizes = []
    for name, options in (("a", {}), ("b", {"max_error": 0})):
        tuckfold.save(tmp_path / f"{name}.tuck", x=x, **options)
        sizes.append((tmp_path / f"{name}.tuck").stat().st_size)
        assert np.array_equal(tuckfold.open(tmp_path / f"{name}.tuck")["x"][:], x)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("shape", [(64, 16, 16), (64, 256)])
@pytest.mark.parametrize("way", ["save", "shards", "writer", "append"])
@pytest.mark.parametrize("bound", [0, 1e-3])
def test_a_bound_holds_for_a_codec_that_a_mapping_names(
    tmp_path: Path, shape: tuple[int, ...], way: str, bound: float
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    path, codec = tmp_path / "a.tuck", {"x": "block_quant(bits=4)"}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if way in ("save", "shards"):
            more = {"shards": 2} if way == "shards" else {}
            tuckfold.save(path, x=x, codec=codec, max_error=bound, **more)
        elif way == "writer":
            with tuckfold.Writer(
                path, {"x": ("f32", shape[1:])}, codec=codec, max_error=bound
            ) as w:
                w.write(x=x)
        else:
            tuckfold.save(path, x=x[:8], codec=codec)
            with tuckfold.Writer(path, append=True, max_error=bound) as w:
                w.write(x=x[8:])
    got = tuckfold.open(path)["x"][:]
    first = 8 if way == "append" else 0
    assert np.abs(got - x)[first:].max() <= bound
    assert any("max_error" in str(w.message) or "stored" in str(w.message) for w in warned)


def test_a_goal_is_measured_for_a_codec_that_a_mapping_names(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((64, 16, 16)).astype(np.float32)
    with pytest.warns(tuckfold.DataWarning, match="where 80 was asked for"):
        saved = tuckfold.save(tmp_path / "a.tuck", x=x, codec={"x": "block_quant(bits=2)"}, psnr=80)
    assert saved["x"].measured == 64
