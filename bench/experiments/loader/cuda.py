"""The loader on a GPU: packed bytes are moved and unpacked there, beside a reader of a mapped file whose
images are normalized there, and a training loop beside one whose images are in the GPU's memory."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tuckfold
import tuckfold.torch as tt
from bench.record import Figure, Record
from tuckfold._dataset import Batches
from tuckfold.torch._device import Mover, _Staged

METHOD = (
    "Epochs of all readers turn by turn in one process, with new orders in each round; a figure is the median over "
    "rounds of the ratio within a round. Time passes until the GPU has done all work. All files are in the page cache, "
    "but of_memmap_cold is of epochs that begin without. "
    "small: u8 images of 3 x 32 x 32, batches of 512, to f32 NCHW, normalized; prefetch=2. memmap: numpy.take from a mapped "
    "file to pinned memory, a copy to the GPU in a stream of its own, and mul_ and add_ there, through the same threads. "
    "bytes_of holds f32 images, beside f32 images in a mapped file. large: images of 3 x 224 x 224, batches of 256, prefetch=4; "
    "decoded_gb_s counts 4 bytes for each pixel that was made. Its floor is 50, or what packed bytes allow at the "
    "speed of pinned copies measured in this run. training: ResNet-18 for images of 32 x 32, bf16, channels_last, SGD, "
    "batches of 512, a random crop of a padded image and a flip; tensor: all images in the GPU's memory, whose windows "
    "are drawn there and made by the same kernel. slower: time of an epoch over tensor's. Every loader's first batches are "
    "compared with the CPU's, in every bit"
)
SCALE, ADD = 1 / 64.0, -2.0


# ---- the device, or in a dry run the CPU in its place


class Place:
    """Where batches are made. A dry run shows that all of it runs, and measures nothing."""

    def __init__(self, dry_run: bool) -> None:
        self.device = torch.device("cpu") if dry_run else torch.device("cuda", 0)
        self.dry_run = dry_run

    def loader(self, path: Path, **options: Any) -> tt.DataLoader:
        if not self.dry_run:
            return tt.DataLoader(path, device=self.device, **options)
        made = tt.DataLoader(path, **options)
        made._mover = Mover(self.device, made.dataset._data.arrays, made._readers, kernels=True)
        return made

    def synchronize(self) -> None:
        if not self.dry_run:
            torch.cuda.synchronize()

    def stream(self) -> Any:
        return None if self.dry_run else torch.cuda.Stream(self.device)

    def using(self, stream: Any) -> Any:
        return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)

    def link_gb_s(self) -> float:
        """Of pinned copies to the GPU."""
        pinned = torch.empty((1 if self.dry_run else 256) << 20, dtype=torch.uint8, pin_memory=not self.dry_run)  # fmt: skip
        there = torch.empty_like(pinned, device=self.device)
        times = []
        for _ in range(6):
            self.synchronize()
            start = time.perf_counter()
            there.copy_(pinned, non_blocking=True)
            self.synchronize()
            times.append(time.perf_counter() - start)
        return pinned.nbytes / min(times) / 1e9


# ---- images


def smooth_images(count: int, side: int, seed: int = 0) -> np.ndarray:
    """u8 images with structure and some noise, as photographs have."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side].astype(np.float32) / side
    made = np.empty((count, 3, side, side), np.uint8)
    some = min(count, 256)
    for first in range(0, count, some):
        n = min(some, count - first)
        waves = np.zeros((n, 3, side, side), np.float32)
        for _ in range(4):
            a, b, phase, size = (rng.random((n, 3, 1, 1), dtype=np.float32) for _ in range(4))
            waves += 40 * size * np.sin(12 * a * x + 12 * b * y + 6.3 * phase)
        waves += 128 + 6 * rng.standard_normal((n, 3, side, side), dtype=np.float32)
        made[first : first + n] = np.clip(waves, 0, 255)
    return made


def small_images(data: Path | None, count: int) -> np.ndarray:
    """From a .npy file of N x 3 x 32 x 32, or a batch of CIFAR-10's binary version; else synthetic."""
    if data is None:
        return smooth_images(count, 32)
    if data.suffix == ".npy":
        some = np.load(data)
    else:
        some = np.fromfile(data, np.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32)
    return np.resize(some, (count, *some.shape[1:]))  # again and again


