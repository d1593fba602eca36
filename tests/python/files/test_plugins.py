"""Codecs for numcodecs and Zarr, where these are installed."""

import doctest
import importlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuckfold

ROOT = Path(__file__).parents[3]
X = np.cumsum(np.random.default_rng(8).standard_normal((50, 60, 70)), axis=2)


def test_entry_points_name_what_there_is() -> None:
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(points) == {"numcodecs.codecs", "zarr.codecs"}
    for group, names in points.items():
        pytest.importorskip(group.partition(".")[0])
        module, _, kind = names["tuckfold"].partition(":")
        assert isinstance(getattr(importlib.import_module(module), kind), type)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["zstd", "raw", "shuffle | zstd"])
def test_numcodecs_own_checks_pass_with_exact_specs(spec: str) -> None:
    pytest.importorskip("numcodecs")
    common = pytest.importorskip("numcodecs.tests.common")
    from tuckfold.numcodecs import Tuckfold

    rng = np.random.default_rng(1)
    arrays = [
        np.arange(1000, dtype="i4"),
        np.linspace(1000, 1001, 1000, dtype="f8"),
        rng.normal(loc=1000, scale=1, size=(100, 10)),
        rng.integers(0, 2, size=1000).astype(bool).reshape(100, 10, order="F"),
        rng.choice([b"a", b"bb", b"ccc"], size=1000).reshape(10, 10, 10),
        rng.integers(0, 2**60, size=1000, dtype="u8").view("M8[ns]"),
        rng.integers(0, 2**60, size=1000, dtype="u8").view("m8[m]").reshape(10, 10, 10, order="F"),
        np.arange(12, dtype="c16").reshape(3, 4),
        np.arange(6, dtype=">i4"),
    ]
    for array in arrays:
        common.check_encode_decode(array, Tuckfold(spec))
    common.check_config(Tuckfold(spec))
    common.check_err_encode_object_buffer(Tuckfold(spec))
    common.check_err_decode_object_buffer(Tuckfold(spec))


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, codec",
    [
        ("zstd", "Zstd"),
        ("lz4", "LZ4"),
        ("zlib", "Zlib"),
        ("gzip", "GZip"),
        ("bz2", "BZ2"),
        ("lzma", "LZMA"),
    ],
)
def test_numcodecs_own_tests_pass_with_exact_specs(
    module: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests that numcodecs ships for a compressor, with ours in its place."""
    tests = pytest.importorskip(f"numcodecs.tests.test_{module}")
    from tuckfold.numcodecs import Tuckfold

    monkeypatch.setattr(tests, "codecs", [Tuckfold(s) for s in ("zstd", "raw", "shuffle | zstd")])
    monkeypatch.setattr(tests, codec, lambda *_, **__: Tuckfold("zstd"))
    ran = 0
    for name in ("encode_decode", "config", "err_decode_object_buffer", "err_encode_object_buffer"):
        test = getattr(tests, f"test_{name}", None)
        if test is not None:
            test()
            ran += 1
    assert ran >= 3


@pytest.mark.slow
def test_lossy_specs_of_numcodecs_keep_their_bounds_and_refuse_bytes() -> None:
    numcodecs = pytest.importorskip("numcodecs")
    from tuckfold.numcodecs import Tuckfold

    codec = numcodecs.get_codec({"id": "tuckfold", "spec": "bounded(abs=0.01) | zstd"})
    assert codec == Tuckfold("bounded(abs=0.01) | zstd")
    for array in (X, X.astype(np.float32), np.asfortranarray(X)):
        packed = codec.encode(array)
        order = "C" if array.flags.c_contiguous else "F"
        back = codec.decode(packed).reshape(array.shape, order=order)
        assert back.dtype == array.dtype and np.abs(back - array).max() <= 0.011
        assert len(packed) < array.nbytes / 2
        out = np.empty_like(array)
        codec.decode(packed, out=out)
        assert np.array_equal(out, back)
    for wrong in (X.tobytes(), X.astype(complex)):
        with pytest.raises(ValueError, match="must be the first codec"):
            codec.encode(wrong)
    with pytest.raises(tuckfold.CorruptDataError):
        codec.decode(packed[:-1])
    packed = codec.encode(X.astype(np.float32))
    with pytest.raises(tuckfold.CorruptDataError, match="values of float32, and out is of int32"):
        codec.decode(packed, out=np.empty(X.shape, np.int32))
    zeros = np.zeros((2048, 1024), np.float32)
    assert not codec.decode(codec.encode(zeros)).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec, bound",
    [("zstd", 0), ("dct_quant(rate=8)", 0.5), ("bounded(abs=0.01)", 0.011), ("raw", 0)],
)
def test_zarr_arrays(tmp_path: Path, spec: str, bound: float) -> None:
    zarr = pytest.importorskip("zarr")
    from tuckfold.zarr import TuckfoldCodec

    for dtype, chunks in itertools.product(["f4", "f8"], [(10, 60, 70), (7, 33, 70), (1, 16, 16)]):
        values = X.astype(dtype)
        z = zarr.create_array(tmp_path / f"{dtype}{chunks}.zarr", shape=X.shape, dtype=dtype, chunks=chunks,
                              serializer=TuckfoldCodec(spec), compressors=None)  # fmt: skip
        z[:] = values
        again = zarr.open_array(z.store_path)
        assert np.abs(again[:] - values).max() <= bound
        assert again[3:5, ::7, -1].shape == (2, 9)
        assert spec_of_metadata(again) == str(tuckfold.CodecSpec(spec))
    whole = zarr.create_array(
        {}, data=np.arange(100), chunks=(7,), serializer=TuckfoldCodec("zstd")
    )
    assert np.array_equal(whole[:], np.arange(100))
    whole[5:9] = 0
    assert whole[4:10].tolist() == [4, 0, 0, 0, 0, 9]
    scalar = zarr.create_array({}, data=np.float32(2.5), serializer=TuckfoldCodec("zstd"))
    assert scalar[()] == 2.5
    if spec != "raw":
        zeros = zarr.create_array({}, shape=(4096, 4096), dtype="f4", chunks=(4096, 4096), fill_value=1,
                                  serializer=TuckfoldCodec(f"{spec} | zstd"), compressors=None)  # fmt: skip
        zeros[:] = 0
        assert not zeros[:].any()


def spec_of_metadata(array) -> str:
    return array.metadata.to_dict()["codecs"][0]["configuration"]["spec"]


@pytest.mark.slow
def test_zarr_shards_groups_and_format_2(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    from tuckfold.numcodecs import Tuckfold
    from tuckfold.zarr import TuckfoldCodec

    z = zarr.create_array(tmp_path / "s.zarr", data=X, shards=(50, 60, 70), chunks=(10, 30, 35),
                          serializer=TuckfoldCodec("zstd"), compressors=None)  # fmt: skip
    assert np.array_equal(z[:], X)
    old = zarr.create_array(tmp_path / "old.zarr", data=X, chunks=(10, 60, 70), zarr_format=2,
                            compressors=Tuckfold("dct_quant(rate=8)"))  # fmt: skip
    assert np.abs(zarr.open_array(old.store_path)[:] - X).max() < 0.5


@pytest.mark.slow
def test_a_damaged_chunk_of_zarr_is_an_error(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    from tuckfold.zarr import TuckfoldCodec

    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=X.shape, serializer=TuckfoldCodec("zstd"), compressors=None)  # fmt: skip
    chunk = tmp_path / "a.zarr/c/0/0/0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(tuckfold.CorruptDataError, match="checksum"):
        zarr.open_array(tmp_path / "a.zarr")[:]
    chunk.write_bytes(tuckfold.dumps(X[:2]))
    with pytest.raises(tuckfold.CorruptDataError, match="and the array"):
        zarr.open_array(tmp_path / "a.zarr")[:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numcodecs", "zarr"])
def test_examples_of_plug_ins_run(name: str) -> None:
    pytest.importorskip(name)
    module = importlib.import_module(f"tuckfold.{name}")
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


@pytest.mark.slow
def test_plug_ins_never_import_torch() -> None:
    pytest.importorskip("zarr")
    program = "import sys, tuckfold.zarr, tuckfold.numcodecs; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
