"""Images in rows, features less their mean over their deviation, and a part left out for validation.

  python -m bench.experiments.shl.data FOLDER     both sets for a machine that has none: CIFAR-10 in grey, 44 MB, and Fashion-MNIST

The folder is a TUCKFOLD_DATA there. Its grey values are rounded to bytes, where CIFAR-10 itself gives their means.
"""

from __future__ import annotations

import gzip
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bench.images import FASHION_MNIST, ImagesError, cifar10_part, data_folder, read_picture

VALIDATION = 0.15


@dataclass(frozen=True)
class Data:
    """Samples and labels: to train with, to choose an epoch with, to test with."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @property
    def features(self) -> int:
        return self.train[0].shape[1]


PARTS = ("train", "test")


def _colour_cifar10(part: str) -> tuple[np.ndarray, Path]:
    """Images, and the folder of their labels."""
    folder = data_folder()
    paths = sorted((folder / "cifar10").glob(f"{part}_*.webp")) if folder else []
    if not paths:
        raise ImagesError("no CIFAR-10; set TUCKFOLD_DATA to a folder that has cifar10/")
    return np.concatenate([cifar10_part(path) for path in paths]), folder / "cifar10"


def grey_is_rounded() -> bool:
    """Whether TUCKFOLD_DATA is what pack_grey() wrote."""
    folder = data_folder()
    return folder is not None and (folder / "cifar10_grey").is_dir()


def _grey_cifar10(part: str) -> tuple[np.ndarray, np.ndarray]:
    if grey_is_rounded():
        folder = data_folder() / "cifar10_grey"
        rows = [read_picture(path) for path in sorted(folder.glob(f"{part}_*.png"))]
        images = np.concatenate(rows).reshape(-1, 32 * 32).astype(np.float32)
    else:
        images, folder = _colour_cifar10(part)
        images = images.mean(1, dtype=np.float32).reshape(len(images), -1)
    labels = np.fromfile(folder / f"{part}_labels.u8", np.uint8)
    return images, labels[: len(images)]


def pack_grey(to: Path, at_once: int = 1000) -> None:
    """Pictures of so many images, one below the other."""
    folder = to / "cifar10_grey"
    folder.mkdir(parents=True)
    for part in PARTS:
        images, colour = _colour_cifar10(part)
        grey = ((images.sum(1, dtype=np.int32) + 1) // 3).astype(np.uint8)  # to the nearest
        for first in range(0, len(grey), at_once):
            some = grey[first : first + at_once].reshape(-1, 32)
            path = folder / f"{part}_{first // at_once:02}.png"
            Image.fromarray(some).save(path, optimize=True)
        shutil.copy(colour / f"{part}_labels.u8", folder)


def _idx(path: Path) -> np.ndarray:
    if not path.exists():
        raise ImagesError(f"no {path}; install Debian's package dataset-fashion-mnist")
    data = gzip.decompress(path.read_bytes())
    lengths = np.frombuffer(data, ">u4", data[3], 4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(lengths)


def _fashion_mnist(part: str) -> tuple[np.ndarray, np.ndarray]:
    name = "train" if part == "train" else "t10k"
    own = (data_folder() or Path()) / "fashion-mnist"
    folder = own if own.is_dir() else FASHION_MNIST.parent
    images = _idx(folder / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
    return images.reshape(len(images), -1), _idx(folder / f"{name}-labels-idx1-ubyte.gz")


READERS = {"cifar10": _grey_cifar10, "fashion_mnist": _fashion_mnist}


def about_device(device: str) -> dict[str, object]:
    """For a record: the GPU, and whether the images were rounded on their way to it."""
    about: dict[str, object] = {
        "cifar10_grey": "rounded to bytes" if grey_is_rounded() else "means"
    }
    return about if device == "cpu" else about | {"gpu": torch.cuda.get_device_name()}


def load(name: str, device: str = "cpu") -> Data:
    """Statistics are of the training images, those for validation among them."""
    parts = {part: READERS[name](part) for part in PARTS}
    mean, deviation = parts["train"][0].mean(0), parts["train"][0].std(0)
    deviation[deviation == 0] = 1  # a pixel that is never lit
    tensors = {
        part: (
            torch.from_numpy((images - mean) / deviation).to(device),
            torch.from_numpy(labels.astype(np.int64)).to(device),
        )
        for part, (images, labels) in parts.items()
    }
    held = int(len(tensors["train"][0]) * VALIDATION)
    return Data(
        train=tuple(t[held:] for t in tensors["train"]),
        validation=tuple(t[:held] for t in tensors["train"]),
        test=tensors["test"],
    )


if __name__ == "__main__":
    pack_grey(Path(sys.argv[1]))
    shutil.copytree(FASHION_MNIST.parent, Path(sys.argv[1]) / "fashion-mnist")