# ---- readers


class Memmap:
    """What one writes without a library: a mapped array, pinned memory, a stream, torch's operators."""

    def __init__(self, path: Path, labels: np.ndarray, place: Place) -> None:
        self._images = np.load(path, mmap_mode="r")
        self._labels, self._place = torch.from_numpy(labels), place
        self._stream = place.stream()

    def read(self, samples: np.ndarray) -> Any:
        shape, place = (len(samples), *self._images.shape[1:]), self._place
        dtype = torch.uint8 if self._images.dtype == np.uint8 else torch.float32
        with place.using(self._stream):
            pinned = torch.empty(shape, dtype=dtype, pin_memory=not place.dry_run)
            np.take(self._images, samples, axis=0, out=pinned.numpy(), mode="clip")
            labels = self._labels[torch.from_numpy(samples)]
            labels = labels if place.dry_run else labels.pin_memory()
            images = pinned.to(place.device, non_blocking=True).to(torch.float32)
            images.mul_(SCALE).add_(ADD)
            batch = images, labels.to(place.device, non_blocking=True)
            return batch, None if self._stream is None else self._stream.record_event()


class MemmapBatches(Batches):
    def _give(self, made: Any) -> Any:
        batch, event = made
        if event is not None:
            current = torch.cuda.current_stream()
            current.wait_event(event)
            for tensor in batch:
                tensor.record_stream(current)
        return batch


def timed(loader: Any, place: Place) -> float:
    """Seconds of an epoch, until all batches are there."""
    place.synchronize()
    start = time.perf_counter()
    for _ in loader:
        pass
    place.synchronize()
    return time.perf_counter() - start


def check(path: Path, place: Place, **options: Any) -> None:
    """Batches of the device are those of the CPU."""
    there, here = place.loader(path, **options), tt.DataLoader(path, **options)
    for number, (got, wanted) in enumerate(zip(there, here, strict=True)):
        if not all(torch.equal(a.cpu(), b) for a, b in zip(got, wanted, strict=True)):
            sys.exit(f"loader: batch {number} of {path} differs from the CPU's")
        if number == 2:
            return


def stages(path: Path, place: Place, batch: int, images: tt.Images) -> dict[str, float]:
    """Microseconds of a batch's parts: reading packed bytes, all of the host's work, and the GPU's."""
    loader = place.loader(path, batch_size=batch, arrays=("image", "label"), images={"image": images})  # fmt: skip
    mover, array = loader._mover, loader.dataset._data.arrays[0]
    rng = np.random.default_rng(1)
    read, make, work = [], [], []
    for _ in range(2 if place.dry_run else 30):
        samples = rng.permutation(len(loader.dataset))[:batch].astype(np.int64)
        start = time.perf_counter()
        _Staged(array, samples, mover._packed[0], not place.dry_run)
        read.append(time.perf_counter() - start)
        place.synchronize()
        start = time.perf_counter()
        mover.make(samples, None, lambda tensors: tensors)
        make.append(time.perf_counter() - start)
        place.synchronize()
        work.append(time.perf_counter() - start)
    return {
        "read_us": 1e6 * statistics.median(read),
        "host_us": 1e6 * statistics.median(make),
        "done_us": 1e6 * statistics.median(work),  # alone, with nothing beside it
    }


# ---- the parts


