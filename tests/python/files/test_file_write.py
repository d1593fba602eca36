"""Writing .tuck files from Python: the promises of the command line."""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tuckfold

ROOT = Path(__file__).parents[3]
X = np.random.default_rng(1).random((40, 16, 16), dtype=np.float32)
Y = np.arange(40)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_nothing_is_lost_unless_asked_for(tmp_path: Path) -> None:
    saved = tuckfold.save(tmp_path / "a.tuck", {"x": X, "codec": Y}, other=X.astype(np.float64))
    assert saved.samples == 40 and [a.name for a in saved.arrays] == ["x", "codec", "other"]
    with tuckfold.open(tmp_path / "a.tuck") as f:
        assert f["x"][:].tobytes() == X.tobytes()
        assert f["codec"][:].tobytes() == Y.tobytes()
        assert f["other"][:].tobytes() == X.astype(np.float64).tobytes()


def test_large_arrays_get_the_codec_that_the_command_line_takes(tmp_path: Path) -> None:
    tool = ROOT / "build/release/tuckfold"
    if not tool.exists():
        pytest.skip("no build/release/tuckfold")
    smooth = np.linspace(0, 1, 50 * 64 * 64, dtype=np.float32).reshape(50, 64, 64)
    np.savez(tmp_path / "a.npz", smooth=smooth, label=np.arange(50) % 10)
    command = [tool, "pack", tmp_path / "a.npz", "-o", tmp_path / "cli.tuck", "-q"]
    subprocess.run(command, check=True)
    tuckfold.save(tmp_path / "py.tuck", smooth=smooth, label=np.arange(50) % 10)
    with tuckfold.open(tmp_path / "cli.tuck") as a, tuckfold.open(tmp_path / "py.tuck") as b:
        assert str(a["smooth"].codec) == str(b["smooth"].codec) != "zstd(level=1)"
        assert str(a["label"].codec) == str(b["label"].codec)


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    where.write_bytes(b"mine")
    for write in (lambda **k: tuckfold.save(where, x=X, **k),
                  lambda **k: tuckfold.Writer(where, {"x": X}, **k).close()):  # fmt: skip
        with pytest.raises(ValueError, match="exists; pass force"):
            write()
    assert where.read_bytes() == b"mine"
    tuckfold.save(where, x=X, force=True)
    assert tuckfold.open(where).samples == 40 and names(tmp_path) == ["a.tuck"]


def test_a_file_appears_when_it_is_complete_and_replaces_at_once(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X[:3])
    old = tuckfold.open(where)
    with tuckfold.Writer(where, {"x": X}, force=True) as w:
        w.write(x=X)
        assert tuckfold.open(where).samples == 3
    assert tuckfold.open(where).samples == 40
    assert np.array_equal(old["x"][:], X[:3])  # what is open stays
    assert names(tmp_path) == ["a.tuck"]


def test_a_file_is_saved_over_itself(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X)
    with tuckfold.open(where) as f:
        tuckfold.save(where, x=f["x"], codec="bounded(abs=0.01)", force=True)
    assert np.abs(tuckfold.open(where)["x"][:] - X).max() <= 0.01


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Stops:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, key: slice) -> np.ndarray:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuckfold.save(tmp_path / "a.tuck", x=Stops(), codec="raw")
    with pytest.raises(ValueError):
        tuckfold.save(tmp_path / "a.tuck", x=X, codec="mask")  # refuses these values
    with pytest.raises(ValueError, match="as many samples"):
        tuckfold.save(tmp_path / "a.tuck", x=X, y=Y[:3])
    assert names(tmp_path) == []


