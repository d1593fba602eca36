"""Reading .tuck files: numpy's own indexing, lazily."""

import gc
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

import tuckfold

RNG = np.random.default_rng(7)
IMAGES = RNG.integers(0, 255, (23, 3, 5, 4), dtype=np.uint8)
LABELS = np.arange(23) * 1000003
FIELD = RNG.random((23, 16, 16), dtype=np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("files") / "a.tuck"
    tuckfold.save(
        where,
        image=IMAGES,
        label=LABELS,
        field=FIELD,
        codec={"field": "dct_quant(rate=4)", "image": "zstd"},
        samples_per_chunk=4,
        metadata={"classes": ["cat", "dog"], "nested": {"a": None}},
    )
    return where


KEYS = [
    0, -1, 22, np.int64(5), slice(None), slice(3, 9), slice(None, None, -1), slice(20, 2, -3), slice(5, 5),
    slice(-4, None), slice(0, 100, 7), ..., None, (None, 3), (..., 0), (..., 0, 0), (slice(2, 4), 1),
    (slice(None), None, 2), (slice(None, None, 5), slice(None), slice(1, 3)), [1, 4, 1, -1], [], np.array([[0, 1], [2, 22]]),
    ([3, 2, 1], [0, 1, 2]), ([3, 2, 1], slice(None), [0, 1, 2]), (slice(3), [0, 2]), (5, [0, 2]), ([5, 6], 1, [0, 2]),
    LABELS % 3 == 0, list(LABELS % 2 == 0), (LABELS > 10**7, 1), IMAGES > 200, IMAGES[:, :, 0, 0] > 100,
    np.zeros(23, bool), (..., [0, 1]), (slice(None), IMAGES[0] > 128), np.array(3), np.array([], np.intp), True,
    (0, 1, 2, 3), (np.array([1, 2], np.uint8),), range(4), (None, slice(1, 9), 0), (slice(4), ..., None),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(key)[:30].replace("\n", " "))
def test_indexing_is_numpys(path: Path, key: object) -> None:
    with tuckfold.open(path) as f:
        for name, whole in (
            ("image", IMAGES),
            ("label", LABELS),
            ("field", np.asarray(f["field"])),
        ):
            try:
                want = whole[key]
            except IndexError as error:
                with pytest.raises(IndexError, match=str(error).split(":")[0][:20]):
                    f[name][key]
                continue
            got = f[name][key]
            assert np.shape(got) == np.shape(want) and got.dtype == want.dtype
            assert np.array_equal(got, want)


def test_random_indices_are_numpys(path: Path) -> None:
    rng = np.random.default_rng(3)

    def one(length: int) -> object:
        a, b = rng.integers(-length - 2, length + 3, 2)
        kind = rng.integers(6)
        if kind == 0:
            return int(rng.integers(-length, length))
        if kind == 1:
            return rng.integers(-length, length, rng.integers(0, 5))
        if kind == 2:
            return rng.random(length) < 0.5
        return slice(int(a), int(b), int(rng.choice([1, 2, -1, -3])))

    with tuckfold.open(path) as f:
        for _ in range(300):
            key = tuple(one(n) for n in IMAGES.shape[: rng.integers(1, 5)])
            try:
                want = IMAGES[key]
            except IndexError:  # arrays that do not broadcast
                with pytest.raises(IndexError):
                    f["image"][key]
                continue
            assert np.array_equal(f["image"][key], want), key


@pytest.mark.parametrize(
    "key", [23, -24, [0, 23], [-24], "x", 1.5, [0.5], (0, 0, 0, 0, 0), np.zeros(22, bool), (0, 5)]
)
def test_what_numpy_refuses_is_refused_alike(path: Path, key: object) -> None:
    with tuckfold.open(path) as f, pytest.raises(IndexError):
        f["image"][key]


def test_parts_of_large_samples_are_read_a_few_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuckfold._file._PART_BYTES", 3 * 60)
    with tuckfold.open(path) as f:
        array, most = f["image"], []
        read = type(array).read
        monkeypatch.setattr(
            type(array), "read", lambda self, s, **k: most.append(len(s)) or read(self, s, **k)
        )
        for key in [
            (slice(None), 1),
            (..., 0),
            (None, slice(2, 20, 3), 1),
            (slice(None, None, -1), slice(0, 2)),
        ]:
            assert np.array_equal(array[key], IMAGES[key]), key
        assert max(most) == 3


def test_an_array_looks_like_one_of_numpy(path: Path) -> None:
    with tuckfold.open(path) as f:
        a = f["image"]
        assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes, len(a)) == (
            IMAGES.shape, IMAGES.dtype, 4, IMAGES.size, IMAGES.nbytes, 23)  # fmt: skip
        assert (
            np.array_equal(np.asarray(a), IMAGES) and np.asarray(a, np.float64).dtype == np.float64
        )
        assert np.array_equal(np.stack(list(a)), IMAGES)
        assert [int(label) for label in f["label"]] == LABELS.tolist()
        assert np.array_equal(np.concatenate([a, a]), np.concatenate([IMAGES, IMAGES]))
        assert np.mean(a) == IMAGES.mean()
        with pytest.raises(ValueError, match="copy"):
            np.array(a, copy=False)
        assert str(f["field"].codec) == "dct_quant(rate=4)" and f["field"].ratio > 6
        assert (
            f["field"].samples_per_chunk == 4
            and f["field"].stored == "f32"
            and f["field"].fill == ()
        )
        assert "field: (23, 16, 16) f32, dct_quant(rate=4)" in repr(f["field"])


