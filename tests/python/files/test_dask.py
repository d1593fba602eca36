"""Dask arrays to .tuck files and back, also through Zarr, and with workers that are killed."""

import doctest
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import tuckfold

pytestmark = pytest.mark.slow
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
import tuckfold.dask  # noqa: E402

X = np.cumsum(np.random.default_rng(3).random((120, 24, 24), dtype=np.float32) - 0.5, axis=2)
Y = np.arange(120)


def test_one_shard_for_each_block(tmp_path: Path) -> None:
    x, y = da.from_array(X, chunks=(50, 10, 24)), da.from_array(Y, chunks=7)
    with tuckfold.dask.pack(
        tmp_path / "a.tuck", image=x, label=y, codec="dct_quant(rate=8)", metadata={"of": "dask"}
    ) as f:
        assert f.samples == 120 and f.metadata == {"of": "dask"}
        assert np.abs(f["image"][:] - X).max() < 0.1 and np.array_equal(f["label"][:], Y)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a-00000-of-00003.tuck", "a-00001-of-00003.tuck", "a-00002-of-00003.tuck", "a.tuck"]  # fmt: skip
    back = da.from_array(tuckfold.open(tmp_path / "a.tuck")["label"], chunks=30)
    assert back.sum().compute() == Y.sum()


def test_a_dataset_is_replaced_only_with_force_and_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tuck"
    tuckfold.dask.pack(path, x=da.from_array(X, chunks=(40, 24, 24))).close()
    with pytest.raises(FileExistsError, match="force=True"):
        tuckfold.dask.pack(path, x=da.from_array(X))
    reader = tuckfold.open(path)

    def fail(block):
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError):
        tuckfold.dask.pack(path, x=da.from_array(X, chunks=(40, 24, 24)).map_blocks(fail, dtype="f4"), force=True)  # fmt: skip
    assert np.array_equal(tuckfold.open(path)["x"][:], X)
    assert len(list(tmp_path.iterdir())) == 4
    tuckfold.dask.pack(path, x=da.from_array(X[::-1], chunks=(40, 24, 24)), force=True).close()
    assert np.array_equal(tuckfold.open(path)["x"][:], X[::-1])
    assert np.array_equal(reader["x"][:], X)  # has the files open
    assert len(list(tmp_path.iterdir())) == 4


def test_arguments_are_checked(tmp_path: Path) -> None:
    x = da.from_array(X)
    for wrong in ({}, {"x": x, "y": da.from_array(Y[:5])}, {"x": x.sum()}, {"x": x[:0]}, {"x": x[x[:, 0, 0] > 0]}):  # fmt: skip
        with pytest.raises(ValueError, match=r"\[pack\]"):
            tuckfold.dask.pack(tmp_path / "a.tuck", wrong)
    with pytest.raises(ValueError, match="codec names 'z'"):
        tuckfold.dask.pack(tmp_path / "a.tuck", x=x, codec={"z": "raw"})
    assert not list(tmp_path.iterdir())


def slowly(block: np.ndarray, folder: str) -> np.ndarray:
    """A block that takes a while; notes the process that works on it."""
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.3)
    return block


