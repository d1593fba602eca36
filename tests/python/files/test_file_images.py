"""Images that the loader crops, mirrors, scales and converts while it reads them."""

from pathlib import Path

import numpy as np
import pytest

import tuckfold

torch = pytest.importorskip("torch")
import tuckfold.torch  # noqa: E402

RNG = np.random.default_rng(12)
CHW = RNG.integers(0, 256, (90, 3, 20, 24), dtype=np.uint8)
MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("images") / "a.tuck"
    tuckfold.save(
        where,
        chw=CHW,
        hwc=np.ascontiguousarray(CHW.transpose(0, 2, 3, 1)),
        gray=CHW[:, 0].astype(np.float32),
        number=np.arange(90),
        codec={"chw": "raw", "hwc": "zstd"},
        sync=False,
    )
    return where


def plain(numbers: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What normalization by torch's operators gives."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return ((torch.from_numpy(CHW[numbers]).float() - mean) / std).to(dtype)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["chw", "hwc"])
def test_normalized_batches_are_those_of_torch(
    path: Path, name: str, dtype: torch.dtype, channels_last: bool
) -> None:
    images = tuckfold.torch.Images(
        MEAN, STD, dtype=dtype, channels_last=channels_last, layout=name.upper()
    )
    loader = tuckfold.torch.DataLoader(
        path, 32, arrays=(name, "number"), shuffle=True, images={name: images}
    )
    for batch, numbers in loader:
        assert batch.dtype == dtype and batch.shape == (len(numbers), 3, 20, 24)
        assert batch.is_contiguous(
            memory_format=torch.channels_last if channels_last else torch.contiguous_format
        )
        tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
        assert (batch.float() - plain(numbers)).abs().max() < tolerance


def windows_of(batch: torch.Tensor, numbers: torch.Tensor, pad: int) -> list[tuple[int, int, bool]]:
    """Where each image of a batch was taken from, found by search."""
    padded = np.pad(CHW, ((0, 0), (0, 0), (pad, pad), (pad, pad))).astype(np.float32)
    rows, cols = batch.shape[2:]
    found = []
    for image, number in zip(batch.numpy(), numbers.tolist(), strict=True):
        places = [
            (top, left, flip)
            for top in range(padded.shape[2] - rows + 1)
            for left in range(padded.shape[3] - cols + 1)
            for flip in (False, True)
            if np.array_equal(
                padded[number, :, top : top + rows, left : left + cols][..., :: -1 if flip else 1],
                image,
            )
        ]
        assert len(places) == 1, number
        found += places
    return found


def test_random_windows_follow_from_seed_epoch_and_sample(path: Path) -> None:
    images = tuckfold.torch.Images(crop=(17, 18), pad=2, flip=True)

    def epochs(batch_size: int, seed: int = 3, **options) -> list[dict[int, tuple]]:
        loader = tuckfold.torch.DataLoader(
            path, batch_size, arrays=("chw", "number"), seed=seed, images={"chw": images}, **options
        )
        found = []
        for _ in range(2):
            windows = {}
            for batch, numbers in loader:
                windows |= zip(numbers.tolist(), windows_of(batch, numbers, 2), strict=True)
            found.append(windows)
        return found

    first = epochs(32, shuffle=True)
    assert len(first[0]) == 90 and first[0] != first[1]
    assert epochs(7, prefetch=0) == first  # whatever the batches are
    assert epochs(32, seed=4)[0] != first[0]
    half = epochs(32, rank=1, world_size=2)[0]
    assert len(half) == 45 and all(first[0][number] == window for number, window in half.items())
    tops, lefts, flips = (set(values) for values in zip(*first[0].values(), strict=True))
    assert tops == set(range(8)) and lefts == set(range(11)) and flips == {False, True}
    middle = tuckfold.torch.Images(crop=16, random=False)
    loader = tuckfold.torch.DataLoader(path, 90, arrays="chw", images={"chw": middle})
    assert np.array_equal(next(iter(loader)).numpy(), CHW[:, :, 2:18, 4:20].astype(np.float32))


def test_a_position_in_the_middle_of_an_epoch_goes_on_with_the_same_windows(path: Path) -> None:
    images = {"chw": tuckfold.torch.Images(crop=12, flip=True)}
    loader = tuckfold.torch.DataLoader(path, 16, arrays="chw", shuffle=True, seed=8, images=images)
    whole = list(loader)
    loader.set_epoch(0)
    for _, _ in zip(range(2), loader, strict=False):
        pass
    other = tuckfold.torch.DataLoader(path, 16, arrays="chw", shuffle=True, seed=8, images=images)
    state = tuckfold.torch.DataLoader(path, 16, arrays="chw", shuffle=True, seed=8).state_dict()
    other.load_state_dict(state | {"batch": 2})
    rest = list(other)
    assert len(rest) == len(whole) - 2
    assert all(torch.equal(a, b) for a, b in zip(rest, whole[2:], strict=True))


def test_planes_without_channels_and_a_transform(path: Path) -> None:
    images = {"gray": tuckfold.torch.Images(mean=10, std=2)}
    loader = tuckfold.torch.DataLoader(
        path, 50, arrays=("gray", "number"), images=images, transform=lambda batch: batch[0] + 1
    )
    batch = next(iter(loader))
    assert batch.shape == (50, 1, 20, 24)
    want = (CHW[:50, :1].astype(np.float32) - 10) / 2 + 1
    assert np.abs(batch.numpy() - want).max() < 1e-5


def test_what_cannot_be_is_refused(path: Path) -> None:
    Images, Loader = tuckfold.torch.Images, tuckfold.torch.DataLoader
    for wrong in ({"dtype": torch.float64}, {"layout": "NCHW"}, {"pad": -1}):
        with pytest.raises(ValueError, match=r"\[images\]"):
            Images(**wrong)
    for name, wrong in (("chw", {"crop": 21}), ("chw", {"mean": (1, 2)}), ("chw", {"std": 0}), ("chw", {"crop": 0}), ("number", {})):  # fmt: skip
        with pytest.raises(ValueError, match=r"\[images\]"):
            Loader(path, 8, images={name: Images(**wrong)})
    with pytest.raises(ValueError, match="names 'other'"):
        Loader(path, 8, images={"other": Images()})


def test_a_damaged_chunk_names_file_and_samples(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.find(CHW[40].tobytes()[:64])
    data[at] ^= 1
    (tmp_path / "b.tuck").write_bytes(data)
    loader = tuckfold.torch.DataLoader(
        tmp_path / "b.tuck", 90, arrays="chw", images={"chw": tuckfold.torch.Images()}
    )
    with pytest.raises(
        tuckfold.CorruptDataError, match=r"b\.tuck': the chunk of 'chw' with samples"
    ):
        next(iter(loader))