def small(record: Record, folder: Path, place: Place, data: Path | None, quick: bool) -> None:
    images = small_images(data, 1_500 if place.dry_run else 5_000 if quick else 50_000)
    labels = np.arange(len(images)) % 10
    floats = images.astype(np.float32) / np.float32(255)
    specs = {"raw": "u8", "bytes_of": "f32", "dct_quant(rate=4)": "u8"}
    how = tt.Images(mean=128.0, std=64.0)
    options = {"batch_size": 512, "arrays": ("image", "label"), "images": {"image": how}}
    paths = {}
    for kind, values in (("u8", images), ("f32", floats)):
        paths[kind] = folder / f"{kind}.npy"
        np.save(paths[kind], values)
    for number, (spec, kind) in enumerate(specs.items()):
        paths[spec] = folder / f"small-{number}.tuck"
        tuckfold.save(paths[spec], image=images if kind == "u8" else floats, label=labels, codec={"image": spec}, sync=False)  # fmt: skip
        check(paths[spec], place, shuffle=True, **options)
        record.rows.append({"part": "small", "reader": spec, **stages(paths[spec], place, 512, how)})  # fmt: skip

    def make(name: str) -> Any:
        if name in specs:
            return place.loader(paths[name], shuffle=True, **options)
        reader = Memmap(paths[name], labels, place)
        return MemmapBatches(reader.read, len(images), 512, shuffle=True)

    loaders = {name: make(name) for name in paths}  # each loop is the next epoch
    times: dict[str, list[float]] = {name: [] for name in paths}
    for turn in range(-1, 3 if quick else 7):
        for name, loader in loaders.items():
            took = timed(loader, place)
            if turn >= 0:  # in a first round chunks are checked, and caches filled
                times[name].append(took)
    loaders.clear()
    del loader
    cold: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(3):
        for name, path in paths.items():
            gc.collect()  # what is mapped stays in the cache
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            loader = make(name)
            cold[name].append(timed(loader, place))
            del loader
    for name in paths:
        record.rows.append({
            "part": "small", "reader": name if name in specs else f"memmap of {name}",
            "images_s": len(images) / statistics.median(times[name]),
            "images_s_cold": len(images) / statistics.median(cold[name]),
        })  # fmt: skip

    def of(taken: dict[str, list[float]], spec: str) -> float:
        pairs = zip(taken[specs[spec]], taken[spec], strict=True)
        return statistics.median(a / b for a, b in pairs)

    for spec in specs:
        more = {"of_memmap_cold": of(cold, spec)}
        record.figures.append(Figure({"part": "small", "codec": spec}, "of_memmap", of(times, spec), 0.95, more))  # fmt: skip


def large(record: Record, folder: Path, place: Place, quick: bool) -> None:
    images = smooth_images(16 if place.dry_run else 256, 224)
    count = 16 if place.dry_run else 512 if quick else 4096
    images = np.resize(images, (count, *images.shape[1:]))
    labels = np.arange(count) % 10
    np.save(folder / "large.npy", images)
    reader = Memmap(folder / "large.npy", labels, place)
    how = tt.Images(mean=128.0, std=64.0)
    link = place.link_gb_s()
    record.extra["pinned_copy_gb_s"] = link
    loaders: dict[str, Any] = {
        "memmap of u8": MemmapBatches(
            reader.read, count, 256, shuffle=True, prefetch=4
        )  # fmt: skip
    }
    packed = {}
    for number, spec in enumerate(("raw", "dct_quant(rate=4)", "dct_quant(rate=2)")):
        path = folder / f"large-{number}.tuck"
        tuckfold.save(path, image=images, label=labels, codec={"image": spec}, sync=False)
        with tuckfold.open(path) as f:
            packed[spec] = f["image"].packed_bytes / count
        options = {"batch_size": 256, "arrays": ("image", "label"), "images": {"image": how}}
        check(path, place, shuffle=True, **options)
        loaders[spec] = place.loader(path, shuffle=True, prefetch=4, **options)
        record.rows.append({"part": "large", "reader": spec, **stages(path, place, 256, how)})
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(-1, 3 if quick else 5):
        for name, loader in loaders.items():
            took = timed(loader, place)
            if turn >= 0:
                times[name].append(took)
    pixels = images[0].size
    for name, took in times.items():
        value = 4 * pixels * count / statistics.median(took) / 1e9
        record.rows.append({"part": "large", "reader": name, "decoded_gb_s": value, "images_s": count / statistics.median(took)})  # fmt: skip
        if name in packed:
            floor = min(50.0, link * 4 * pixels / packed[name])
            record.figures.append(Figure({"part": "large", "codec": name}, "decoded_gb_s", value, floor))  # fmt: skip
            ratio = statistics.median(a / b for a, b in zip(times["memmap of u8"], took, strict=True))  # fmt: skip
            record.figures.append(Figure({"part": "large", "codec": name}, "of_memmap", ratio, 0.95))  # fmt: skip


class Block(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        )  # fmt: skip
        self.around = nn.Sequential()
        if stride != 1 or before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.body(x) + self.around(x))


