"""Batches that a GPU makes of packed samples: those of the CPU, ready for the stream that asks for them."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import gpu
import tuckfold
import tuckfold.torch as tft
from tuckfold.torch import _device

pytestmark = gpu.marks
each = gpu.each
RNG = np.random.default_rng(3)
COUNT = 200
CHW = RNG.integers(0, 256, (COUNT, 3, 32, 40), dtype=np.uint8)
SMOOTH = np.cumsum(RNG.random((COUNT, 3, 32, 40), dtype=np.float32) - 0.5, axis=3)
ODD = np.ascontiguousarray(CHW[:, :, :27, :29])
ARRAYS = {
    "raw": (CHW, "raw"),
    "coded": (CHW, "dct_quant(rate=4)"),
    "odd": (ODD, "dct_quant(rate=3)"),
    "hwc": (np.ascontiguousarray(CHW.transpose(0, 2, 3, 1)), "dct_quant(rate=4)"),
    "exact": (CHW.astype(np.float32) / 255, "bytes_of"),
    "zstd": (CHW, "zstd"),
    "wide": (CHW.astype(np.uint16) * 200, "raw"),
    "smooth": (SMOOTH, "dct_quant(rate=6)"),
    "field": (SMOOTH[:, 0], "dct_chop(keep=4)"),
    "number": (np.arange(COUNT), "bits(width=8)"),
}
FOLDER = tempfile.TemporaryDirectory(prefix="tuckfold-")


def file_of_all() -> Path:
    path = Path(FOLDER.name) / "a.tuck"
    if not path.exists():
        tuckfold.save(
            path,
            {name: values for name, (values, _) in ARRAYS.items()},
            codec={name: codec for name, (_, codec) in ARRAYS.items()},
            samples_per_chunk=4,
            sync=False,
        )
    return path


def loaders(path: Path, arrays, **options) -> tuple:
    plain = tft.DataLoader(path, arrays=arrays, **options)
    there = tft.DataLoader(path, arrays=arrays, device=gpu.DEVICE, **options)
    if not gpu.ON_GPU:
        there._mover = _device.Mover(
            torch.device("cpu"), there.dataset._data.arrays, there._readers, kernels=True
        )
    return plain, there


def check(there: torch.Tensor, here: torch.Tensor) -> None:
    assert there.device.type == gpu.DEVICE and there.stride() == here.stride()
    assert gpu.same(there.cpu().contiguous(), here.contiguous())


NAMES = ["raw", "coded", "odd", "hwc", "exact", "zstd", "wide", "smooth", "field"]


@each(*[(n, d, last) for n in NAMES for d in gpu.WIDE for last in (False, True)])
def test_images_are_those_of_the_cpu(name: str, dtype: str, last: bool) -> None:
    images = tft.Images(
        mean=0.4, std=0.3, crop=(24, 25), pad=2, flip=True, dtype=_device.DTYPES[dtype],
        channels_last=last, layout="HWC" if name == "hwc" else "CHW"
    )  # fmt: skip
    plain, there = loaders(
        file_of_all(), (name, "number"), batch_size=48, shuffle=True, seed=5, images={name: images}
    )
    for _ in range(2):  # epochs
        for (batch, numbers), (moved, moved_numbers) in zip(plain, there, strict=True):
            check(moved, batch)
            check(moved_numbers, numbers)


def test_arrays_that_are_no_images_are_those_of_the_cpu() -> None:
    for prefetch in (0, 3):
        plain, there = loaders(file_of_all(), None, batch_size=64, shuffle=True, prefetch=prefetch)
        for batch, moved in zip(plain, there, strict=True):
            for name in batch:
                check(moved[name], batch[name])


def test_samples_that_the_codec_did_not_suit_come_in_their_places() -> None:
    path = Path(FOLDER.name) / "b.tuck"
    values = SMOOTH.copy()
    values[::9] = RNG.normal(0, 100, values[::9].shape)
    tuckfold.save(path, image=values, codec="dct_quant(rate=4)", max_error=0.5, samples_per_chunk=2, sync=False)  # fmt: skip
    images = {"image": tft.Images(std=3, crop=24, flip=True)}
    for options in ({}, {"images": images}):
        plain, there = loaders(path, "image", batch_size=COUNT, shuffle=True, **options)
        check(next(iter(there)), next(iter(plain)))


def test_batches_wait_for_nothing_but_their_own_work() -> None:
    """Kernels of the stream that is current follow the batch, while others run beside it; memory of a batch
    is not used again before they have."""
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no streams")
    images = {"coded": tft.Images(mean=100, std=50, flip=True, crop=28)}
    plain, there = loaders(
        file_of_all(), "coded", batch_size=8, shuffle=True, seed=2, images=images
    )
    for side in (torch.cuda.current_stream(), torch.cuda.Stream()):
        there.set_epoch(0)
        plain.set_epoch(0)
        sums = []
        with torch.cuda.stream(side):
            for batch in there:
                torch.cuda._sleep(2_000_000)  # its memory is free for others before the sum is made
                sums.append(batch.double().sum((1, 2, 3)))
                del batch
        torch.cuda.synchronize()
        for got, batch in zip(sums, plain, strict=True):
            assert torch.allclose(got.cpu(), batch.double().sum((1, 2, 3)), atol=1e-6)


def test_a_transform_runs_in_the_loaders_stream() -> None:
    double = {"transform": lambda batch: {"image": [2 * batch[0].float()], "number": batch[1]}}
    plain, there = loaders(file_of_all(), ("raw", "number"), batch_size=32, shuffle=True, **double)
    for batch, moved in zip(plain, there, strict=True):
        check(moved["image"][0], batch["image"][0])
        check(moved["number"], batch["number"])


def test_a_damaged_chunk_names_file_and_samples() -> None:
    path = Path(FOLDER.name) / "c.tuck"
    data = bytearray(file_of_all().read_bytes())
    data[data.find(CHW[40].tobytes()[:64])] ^= 1
    path.write_bytes(data)
    for options in ({}, {"images": {"raw": tft.Images()}}):
        _, there = loaders(path, "raw", batch_size=50, **options)
        with gpu.raises(tuckfold.CorruptDataError, "c.tuck': the chunk of 'raw' with samples 40 to 43"):  # fmt: skip
            next(iter(there))