def test_a_stopped_writer_is_resumed(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    about = {"x": ("f32", (16, 16)), "y": ("i64", ())}
    options = {"codec": "dct_quant(rate=4)", "samples_per_chunk": 4, "origin": "run 1"}
    with pytest.raises(KeyboardInterrupt), tuckfold.Writer(where, about, **options) as w:
        w.write(x=X[:30], y=Y[:30])
        raise KeyboardInterrupt
    assert names(tmp_path) == ["a.tuck.partial"]
    with pytest.raises(ValueError, match="pass resume to go on"):
        tuckfold.Writer(where, about, **options)
    with pytest.raises(ValueError, match="differs"):
        tuckfold.Writer(where, about, **{**options, "origin": "run 2"}, resume=True)
    with pytest.raises(ValueError, match="codec"):
        tuckfold.Writer(where, about, **{**options, "codec": "raw"}, resume=True)
    with tuckfold.Writer(where, about, **options, resume=True) as w:
        assert w.samples == 28
        w.write({"y": Y[28:]}, x=X[28:])
    tuckfold.save(tmp_path / "b.tuck", x=X, y=Y, codec={"x": "dct_quant(rate=4)", "y": "zstd"},
                  samples_per_chunk=4)  # fmt: skip
    assert where.read_bytes() == (tmp_path / "b.tuck").read_bytes()
    assert names(tmp_path) == ["a.tuck", "b.tuck"]


def test_a_writer_that_is_discarded_or_empty_leaves_nothing(tmp_path: Path) -> None:
    w = tuckfold.Writer(tmp_path / "a.tuck", {"x": X})
    w.write(x=X)
    w.discard()
    with pytest.raises(ValueError, match="closed"):
        w.write(x=X)
    with pytest.raises(RuntimeError), tuckfold.Writer(tmp_path / "a.tuck", {"x": X}):
        raise RuntimeError
    assert names(tmp_path) == []


def test_append(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X[:10], y=Y[:10], metadata={"a": 1})
    before = where.read_bytes()
    with pytest.raises(RuntimeError), tuckfold.Writer(where, append=True) as w:
        w.write(x=X[10:], y=Y[10:])
        raise RuntimeError
    assert where.read_bytes() == before
    with tuckfold.Writer(where, append=True) as w:
        assert w.samples == 10
        w.write(x=X[10:], y=Y[10:])
    with tuckfold.open(where) as f:
        assert np.array_equal(f["x"][:], X) and f.metadata == {"a": 1}
    with pytest.raises(ValueError, match="other arrays"):
        tuckfold.Writer(where, {"x": X.astype(np.float64)}, append=True)


def test_shards_resumed_and_appended(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    options = {"shards": 3, "samples": 40, "samples_per_chunk": 4}
    with pytest.raises(RuntimeError), tuckfold.Writer(where, {"x": X}, **options) as w:
        w.write(x=X[:33])
        raise RuntimeError
    assert not where.exists()
    with tuckfold.Writer(where, {"x": X}, **options, resume=True) as w:
        assert 26 <= w.samples <= 33
        w.write(x=X[w.samples :])
    with tuckfold.Writer(where, append=True) as w:
        assert w.samples == 40
        w.write(x=X[:5])
    with tuckfold.open(where) as f:
        assert np.array_equal(f["x"][:], np.concatenate([X, X[:5]]))
    assert len(names(tmp_path)) == 5
    with (
        pytest.raises(ValueError, match="announced"),
        tuckfold.Writer(tmp_path / "b.tuck", {"x": X}, shards=2, samples=9) as w,
    ):
        w.write(x=X[:8])
    tuckfold.save(where, x=X, force=True)
    assert names(tmp_path)[0] == "a.tuck" and where.read_bytes()[:1] != b"{"
    assert not [name for name in names(tmp_path) if name.startswith("a-")]


def test_bounds_goals_and_lost_values(tmp_path: Path) -> None:
    smooth = np.cumsum(np.cumsum(X, axis=1), axis=2) / 100
    saved = tuckfold.save(tmp_path / "a.tuck", x=smooth, y=Y, max_error=1e-3)
    back = tuckfold.open(tmp_path / "a.tuck")["x"][:]
    assert np.abs(back - smooth).max() <= 1e-3 and saved["x"].max_error <= 1e-3
    assert saved["x"].measured == 40 and saved["y"].measured == 0 and saved["y"].psnr is None
    with pytest.warns(tuckfold.DataWarning, match="40 of 40 samples of 'x' are stored as they are"):
        saved = tuckfold.save(tmp_path / "b.tuck", x=X, codec="dct_quant(rate=2)", max_error=1e-4)
    assert saved["x"].stored_raw == 40
    assert np.array_equal(tuckfold.open(tmp_path / "b.tuck")["x"][:], X)
    saved = tuckfold.save(tmp_path / "c.tuck", x=smooth, psnr=50)
    reached = tuckfold.psnr(smooth, tuckfold.open(tmp_path / "c.tuck")["x"][:])
    assert reached == pytest.approx(saved["x"].psnr) and reached >= 49.5
    hole = smooth.copy()
    hole[3, 2, 1] = np.nan
    with pytest.warns(tuckfold.DataWarning, match="fill= keeps such values apart"):
        saved = tuckfold.save(tmp_path / "d.tuck", x=hole, codec="dct_quant(rate=4)")
    assert saved["x"].lost > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuckfold.save(tmp_path / "e.tuck", x=hole, codec="dct_quant(rate=4)", fill={"x": np.nan})


def test_a_goal_that_is_missed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuckfold._save._TRIAL_VALUES", 1000)  # samples 6, 20 and 33
    field = np.zeros((40, 16, 16), np.float32) + np.linspace(0, 1, 16, dtype=np.float32)
    field += np.random.default_rng(0).random((16, 16), dtype=np.float32) / 10
    field[0] = np.random.default_rng(0).random((16, 16)) - 0.5
    with pytest.warns(tuckfold.DataWarning, match=r"a PSNR of .* over all samples, where 30"):
        tuckfold.save(tmp_path / "a.tuck", x=field, psnr=30)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    for wrong, match in [
        (lambda: tuckfold.save(where), "give arrays"),
        (lambda: tuckfold.save(where, x=np.float32(3)), "leading axis"),
        (lambda: tuckfold.save(where, x=X, codec="nonsense"), "nonsense"),
        (lambda: tuckfold.save(where, x=X, codec={"z": "raw"}), "names 'z'"),
        (lambda: tuckfold.save(where, x=X, max_error=-1), "max_error must be 0"),
        (lambda: tuckfold.save(where, x=X, max_error=1, psnr=4), "give one of"),
        (lambda: tuckfold.save(where, x=X, codec="raw", psnr=4), "leave out codec"),
        (lambda: tuckfold.save(where, x=X, metadata={"a": float("nan")}), "JSON"),
        (lambda: tuckfold.save(where, x=X, shards=41), "shards must be"),
        (lambda: tuckfold.save(where, x=X[:0], shards=4), "there are none; give their number"),
        (lambda: tuckfold.save(where, x=Y, fill=0.5, codec={"x": "zstd"}), "no array has"),
        (lambda: tuckfold.save(where, x=X.astype(complex)), "dtype must be"),
        (lambda: tuckfold.Writer(where), "give the arrays"),
        (lambda: tuckfold.Writer(where, {"x": ("f32",)}), r"\(dtype, shape\)"),
        (lambda: tuckfold.Writer(where, {"x": X}, append=True, resume=True), "exclude"),
        (lambda: tuckfold.Writer(where, {"x\0": X}), r"^\[name\] a name has no NUL"),
    ]:
        with pytest.raises(ValueError, match=match):
            wrong()
    with pytest.raises(TypeError, match="masked"):
        tuckfold.save(where, x=np.ma.masked_equal(X, 0))
    with pytest.raises(TypeError, match="pickled"), tuckfold.Writer(where, {"x": X}) as w:
        pickle.dumps(w)
    with pytest.warns(tuckfold.DataWarning, match="two axes or more"):
        tuckfold.save(where, x=Y, codec="dct_quant(rate=4)")
    with tuckfold.Writer(where, {"x": X, "y": Y}, force=True) as w:
        for batch, match in [
            ({"x": X}, "a batch has x, y, got x"),
            ({"x": X, "y": Y[:2]}, "as many samples"),
            ({"x": X.astype(np.float64), "y": Y}, "'x' is of f32"),
            ({"x": X[:, :8], "y": Y}, "takes f32"),
            ({"x": np.float32(1), "y": Y}, "leading axis"),
        ]:
            with pytest.raises(ValueError, match=match):
                w.write(batch)
        w.write(x=X, y=Y)  # a wrong batch changes nothing
    assert tuckfold.open(where).samples == 40


def test_any_strides_are_written(tmp_path: Path) -> None:
    odd = np.asfortranarray(X)[::-2, :, ::2]
    tuckfold.save(tmp_path / "a.tuck", x=odd)
    assert np.array_equal(tuckfold.open(tmp_path / "a.tuck")["x"][:], odd)


def test_bytes_depend_on_neither_batches_nor_threads(tmp_path: Path) -> None:
    spec = "block_quant(bits=4, round=stochastic)"
    tuckfold.save(tmp_path / "a.tuck", x=X, codec=spec, seed=5)
    tuckfold.set_num_threads(1)
    try:
        with tuckfold.Writer(tmp_path / "b.tuck", {"x": X}, codec=spec, seed=5) as w:
            for i in range(0, 40, 7):
                w.write(x=X[i : i + 7])
    finally:
        tuckfold.set_num_threads(0)
    assert (tmp_path / "a.tuck").read_bytes() == (tmp_path / "b.tuck").read_bytes()


KILLED = """
import os, sys, numpy as np, tuckfold
def stop(done, total):
    if done > total // 2:
        os.kill(os.getpid(), 9)
x = np.arange(1 << 22, dtype=np.float32).reshape(1024, 64, 64)
tuckfold.save(sys.argv[1], x=x, codec="raw", force=True, progress=stop)
"""


def test_a_killed_save_leaves_the_old_file(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X)
    done = subprocess.run([sys.executable, "-c", KILLED, where], check=False)
    assert done.returncode == -9
    assert np.array_equal(tuckfold.open(where)["x"][:], X)
    with pytest.raises(ValueError, match="stopped writer|exists"):
        tuckfold.save(where, x=X)
    tuckfold.save(where, x=X[:2], force=True)
    assert names(tmp_path) == ["a.tuck"] and tuckfold.open(where).samples == 2


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    with tuckfold.Writer(tmp_path / "a.tuck", {"x": X}) as w:
        w.write(x=X)
        with pytest.raises(OSError, match="a.tuck"):
            tuckfold.Writer(tmp_path / "a.tuck", {"x": X}, force=True)
    assert tuckfold.open(tmp_path / "a.tuck").samples == 40


def test_arrays_of_hdf5_and_memmaps(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    tuckfold.save(tmp_path / "a.tuck", x=np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert np.array_equal(tuckfold.open(tmp_path / "a.tuck")["x"][:], X)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as h:
        h["x"] = X
        tuckfold.save(tmp_path / "b.tuck", x=h["x"])
    assert np.array_equal(tuckfold.open(tmp_path / "b.tuck")["x"][:], X)


@pytest.mark.parametrize("value", [object(), np.float32(1), float("nan"), {1: 2}, {"b": [{2: 3}]}])
def test_metadata_that_json_would_change_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="metadata must be what JSON holds"):
        tuckfold.save(tmp_path / "a.tuck", x=X, metadata={"a": value})
    assert not list(tmp_path.iterdir())


def test_names_and_metadata_of_any_script(tmp_path: Path) -> None:
    where = tmp_path / "ä ü.tuck"
    tuckfold.save(where, {"größe": X}, metadata={"名": "✓"})
    with tuckfold.open(where) as f:
        assert list(f) == ["größe"] and f.metadata == {"名": "✓"}
    assert tuckfold.open(os.fsencode(where)).samples == 40


class Claims:
    """A source of slices, which gives something else than it says."""

    def __init__(self, a: np.ndarray, change, samples: int | None = None) -> None:
        self.a, self.change, self.dtype = a, change, a.dtype
        self.shape = (samples or len(a), *a.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> np.ndarray:
        return self.change(self.a[key])


def test_slices_must_be_what_their_source_says(tmp_path: Path) -> None:
    a, path = np.arange(60, dtype=np.float32).reshape(30, 2), tmp_path / "a.tuck"
    tuckfold.save(path, x=Claims(a, lambda z: z))
    for wrong in (
        Claims(a, lambda z: z.astype(np.int32)),
        Claims(a, lambda z: z.astype(">f4")),
        Claims(a, lambda z: z, samples=40),
        Claims(a, lambda z: z[:0]),
        Claims(a, lambda z: np.concatenate([z, z])),
        Claims(a, lambda z: z[:, :1]),
    ):
        with pytest.raises(ValueError, match="gave a slice of"):
            tuckfold.save(tmp_path / "b.tuck", x=wrong)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tuck"]


def test_tensors_that_are_negated_when_they_are_read_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.complex(torch.randn(16, 8), torch.randn(16, 8)).conj().imag
    for call in (
        lambda: tuckfold.pack(x, "raw"),
        lambda: tuckfold.dumps(x, "raw"),
        lambda: tuckfold.psnr(np.zeros((16, 8), np.float32), x),
        lambda: tuckfold.save(tmp_path / "a.tuck", x=x),
        lambda: tuckfold.unpack(np.zeros(512, np.uint8), "raw", out=x),
    ):
        with pytest.raises(ValueError, match="resolve_neg"):
            call()


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    field = np.cumsum(X[0], axis=1)
    two_axes = "is for samples with two axes or more, and no array has such; nothing is lost"
    for target in ({"max_error": 0.1}, {"psnr": 30}):
        with pytest.warns(tuckfold.DataWarning, match=rf"\[save\] .*{two_axes} \(x\[None\]"):
            saved = tuckfold.save(where, x=field, force=True, **target)
        assert np.array_equal(tuckfold.open(where)["x"][:], field)
    with pytest.warns(tuckfold.DataWarning, match=two_axes):
        tuckfold.Writer(where, {"x": field}, codec="dct_quant(rate=4)", force=True).discard()
    for arrays, more in (({"x": field}, {}), ({"x": X}, {}), ({"x": X}, {"codec": "zstd"})):
        with pytest.warns(
            tuckfold.DataWarning, match="max_error bounds what codecs lose, and zstd"
        ):
            tuckfold.Writer(where, arrays, max_error=0.1, force=True, **more).discard()
    with pytest.warns(tuckfold.DataWarning, match="max_error bounds what codecs lose"):
        tuckfold.Writer(where, append=True, max_error={"x": 0.1}).discard()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = tuckfold.save(where, x=field[None], max_error=0.1, force=True)
        assert saved["x"].max_error > 0  # type: ignore[operator]
        tuckfold.save(where, x=field, max_error=0, force=True)
        tuckfold.save(where, x=X, y=Y, psnr=30, force=True)
        tuckfold.save(where, y=Y, codec={"y": "bits"}, max_error=1, force=True)
        for codec in ("bounded(abs=1)", {"x": "bounded(abs=1)"}):
            tuckfold.Writer(where, {"x": X, "y": Y}, codec=codec, max_error=1, force=True).discard()
        tuckfold.Writer(where, {"x": X}, max_error=0, force=True).discard()


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u4", "u8", "?"])
def test_goals_for_dtypes_that_allow_no_loss_are_said(tmp_path: Path, dtype: str) -> None:
    x = (X * 100).astype(dtype)
    where = tmp_path / "a.tuck"
    for target in ({"max_error": 5}, {"psnr": 60}):
        with pytest.warns(tuckfold.DataWarning, match="always packed without loss.*has no effect"):
            tuckfold.save(where, x=x, force=True, **target)
        assert np.array_equal(tuckfold.open(where)["x"][:], x)
        with pytest.warns(tuckfold.DataWarning, match="always packed without loss.*has no effect"):
            tuckfold.choose(x, **target)
    with pytest.warns(tuckfold.DataWarning, match="ratio=1 is searched among exact codecs alone"):
        tuckfold.choose(x, ratio=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuckfold.save(where, x=x, max_error=0, force=True)
        tuckfold.save(where, x=x, codec={"x": "zstd"}, max_error=5, force=True)
        tuckfold.save(where, x=X, y=x[:, 0, 0], psnr=40, force=True)
        tuckfold.choose(x, max_error=0)


@pytest.mark.parametrize("target", [{"max_error": 0.01}, {"psnr": 60}])
@pytest.mark.parametrize("far", [None, np.inf, 1e20])
@pytest.mark.parametrize("dtype", ["f4", "bf16"])
def test_fill_values_are_searched_as_the_command_line_does(
    tmp_path: Path, target: dict, far: float | None, dtype: str
) -> None:
    tool = ROOT / "build/release/tuckfold"
    if not tool.exists():
        pytest.skip("no build/release/tuckfold")
    if far is not None and "psnr" in target:
        pytest.skip("a far value decides what a PSNR means")
    x = np.cumsum(np.random.default_rng(0).standard_normal((10, 70, 90)), axis=2).astype("f4")
    x[:, ::7, ::5] = np.nan
    x[3] = np.nan
    if far is not None:
        x[5, 2, 2] = far
    if dtype == "bf16":
        x = ((x.view("u4") + 0x8000) >> 16).astype("u2")
        (tmp_path / "a.bin").write_bytes(x.tobytes())
        given = [tmp_path / "a.bin", "--dtype", "bf16", "--shape", "70x90"]
    else:
        np.save(tmp_path / "a.npy", x)
        given = [tmp_path / "a.npy"]
    ((kind, value),) = target.items()
    option = {"psnr": "--target-psnr", "max_error": "--max-error"}[kind]
    command = [
        tool,
        "pack",
        *given,
        "-o",
        tmp_path / "cli.tuck",
        "-q",
        "--fill",
        "nan",
        option,
        str(value),
    ]
    subprocess.run(command, check=True)  # fmt: skip
    as_bits = {"x": "bf16"} if dtype == "bf16" else None
    saved = tuckfold.save(tmp_path / "py.tuck", x=x, fill=np.nan, dtype=as_bits, **target)
    with tuckfold.open(tmp_path / "cli.tuck") as f:
        # Values in place of the missing ones differ a little.
        assert saved["x"].codec.stages[0].name == f["data"].codec.stages[0].name
        assert saved["x"].packed_bytes <= 1.1 * f["data"].packed_bytes


def test_urls_are_for_reading(tmp_path: Path) -> None:
    for write in (
        lambda: tuckfold.save("memory://a/b.tuck", x=X),
        lambda: tuckfold.Writer("s3://a/b.tuck", {"x": X}),
        lambda: tuckfold.Writer("s3://a/b.tuck", append=True),
    ):
        with pytest.raises(ValueError, match="is a URL, and only open takes those"):
            write()


@pytest.mark.parametrize("package, remedy", [("dask.array.core", "tuckfold.dask.pack"), ("xarray.core.dataarray", ".values")])  # fmt: skip
def test_arrays_of_other_packages_are_named(tmp_path: Path, package: str, remedy: str) -> None:
    """Which are sliced to more of the same."""

    class Array:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, key: object) -> "Array":
            return self

    Array.__module__ = package
    for call in (
        lambda: tuckfold.save(tmp_path / "a.tuck", x=Array()),
        lambda: tuckfold.choose(Array(), psnr=30),
        lambda: tuckfold.pack(Array(), "raw"),
    ):
        with pytest.raises(TypeError, match=remedy):
            call()
    assert not list(tmp_path.iterdir())