def resnet18() -> nn.Sequential:
    """For images of 32 x 32: a first convolution of 3 x 3, no pooling before the blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]  # fmt: skip
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class InMemory:
    """Batches of images that are in the GPU's memory: drawn there, made by the loader's kernel."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, batch: int, device: Any) -> None:
        self._images = torch.from_numpy(images).to(device)
        self._labels = torch.from_numpy(labels).to(device)
        self._batch, self._device = batch, device
        self._scale, self._add = (torch.full((3,), v, device=device) for v in (SCALE, ADD))
        self._none = torch.empty(0, dtype=torch.int32, device=device)

    def __iter__(self) -> Iterator[Any]:
        count = len(self._images)
        order = torch.randperm(count, device=self._device)
        windows = torch.randint(-4, 5, (count, 3), device=self._device, dtype=torch.int32)
        windows[:, 2] = torch.randint(0, 2, (count,), device=self._device, dtype=torch.int32)
        for first in range(0, count - self._batch + 1, self._batch):
            chosen = order[first : first + self._batch]
            samples = self._images[chosen]
            out = torch.empty(samples.shape, dtype=torch.bfloat16, device=self._device, memory_format=torch.channels_last)  # fmt: skip
            torch.ops.tuckfold.unpack_images(
                samples.view(-1), "raw", list(samples.shape), torch.uint8, windows[first : first + self._batch],
                self._none, self._scale, self._add, False, out
            )  # fmt: skip
            yield out, self._labels[chosen]


def training(record: Record, folder: Path, place: Place, data: Path | None, quick: bool) -> None:
    batch = 8 if place.dry_run else 512
    images = small_images(data, 20 if place.dry_run else 5_000 if quick else 50_000)
    labels = np.arange(len(images)) % 10
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = resnet18().to(place.device).to(torch.bfloat16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, fused=True)
    loss_of = nn.CrossEntropyLoss()

    def epoch(batches: Any) -> float:
        place.synchronize()
        start = time.perf_counter()
        for x, y in batches:
            loss = loss_of(model(x).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        place.synchronize()
        return time.perf_counter() - start

    how = tt.Images(mean=128.0, std=64.0, crop=32, pad=4, flip=True, dtype=torch.bfloat16, channels_last=True)  # fmt: skip
    loaders: dict[str, Any] = {"tensor": InMemory(images, labels, batch, place.device)}
    for number, spec in enumerate(("raw", "dct_quant(rate=4)")):
        path = folder / f"train-{number}.tuck"
        tuckfold.save(path, image=images, label=labels, codec={"image": spec}, sync=False)
        options = {"batch_size": batch, "arrays": ("image", "label"), "images": {"image": how}, "drop_last": True}  # fmt: skip
        check(path, place, shuffle=True, **options)
        loaders[spec] = place.loader(path, shuffle=True, **options)
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(-1, 2 if quick else 7):
        for name, batches in loaders.items():
            took = epoch(batches)
            if turn >= 0:
                times[name].append(took)
    steps = len(images) // batch
    for name, took in times.items():
        record.rows.append({"part": "training", "reader": name, "ms_a_step": 1e3 * statistics.median(took) / steps, "epochs_s": took})  # fmt: skip
    for name in loaders:
        if name == "tensor":
            continue
        ratio = statistics.median(b / a for a, b in zip(times["tensor"], times[name], strict=True))
        record.figures.append(Figure({"part": "training", "codec": name}, "slower", ratio, ceiling=1.02))  # fmt: skip


def measure(
    record: Record, data: Path | None, quick: bool, parts: list[str], dry_run: bool
) -> None:
    if not dry_run and (not torch.cuda.is_available() or not tuckfold.has_cuda()):
        sys.exit("loader: --device cuda needs a GPU, and a build with CUDA kernels; or --dry-run")
    place = Place(dry_run)
    record.extra |= {"torch": torch.__version__, "cuda": torch.version.cuda, "dry_run": dry_run}
    if not dry_run:
        record.extra["device"] = torch.cuda.get_device_name(0)
    record.extra["images"] = "synthetic" if data is None else data.name
    for name in parts:
        with tempfile.TemporaryDirectory(prefix="tuckfold-") as folder:
            start = time.perf_counter()
            if name == "small":
                small(record, Path(folder), place, data, quick)
            elif name == "large":
                large(record, Path(folder), place, quick)
            else:
                training(record, Path(folder), place, data, quick)
            record.extra[f"{name}_seconds"] = time.perf_counter() - start
