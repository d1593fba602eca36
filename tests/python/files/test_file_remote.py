"""Files on other file systems, where fsspec is installed: only what is read is fetched."""

import gc
import multiprocessing
import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import tuckfold

fsspec = pytest.importorskip("fsspec")

X = np.random.default_rng(6).random((500, 16, 16), dtype=np.float32)
Y = np.arange(500)


def put(path: Path, to: str = "memory://data") -> str:
    """Copies a file, or a manifest with its shards, and returns the URL."""
    for file in path.parent.glob(f"{path.stem}*.tuck"):
        fsspec.filesystem("memory").pipe_file(f"{to}/{file.name}", file.read_bytes())
    return f"{to}/{path.name}"


@pytest.fixture(autouse=True)
def no_left_overs():
    """What was fetched is gone with its file."""
    yield
    gc.collect()
    store = fsspec.filesystem("memory")
    store.store.clear()
    assert not list(Path(tempfile.gettempdir()).glob("tuckfold-*/train*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tuckfold.save(tmp_path / "train.tuck", x=X, y=Y, codec={"x": "raw"}, samples_per_chunk=10)
    return tmp_path / "train.tuck"


class Counted(fsspec.get_filesystem_class("memory")):
    """Memory that knows what was asked for."""

    protocol = "counted"
    asked: list[tuple[int, int]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    def cat_file(self, path, start=None, end=None, **kwargs):
        Counted.asked.append((start, end))
        return super().cat_file(path, start, end, **kwargs)


fsspec.register_implementation("counted", Counted, clobber=True)


def fetched() -> int:
    total = sum(end - start for start, end in Counted.asked)
    Counted.asked.clear()
    return total


def test_only_the_chunks_that_are_read_are_fetched(path: Path) -> None:
    url = put(path).replace("memory://", "counted://")
    size = path.stat().st_size
    with tuckfold.open(url) as f:
        assert f.samples == 500 and f.path == url and "train.tuck: 500 samples" in repr(f)
        assert fetched() < size / 20
        assert np.array_equal(f["x"][123], X[123])
        assert 10 * X[0].nbytes <= fetched() < 11 * X[0].nbytes
        assert np.array_equal(f["x"][125], X[125]) and fetched() == 0  # the same chunk
        some = [499, 0, 250, 0]
        assert np.array_equal(f["x"].read(some), X[some]) and fetched() < 33 * X[0].nbytes
        assert np.array_equal(f["y"][:], Y)
        assert np.array_equal(np.asarray(f["x"]), X)
        fetched()
        assert np.array_equal(f["x"][::7], X[::7]) and fetched() == 0
        with pytest.raises(IndexError):
            f["x"][500]


def test_other_file_systems_and_paths(path: Path) -> None:
    with tuckfold.open(f"file://{path}") as f:
        assert np.array_equal(f["x"][3:5], X[3:5])
    with pytest.raises(OSError, match=r"memory://data/none\.tuck': there is no such file"):
        tuckfold.open("memory://data/none.tuck")
    with pytest.raises(ValueError, match="local file"):
        tuckfold.open(path, storage_options={"anon": True})
    with pytest.raises(ValueError, match="Protocol not known"):
        tuckfold.open("nonsense://x.tuck")


def test_manifests_and_their_shards(tmp_path: Path) -> None:
    tuckfold.save(tmp_path / "train.tuck", x=X, y=Y, codec={"x": "dct_quant(rate=8)"}, shards=4)
    plain = tuckfold.open(tmp_path / "train.tuck")
    url = put(tmp_path / "train.tuck")
    with tuckfold.open(url) as f:
        for samples in ([499, 0, 250, 0], range(120, 130), slice(None, None, 9)):
            assert np.array_equal(f["x"].read(samples), plain["x"].read(samples))
    shard = next(name for name in fsspec.filesystem("memory").store if "00002-of" in name)
    fsspec.filesystem("memory").rm(shard)
    with pytest.raises(OSError, match="train-00002-of-00004.tuck': there is no such file"):
        tuckfold.open(url)


def test_fill_values_come_with_their_masks(tmp_path: Path) -> None:
    values = X.copy()
    values[::3, 4, 5] = np.nan
    tuckfold.save(tmp_path / "train.tuck", x=values, codec="dct_quant(rate=8)", fill=np.nan)
    with tuckfold.open(put(tmp_path / "train.tuck")) as f:
        assert np.isnan(f["x"][3, 4, 5]) and np.isnan(f["x"].read([99, 3])[:, 4, 5]).all()


def test_a_vanished_or_truncated_object_is_an_error_with_file_and_samples(path: Path) -> None:
    url, store = put(path), fsspec.filesystem("memory")
    f = tuckfold.open(url)
    assert np.array_equal(f["x"][0], X[0])
    whole = store.cat_file("/data/train.tuck")
    store.pipe_file("/data/train.tuck", whole[: len(whole) // 2])
    with pytest.raises(tuckfold.CorruptDataError, match=r"memory://data/train\.tuck': cannot fetch samples 490 to 499 of 'x': \d+ bytes from \d+ on were asked"):  # fmt: skip
        f["x"][499]
    store.rm("/data/train.tuck")
    with pytest.raises(OSError, match=r"train\.tuck': cannot fetch samples 490 to 499 of 'x': there is no such file"):  # fmt: skip
        f["x"][499]
    assert np.array_equal(f["x"][5], X[5])  # was fetched before
    store.pipe_file("/data/train.tuck", whole)
    assert np.array_equal(f["x"][499], X[499])


def test_a_damaged_or_replaced_object_is_never_a_wrong_batch(path: Path, tmp_path: Path) -> None:
    url, store = put(path), fsspec.filesystem("memory")
    whole = bytearray(store.cat_file("/data/train.tuck"))
    f = tuckfold.open(url)
    whole[whole.find(X[77].tobytes()) + 9] ^= 4
    store.pipe_file("/data/train.tuck", bytes(whole))
    with pytest.raises(tuckfold.CorruptDataError, match=r"memory://data/train\.tuck': the chunk of 'x' with samples 70 to 79"):  # fmt: skip
        f["x"][77]
    other = tmp_path / "other" / "train.tuck"
    other.parent.mkdir()
    tuckfold.save(other, x=X[::-1], y=Y + 2**40, codec={"x": "raw"}, samples_per_chunk=10)
    put(other)
    with pytest.raises(tuckfold.CorruptDataError, match="samples 200 to 209"):
        f["x"][205]
    copy = pickle.dumps(f)
    with pytest.raises(ValueError, match="has changed since it was pickled"):
        pickle.loads(copy)


def test_what_is_no_dataset_or_cut_off_is_refused_under_its_url(path: Path) -> None:
    store = fsspec.filesystem("memory")
    url = put(path)
    whole = store.cat_file("/data/train.tuck")
    for wrong in (b"", b"nonsense", whole[:100], whole[:-70], b"{}", b'{"shards": [{"file": "../x"}]}'):  # fmt: skip
        store.pipe_file("/data/train.tuck", wrong)
        with pytest.raises(tuckfold.CorruptDataError, match=r"memory://data/train\.tuck"):
            tuckfold.open(url)
    store.pipe_file("/data/train.tuck", whole + bytes(640))  # as an append that was stopped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tuckfold.open(url) as f:
            assert np.array_equal(f["x"][499], X[499])
    assert "memory://data/train.tuck" in str(caught[0].message)


def test_a_file_system_that_fails_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = put(path).replace("memory://", "counted://")
    f = tuckfold.open(url)

    def fail(*_, **__):
        raise PermissionError("token expired")

    monkeypatch.setattr(Counted, "cat_file", fail)
    with pytest.raises(OSError, match="cannot fetch samples 0 to 9 of 'x': PermissionError: token"):
        f["x"][0]


def _sum(f: tuckfold.File, numbers: list[int], queue) -> None:
    queue.put(float(f["x"].read(numbers).sum()))


def test_children_of_a_fork_and_copies_read_on(path: Path) -> None:
    f = tuckfold.open(f"file://{path}")
    assert np.array_equal(f["x"][0], X[0])
    want = float(X[[3, 444]].sum())
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=_sum, args=(f, [3, 444], queue))
        child.start()
        assert queue.get(timeout=60) == pytest.approx(want)
        child.join(60)
        assert child.exitcode == 0
    assert np.array_equal(f["x"][200], X[200])  # the children left the fetched file in its place
    with pickle.loads(pickle.dumps(f)) as again:
        assert np.array_equal(again["x"][17], X[17])


def test_batches_of_a_remote_file(path: Path) -> None:
    data = tuckfold.Dataset(tuckfold.open(put(path)), ("x", "y"))
    seen = []
    for x, y in data.batches(64, shuffle=True, seed=2):
        assert np.array_equal(x, X[y])
        seen += y.tolist()
    assert sorted(seen) == list(range(500))
