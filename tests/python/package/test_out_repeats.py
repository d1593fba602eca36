"""An output two of whose elements share memory cannot hold what is unpacked, and is refused."""

from pathlib import Path

import numpy as np
import pytest

import tuckfold

VALUES = np.arange(6, dtype="f4").reshape(3, 2)
SHARED = [((3, 2), (1, 1)), ((3, 2), (2, 4)), ((3, 2), (0, 1)), ((3, 2), (-1, 1)), ((3, 2), (1, 2))]
APART = [((3, 2), (2, 1)), ((3, 2), (1, 3)), ((3, 2), (-2, 1)), ((3, 2), (3, 2)), ((3, 2), (5, 1))]


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    steps = [4 * step for step in strides]
    return np.lib.stride_tricks.as_strided(np.zeros(32, "f4")[12:], shape, steps)


@pytest.mark.parametrize("shape, strides", SHARED)
def test_shared_elements_are_refused(shape, strides, tmp_path: Path) -> None:
    packed = tuckfold.pack(VALUES, "raw")
    with pytest.raises(ValueError, match="must not repeat elements"):
        tuckfold.unpack(packed, "raw", out=strided(shape, strides))
    tuckfold.save(tmp_path / "a.tuck", x=VALUES, samples_per_chunk=1)  # none of which repeats alone
    with (
        tuckfold.open(tmp_path / "a.tuck") as file,
        pytest.raises(ValueError, match="must not repeat elements"),
    ):
        file["x"].read(out=strided(shape, strides))


@pytest.mark.parametrize("shape, strides", SHARED)
def test_shared_elements_of_tensors_are_refused(shape, strides) -> None:
    torch = pytest.importorskip("torch")
    tt = pytest.importorskip("tuckfold.torch")
    if min(strides) < 0:
        pytest.skip("torch has no negative strides")
    x = torch.from_numpy(VALUES)
    for unpack in (
        lambda out: tt.unpack(tt.pack(x, "raw"), "raw", out=out),
        lambda out: tt.Packed.pack(x, "raw").unpack(out=out),
    ):
        with pytest.raises((ValueError, RuntimeError), match="must not repeat elements"):
            unpack(torch.as_strided(torch.zeros(32), shape, strides))


@pytest.mark.parametrize("shape, strides", APART)
def test_interleaved_elements_are_filled(shape, strides, tmp_path: Path) -> None:
    out = strided(shape, strides)
    tuckfold.unpack(tuckfold.pack(VALUES, "raw"), "raw", out=out)
    assert (out == VALUES).all()
    tuckfold.save(tmp_path / "a.tuck", x=VALUES)
    out = strided(shape, strides)
    with tuckfold.open(tmp_path / "a.tuck") as file:
        file["x"].read(out=out)
    assert (out == VALUES).all()
