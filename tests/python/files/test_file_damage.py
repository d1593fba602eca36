"""Damaged files: an error that names file and samples, or a warning; never wrong values."""

import os
from pathlib import Path

import numpy as np
import pytest

import tuckfold

X = np.random.default_rng(2).random((40, 8, 8), dtype=np.float32)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def test_a_damaged_chunk_is_named_and_others_are_read(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X, codec="raw", samples_per_chunk=4)
    data = where.read_bytes()
    flip(where, data.index(X[17].tobytes()) + 3)
    with tuckfold.open(where) as f:
        with pytest.raises(tuckfold.CorruptDataError, match=r"a\.tuck.*'x' with samples 16 to 19"):
            f["x"][:]
        with pytest.raises(tuckfold.CorruptDataError, match="samples 16 to 19"):
            f["x"][[3, 17, 30]]
        with pytest.raises(tuckfold.CorruptDataError):
            list(f["x"])
        assert np.array_equal(f["x"][:16], X[:16]) and np.array_equal(f["x"][20:], X[20:])


def test_every_byte_that_is_changed_is_seen_or_means_nothing(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(
        where, x=X[:6], y=np.arange(6), codec={"x": "dct_quant(rate=4)"}, samples_per_chunk=2
    )
    good = where.read_bytes()
    with tuckfold.open(where) as f:
        want = f["x"][:], f["y"][:]
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 0x10
        (tmp_path / "b.tuck").write_bytes(bad)
        try:
            with tuckfold.open(tmp_path / "b.tuck", strict=True) as f:
                got = f["x"][:], f["y"][:]
        except (tuckfold.CorruptDataError, NotImplementedError):
            continue
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True)), at


def test_missing_samples_are_a_warning_or_refused(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X[:5])
    with tuckfold.Writer(where, append=True) as w:
        w.write(x=X[5:9])
    os.truncate(where, where.stat().st_size - 70)
    with pytest.warns(tuckfold.DataWarning, match=r"a\.tuck.*may be missing"):
        f = tuckfold.open(where)
    assert np.array_equal(f["x"][:], X[:5])
    with pytest.raises(tuckfold.CorruptDataError, match="missing"):
        tuckfold.open(where, strict=True)
    size = where.stat().st_size
    with pytest.raises(tuckfold.CorruptDataError, match="missing"):
        tuckfold.Writer(where, append=True, strict=True)
    assert where.stat().st_size == size  # what is left of them is still there
    with (
        pytest.warns(tuckfold.DataWarning, match="missing"),
        tuckfold.Writer(where, append=True) as w,
    ):
        w.write(x=X[5:7])
    assert np.array_equal(tuckfold.open(where, strict=True)["x"][:], X[:7])


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 200, -1, -64, -65])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X)
    os.truncate(where, cut if cut >= 0 else where.stat().st_size + cut)
    with pytest.raises(tuckfold.CorruptDataError, match=r"a\.tuck"):
        tuckfold.open(where)


def test_a_vanished_or_replaced_shard_is_an_error(tmp_path: Path) -> None:
    where = tmp_path / "a.tuck"
    tuckfold.save(where, x=X, shards=3)
    shard = tmp_path / "a-00001-of-00003.tuck"
    kept = shard.read_bytes()
    shard.unlink()
    with pytest.raises(OSError, match="a-00001-of-00003"):
        tuckfold.open(where)
    tuckfold.save(shard, x=X[:13])
    with pytest.raises(tuckfold.CorruptDataError, match="a-00001-of-00003"):
        tuckfold.open(where)
    shard.write_bytes(kept)
    assert np.array_equal(tuckfold.open(where)["x"][:], X)


def test_frames(tmp_path: Path) -> None:
    for spec in ("zstd", "raw", "bounded(abs=0.001) | zstd", "dct_quant(rate=4)"):
        data = tuckfold.dumps(X, spec)
        back = tuckfold.loads(data)
        assert back.shape == X.shape and np.abs(back - X).max() < 0.2
        for wrong in (data[:-1], data + b"x", b"", b"x" * 100, data[: len(data) // 2]):
            with pytest.raises(tuckfold.CorruptDataError):
                tuckfold.loads(wrong)
        for at in range(0, len(data), max(1, len(data) // 50)):
            bad = bytearray(data)
            bad[at] ^= 1
            with pytest.raises((tuckfold.CorruptDataError, NotImplementedError)):
                tuckfold.loads(bad)
    assert np.array_equal(tuckfold.loads(memoryview(tuckfold.dumps(X))), X)
    assert np.array_equal(tuckfold.loads(tuckfold.dumps(np.zeros(1 << 20))), np.zeros(1 << 20))
    scalar = tuckfold.loads(tuckfold.dumps(np.array(3.5), "raw"))
    assert scalar.shape == () and scalar == 3.5
