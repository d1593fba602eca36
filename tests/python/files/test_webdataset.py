"""Members of WebDataset's tar files, where it is installed."""

import doctest
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tuckfold

pytestmark = pytest.mark.slow
wds = pytest.importorskip("webdataset")
import tuckfold.webdataset  # noqa: E402

X = np.cumsum(np.random.default_rng(2).random((40, 3, 16, 16), dtype=np.float32) - 0.5, axis=3)


def write(path: Path, spec: str) -> None:
    with wds.TarWriter(str(path), encoder=tuckfold.webdataset.encoder(spec)) as writer:
        for i, x in enumerate(X):
            writer.write({"__key__": f"{i:06}", "image.tuck": x, "cls": i, "json": {"i": i}})


@pytest.mark.parametrize("spec, bound", [("zstd", 0), ("dct_quant(rate=8)", 0.2)])
def test_arrays_are_written_and_read(tmp_path: Path, spec: str, bound: float) -> None:
    write(tmp_path / "a.tar", spec)
    data = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
    data = data.decode(tuckfold.webdataset.decode).to_tuple("image.tuck", "cls")
    images, labels = zip(*data, strict=True)
    assert labels == tuple(range(40)) and images[0].dtype == np.float32
    assert np.abs(np.stack(images) - X).max() <= bound


def test_a_member_may_be_a_whole_file(tmp_path: Path) -> None:
    tuckfold.save(tmp_path / "a.tuck", x=X, y=np.arange(40))
    found = tuckfold.webdataset.decode(".tuck", (tmp_path / "a.tuck").read_bytes())
    assert list(found) == ["x", "y"] and np.array_equal(found["x"], X)
    assert tuckfold.webdataset.decode(".npy", b"") is None
    assert tuckfold.webdataset.decode(".image.TUCK", tuckfold.dumps(X)).shape == X.shape


def test_a_damaged_member_stops_the_loop_and_names_the_sample(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", "zstd")
    with tarfile.open(tmp_path / "a.tar") as tar:
        member = tar.getmember("000007.image.tuck")
    data = bytearray((tmp_path / "a.tar").read_bytes())
    data[member.offset_data + member.size // 2] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    samples = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
    got = []
    with pytest.raises(wds.autodecode.DecodingError) as caught:
        for sample in samples.decode(tuckfold.webdataset.decode):
            got.append(sample["cls"])
    assert got == list(range(7))
    assert caught.value.key == "000007" and caught.value.url == str(tmp_path / "a.tar")
    assert isinstance(caught.value.__cause__, tuckfold.CorruptDataError)
    with pytest.raises(tuckfold.CorruptDataError):
        tuckfold.webdataset.decode(".tuck", tuckfold.dumps(X)[:-1])
    tuckfold.save(tmp_path / "a.tuck", x=X)
    whole = (tmp_path / "a.tuck").read_bytes()
    for wrong in (whole[:-1], whole[:2000]):
        with pytest.raises(tuckfold.CorruptDataError):
            tuckfold.webdataset.decode(".tuck", wrong)


def test_the_example_runs() -> None:
    assert doctest.testmod(tuckfold.webdataset, extraglobs={"np": np}).failed == 0