def test_a_killed_worker_leaves_a_complete_dataset(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    notes, out = tmp_path / "notes", tmp_path / "out"
    notes.mkdir()
    out.mkdir()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        x = da.from_array(X, chunks=(10, 24, 24)).map_blocks(
            slowly, folder=str(notes), dtype="f4", meta=np.empty((0, 24, 24), "f4")
        )
        over = threading.Event()
        killer = threading.Thread(target=_kill_one, args=(notes, 4, over))
        killer.start()
        with tuckfold.dask.pack(out / "a.tuck", x=x, codec="dct_quant(rate=8)") as f:
            assert np.abs(f["x"][:] - X).max() < 0.1
        over.set()
        killer.join()
    assert len(list(notes.iterdir())) > 12  # what the killed worker was at was begun again
    assert len(list(out.iterdir())) == 13
    plain = tuckfold.dask.pack(tmp_path / "b.tuck", x=da.from_array(X, chunks=(10, 24, 24)), codec="dct_quant(rate=8)")  # fmt: skip
    plain.close()
    for i in range(12):
        one, other = (folder / f"{name}-{i:05}-of-00012.tuck" for folder, name in ((out, "a"), (tmp_path, "b")))  # fmt: skip
        assert one.read_bytes() == other.read_bytes()


def _kill_one(notes: Path, count: int, over: threading.Event) -> None:
    """Kills a worker when `count` blocks were begun."""
    while not over.wait(0.05):
        begun = sorted(notes.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        if len(begun) >= count:
            os.kill(int(begun[-1].name.split("-")[0]), signal.SIGKILL)
            return


def run_tool(*words: object) -> subprocess.CompletedProcess:
    """The tool as the package installs it."""
    program = [sys.executable, "-c", "from tuckfold._tool import main; main()"]
    return subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )


def test_pack_on_a_cluster_survives_a_killed_worker(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    images = np.cumsum(np.random.default_rng(5).random((400, 3, 64, 64), dtype=np.float32) - 0.5, axis=3)  # fmt: skip
    np.save(tmp_path / "image.npy", images)
    np.save(tmp_path / "label.npy", np.arange(400))
    out = tmp_path / "out"
    out.mkdir()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killed, over = [], threading.Event()

        def kill() -> None:
            while not over.wait(0.01):  # on a busy machine it takes a minute to begin
                if len(list(out.glob("a-*.tuck"))) >= 10:
                    os.kill(victim, signal.SIGKILL)
                    killed.append(len(list(out.glob("a-*.tuck"))))
                    return

        killer = threading.Thread(target=kill)
        killer.start()
        done = run_tool(
            "pack", tmp_path / "image.npy", tmp_path / "label.npy", "--side-by-side", "-o", out / "a.tuck",
            "--dask", cluster.scheduler_address, "--codec", "dct_quant(rate=8)", "--shards", 100, "--json"
        )  # fmt: skip
        over.set()
        killer.join()
        assert done.returncode == 0, done.stdout + done.stderr
        assert killed and killed[0] < 100  # in the middle
        about = json.loads(done.stdout)
        assert (about["samples"], about["shards"]) == (400, 100)
        again = run_tool("pack", tmp_path / "image.npy", "-o", out / "a.tuck", "--dask", cluster.scheduler_address)  # fmt: skip
        assert again.returncode == 5 and "force" in again.stderr
    assert len(list(out.iterdir())) == 101  # nothing is left of the worker that was killed
    with tuckfold.open(out / "a.tuck") as f:
        assert np.array_equal(f["label"][:], np.arange(400))
        assert np.abs(f["image"][:] - images).max() < 0.2
    blocks = {name: da.from_array(x, chunks=(4, *x.shape[1:])) for name, x in (("image", images), ("label", np.arange(400)))}  # fmt: skip
    tuckfold.dask.pack(tmp_path / "b.tuck", blocks, codec={"image": "dct_quant(rate=8)"}).close()
    for i in range(100):
        one, other = out / f"a-{i:05}-of-00100.tuck", tmp_path / f"b-{i:05}-of-00100.tuck"
        assert one.read_bytes() == other.read_bytes()


def test_pack_on_a_cluster_reads_several_formats(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    np.save(tmp_path / "x.npy", X)
    tuckfold.save(tmp_path / "x.tuck", image=X, label=Y)
    inputs = {"x.npy": ["data"], "x.tuck": ["image", "label"]}
    try:
        import h5py

        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["group/image"], file["label"] = X, Y
        inputs["x.h5"] = ["group/image", "label"]
    except ImportError:
        pass
    try:
        import zarr

        zarr.create_array(tmp_path / "x.zarr", data=X)
        inputs["x.zarr"] = ["data"]
    except ImportError:
        pass
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        at = cluster.scheduler_address
        for name, arrays in inputs.items():
            done = run_tool("pack", tmp_path / name, tmp_path / name, "-o", tmp_path / "out.tuck", f"--dask={at}", "--shards", 7, "-f", "--metadata", '{"of": 1}')  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "in 7 shards" in done.stdout
            with tuckfold.open(tmp_path / "out.tuck") as f:
                assert list(f) == arrays and f.samples == 240 and f.metadata == {"of": 1}
                assert np.array_equal(f[arrays[0]][:], np.concatenate([X, X]))
        wrong = [
            (["missing.npy"], 5, "no 'missing.npy'"),
            (["x.npz"], 4, "not 'x.npz'"),
            (["x.npy", "--codec", "other=zstd"], 2, "names 'other'"),
            (["x.npy", "--codec", "nonsense(1)"], 2, "nonsense"),
            (["x.npy", "x.tuck"], 2, "--side-by-side"),
            (["x.npy", "--target-psnr", "40"], 2, "--target-psnr"),
            (["x.npy", "--shards", "0"], 2, "--shards must be 1 or more"),
            (["x.npy", "--metadata", "[1]"], 2, "a JSON object"),
        ]
        (tmp_path / "x.npz").touch()
        for words, code, text in wrong:
            words = [tmp_path / word if word.startswith(("x.", "missing")) else word for word in words]  # fmt: skip
            done = run_tool("pack", *words, "-o", tmp_path / "none.tuck", "--dask", at)
            assert done.returncode == code and text in done.stderr.replace(f"{tmp_path}/", ""), done.stderr  # fmt: skip
    assert not (tmp_path / "none.tuck").exists()


def test_fill_values_and_warnings_are_those_of_a_plain_pack(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    h5py = pytest.importorskip("h5py")
    fields = np.random.default_rng(1).normal(15, 3, (12, 32, 32)).astype("f4")
    holes = fields.copy()
    holes[:, :8] = 1e20
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["t"] = holes
        file["t"].attrs["_FillValue"] = np.float32(1e20)
        file["label"] = np.arange(12)
        file["label"].attrs["_FillValue"] = -1
    np.save(tmp_path / "x.npy", holes)
    fields[3, 4, 5] = np.inf
    np.save(tmp_path / "infinite.npy", fields)
    codec = ("--codec", "dct_quant(rate=8)", "--shards", 3, "-f", "-o", tmp_path / "out.tuck")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        at = f"--dask={cluster.scheduler_address}"
        for words in ((tmp_path / "x.h5",), (tmp_path / "x.npy", "--fill", "1e20"), (tmp_path / "x.npy", "--fill", "data=1e20")):  # fmt: skip
            done = run_tool("pack", *words, *codec, at)
            assert done.returncode == 0, done.stderr
            with tuckfold.open(tmp_path / "out.tuck") as f:
                (name,) = set(f) - {"label"}
                back = f[name][:]
                assert np.array_equal(back == np.float32(1e20), holes == np.float32(1e20))
                assert np.abs(back[:, 8:] - holes[:, 8:]).max() < 1
            again = run_tool("pack", tmp_path / "out.tuck", "--codec", "dct_quant(rate=7)", "-f", "-o", tmp_path / "again.tuck", at)  # fmt: skip
            assert again.returncode == 0, again.stderr
            with tuckfold.open(tmp_path / "again.tuck") as f:
                assert np.array_equal(f[name][:] == np.float32(1e20), holes == np.float32(1e20))
        done = run_tool("pack", tmp_path / "infinite.npy", *codec, at)
        assert done.returncode == 0 and "NaN or infin" in done.stderr, done.stderr
        for words, text in (
            (("--fill", "x=1"), "--fill names 'x'"),
            (("--fill", "many"), "must be a number"),
        ):
            done = run_tool("pack", tmp_path / "x.npy", *codec, at, *words)
            assert done.returncode == 2 and text in done.stderr


def test_dask_and_xarray_read_and_write_zarr(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    from tuckfold.zarr import TuckfoldCodec

    data = xarray.Dataset(
        {"t": (("time", "y", "x"), X), "n": (("time",), Y)},
        coords={"time": np.arange(120)},
        attrs={"title": "test"},
    )
    encoding = {
        "t": {
            "serializer": TuckfoldCodec("bounded(abs=0.01)"),
            "compressors": None,
            "chunks": (30, 24, 24),
        },
        "n": {"serializer": TuckfoldCodec("zstd"), "compressors": None},
    }
    data.to_zarr(tmp_path / "a.zarr", encoding=encoding, zarr_format=3, consolidated=False)
    back = xarray.open_zarr(tmp_path / "a.zarr", consolidated=False)
    assert back.attrs == {"title": "test"} and np.array_equal(back["n"], Y)
    assert float(np.abs(back["t"] - X).max()) <= 0.011
    assert back["t"].chunks[0] == (30,) * 4  # Dask reads chunk by chunk
    assert np.allclose(back["t"].mean("time").compute(), X.mean(0), atol=0.01)
    lazy = data.chunk({"time": 30})
    lazy.to_zarr(tmp_path / "b.zarr", encoding=encoding, zarr_format=3, consolidated=False)
    assert xarray.open_zarr(tmp_path / "b.zarr", consolidated=False).identical(back)
    back.isel(time=slice(0, 30)).drop_vars("n").to_zarr(tmp_path / "c.zarr", zarr_format=3, consolidated=False)  # fmt: skip
    assert np.array_equal(xarray.open_zarr(tmp_path / "c.zarr", consolidated=False)["t"], back["t"][:30])  # fmt: skip


def test_dask_arrays_read_and_write_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    from tuckfold.zarr import TuckfoldCodec

    z = zarr.create_array(
        tmp_path / "a.zarr",
        shape=X.shape,
        dtype="f4",
        chunks=(20, 24, 24),
        serializer=TuckfoldCodec("dct_quant(rate=8)"),
        compressors=None,
    )
    da.from_array(X, chunks=(40, 24, 24)).store(z, lock=False)
    back = da.from_zarr(str(tmp_path / "a.zarr"))
    assert back.chunks[0] == (20,) * 6
    assert np.abs(back.compute() - X).max() < 0.1
    with dask.config.set(scheduler="processes"):
        assert abs(float(back.sum().compute()) - float(back.compute().sum())) < 1


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(tuckfold.dask, extraglobs={"np": np}).failed == 0


def test_what_has_no_effect_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tuck"
    field, x = da.from_array(X[0], chunks=(8, 24)), da.from_array(X, chunks=(40, 24, 24))
    for arrays, options, match in (
        ({"x": field}, {"codec": "dct_quant(rate=4)"}, "two axes or more"),
        ({"x": x}, {"max_error": 0.1}, "max_error bounds what codecs lose"),
    ):
        with pytest.warns(tuckfold.DataWarning, match=match) as said:
            tuckfold.dask.pack(path, arrays, force=True, **options).close()
        assert len(said) == 1 and "[pack]" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for codec in ("bounded(abs=1)", {"x": "bounded(abs=1)"}):
            with tuckfold.dask.pack(path, x=x, codec=codec, max_error=1, force=True) as f:
                assert np.abs(f["x"][:] - X).max() <= 1 and str(f["x"].codec) == "bounded(abs=1)"
    with pytest.raises(ValueError, match="is a URL"):
        tuckfold.dask.pack("memory://a.tuck", x=x)
    for call in (
        lambda: tuckfold.save(tmp_path / "b.tuck", x=x),
        lambda: tuckfold.choose(x, psnr=30),
    ):
        with pytest.raises(TypeError, match="tuckfold.dask.pack writes"):
            call()


def test_an_array_of_xarray_is_named(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    with pytest.raises(TypeError, match="the .values of a DataArray are one"):
        tuckfold.save(tmp_path / "a.tuck", x=xarray.DataArray(X))