def test_a_file_says_what_is_in_it(path: Path) -> None:
    with tuckfold.open(str(path)) as f:
        assert (f.samples, list(f), len(f), "x" in f) == (23, ["image", "label", "field"], 3, False)
        assert f.metadata == {"classes": ["cat", "dog"], "nested": {"a": None}}
        assert f.nbytes == path.stat().st_size and f.path == str(path)
        text = repr(f)
        for word in ("23 samples", "image", "u8", "(3, 5, 4)", "dct_quant(rate=4)", "classes"):
            assert word in text
        with pytest.raises(KeyError, match="image, label, field"):
            f["pixels"]
    assert f.closed
    with pytest.raises(ValueError, match="closed"):
        f["image"][0]
    with pytest.raises(OSError, match="none.tuck"):
        tuckfold.open(path.parent / "none.tuck")


def test_read_fills_memory_of_the_callers(path: Path) -> None:
    with tuckfold.open(path) as f:
        out = np.zeros((4, 5, 3, 6), np.uint8)
        into = out.transpose(3, 2, 1, 0)
        assert f["image"].read([5, 0, 5, 22, 7, 1], out=into) is into
        assert np.array_equal(into, IMAGES[[5, 0, 5, 22, 7, 1]])
        assert np.array_equal(f["image"].read(slice(3, None, 4)), IMAGES[3::4])
        for wrong in (
            np.zeros((2, 3, 5, 4)),
            np.zeros((3, 3, 5, 4), np.uint8),
            np.zeros(6, np.uint8),
        ):
            with pytest.raises(ValueError):
                f["image"].read([0, 1], out=wrong)
        with pytest.raises(ValueError, match=r"0\.\.22, got 23"):
            f["image"].read([0, 23])
        with pytest.raises(ValueError, match=r"0\.\.22, got -1"):
            f["image"].read([-1])
        frozen = np.zeros((1, 3, 5, 4), np.uint8)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="writeable"):
            f["image"].read([0], out=frozen)


