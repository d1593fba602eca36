"""Dask arrays to .tuck files and back, also through Zarr, and with workers that are killed."""

import doctest
import os
import signal
import threading
import time
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
        killer = threading.Thread(target=_kill_one, args=(notes, 4))
        killer.start()
        with tuckfold.dask.pack(out / "a.tuck", x=x, codec="dct_quant(rate=8)") as f:
            assert np.abs(f["x"][:] - X).max() < 0.1
        killer.join()
    assert len(list(notes.iterdir())) > 12  # what the killed worker was at was begun again
    assert len(list(out.iterdir())) == 13
    plain = tuckfold.dask.pack(tmp_path / "b.tuck", x=da.from_array(X, chunks=(10, 24, 24)), codec="dct_quant(rate=8)")  # fmt: skip
    plain.close()
    for i in range(12):
        one, other = (folder / f"{name}-{i:05}-of-00012.tuck" for folder, name in ((out, "a"), (tmp_path, "b")))  # fmt: skip
        assert one.read_bytes() == other.read_bytes()


def _kill_one(notes: Path, count: int) -> None:
    """Kills a worker when `count` blocks were begun."""
    for _ in range(600):
        begun = sorted(notes.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        if len(begun) >= count:
            os.kill(int(begun[-1].name.split("-")[0]), signal.SIGKILL)
            return
        time.sleep(0.05)


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
