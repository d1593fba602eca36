"""Images in rows, features less their mean over their deviation, and a part left out for validation."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.images import FASHION_MNIST, ImagesError, cifar10_part, data_folder

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


def _grey_cifar10(part: str) -> tuple[np.ndarray, np.ndarray]:
    folder = data_folder()
    paths = sorted((folder / "cifar10").glob(f"{part}_*.webp")) if folder else []
    if not paths:
        raise ImagesError("no CIFAR-10; set TUCKFOLD_DATA to a folder that has cifar10/")
    images = np.concatenate([cifar10_part(path) for path in paths]).mean(1, dtype=np.float32)
    labels = np.fromfile(folder / f"cifar10/{part}_labels.u8", np.uint8)
    return images.reshape(len(images), -1), labels[: len(images)]


def _idx(path: Path) -> np.ndarray:
    if not path.exists():
        raise ImagesError(f"no {path}; install Debian's package dataset-fashion-mnist")
    data = gzip.decompress(path.read_bytes())
    lengths = np.frombuffer(data, ">u4", data[3], 4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(lengths)


def _fashion_mnist(part: str) -> tuple[np.ndarray, np.ndarray]:
    name = "train" if part == "train" else "t10k"
    images = _idx(FASHION_MNIST.parent / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
    return images.reshape(len(images), -1), _idx(
        FASHION_MNIST.parent / f"{name}-labels-idx1-ubyte.gz"
    )


READERS = {"cifar10": _grey_cifar10, "fashion_mnist": _fashion_mnist}


def load(name: str, device: str = "cpu") -> Data:
    """Statistics are of the training images, those for validation among them."""
    parts = {part: READERS[name](part) for part in ("train", "test")}
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