def test_progress_reaches_the_end(path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with tuckfold.open(path) as f:
        f["image"].read(progress=lambda done, all: seen.append((done, all)))
    assert seen[-1] == (IMAGES.nbytes, IMAGES.nbytes)
    with tuckfold.open(path) as f:
        try:
            import tqdm  # noqa: F401
        except ImportError:
            with pytest.raises(ValueError, match="needs tqdm"):
                f["image"].read(progress=True)


@pytest.mark.parametrize(
    "dtype", ["f4", "f2", "f8", "u1", "i4", "i8", "u2", "i2", "i1", "u4", "u8", "?", "bf16"]
)
def test_every_dtype_and_odd_shapes(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for number, shape in enumerate([(5,), (5, 1), (0, 4), (2, 7, 3, 1, 2)]):
        values = rng.integers(0, 2, shape)
        kind = {"bf16": "bf16"} if dtype == "bf16" else {}
        array = (values * 0x3F80).astype(np.uint16) if kind else values.astype(dtype)
        where = tmp_path / f"{number}.tuck"
        tuckfold.save(where, x=array, dtype={"x": "bf16"} if kind else None)
        with tuckfold.open(where) as f:
            back = f["x"][:]
            assert back.shape == shape
            assert back.tobytes() == array.tobytes()
            if kind:
                assert f["x"].stored == "bf16" and str(back.dtype) in ("bfloat16", "uint16")
            else:
                assert back.dtype == array.dtype


def test_a_sample_has_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="elements"):
        tuckfold.save(tmp_path / "a.tuck", x=np.zeros((3, 0)))
    assert not list(tmp_path.iterdir())


def test_threads_read_and_close_at_the_same_time(path: Path) -> None:
    f = tuckfold.open(path)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            index = rng.integers(0, 23, 5)
            try:
                if not np.array_equal(f["image"][index], IMAGES[index]):
                    wrong.append(index)
            except ValueError as error:
                if "closed" not in str(error):
                    wrong.append(error)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    f.close()  # in the middle
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_manifest_is_read_as_one_file(tmp_path: Path) -> None:
    tuckfold.save(tmp_path / "a.tuck", image=IMAGES, label=LABELS, shards=4)
    assert (tmp_path / "a.tuck").read_bytes()[:1] == b"{"
    with tuckfold.open(tmp_path / "a.tuck") as f:
        assert np.array_equal(f["image"][:], IMAGES)
        for a, b in itertools.product([0, 5, 22], [1, 23]):
            assert np.array_equal(f["label"][a:b], LABELS[a:b])


def test_fill_values_for_all_are_for_arrays_that_have_them(tmp_path: Path) -> None:
    x = np.ones((4, 8, 8), np.float32)
    x[1, 2, 3] = np.nan
    path = tmp_path / "a.tuck"
    tuckfold.save(path, x=x, label=np.arange(4, dtype=np.int32), mask=x > 0, fill=[0.0, np.nan])
    with tuckfold.open(path) as f:
        assert len(f["x"].fill) == 2 and f["label"].fill == f["mask"].fill == (0.0,)
        assert np.isnan(f["x"][1][2, 3])
    for fill, arrays in ((0.5, {"label": np.arange(4)}), (-1, {"u": np.zeros((2, 3), np.uint8)}), (300, {"u": np.zeros((2, 3), np.uint8)})):  # fmt: skip
        with pytest.raises(ValueError, match="no array has that value"):
            tuckfold.save(tmp_path / "b.tuck", arrays, fill=fill)
        with pytest.raises(ValueError, match="no array has that value"):
            tuckfold.Writer(tmp_path / "b.tuck", arrays, fill=fill)
    with pytest.raises(ValueError, match="has no value nan"):
        tuckfold.save(tmp_path / "b.tuck", label=np.arange(4), fill={"label": np.nan})
    assert [p.name for p in tmp_path.iterdir()] == ["a.tuck"]


def test_fill_values_come_back(tmp_path: Path) -> None:
    field = FIELD.copy()
    field[3, 2:5, 7] = np.nan
    field[4, 0, 0] = -999
    tuckfold.save(tmp_path / "a.tuck", field=field, codec="dct_quant(rate=6)", fill=[np.nan, -999])
    with tuckfold.open(tmp_path / "a.tuck") as f:
        back = f["field"][:]
        assert np.array_equal(np.isnan(back), np.isnan(field)) and back[4, 0, 0] == -999
        assert np.isnan(f["field"].fill[0]) and f["field"].fill[1] == -999
        assert np.nanmax(np.abs(back - field)) < 0.1


def test_a_file_is_closed_when_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "dropped.tuck"
    tuckfold.save(path, x=FIELD)
    gc.disable()  # which would find a cycle some time later
    try:
        values = tuckfold.open(path)["x"]  # holds the file
        assert np.array_equal(values[:2], FIELD[:2]) and "dropped.tuck" in open_files()
        del values
        assert "dropped.tuck" not in open_files()
    finally:
        gc.enable()


def open_files() -> str:
    return Path("/proc/self/maps").read_text()
