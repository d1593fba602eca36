"""Real images for the examples: CIFAR-10 where TUCKFOLD_DATA names its folder, else Debian's Fashion-MNIST."""

import gzip
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.images import FASHION_MNIST, cifar10_part, data_folder, fashion_mnist  # noqa: E402


def real_images(samples: int) -> tuple[str, np.ndarray, np.ndarray]:
    """A name, images, N x C x H x W of bytes, and labels."""
    data = data_folder()
    if data is not None and (data / "cifar10/train_00.webp").exists():
        parts = range(-(-samples // 1000))
        images = np.concatenate([cifar10_part(data / f"cifar10/train_{i:02}.webp") for i in parts])
        labels = np.fromfile(data / "cifar10/train_labels.u8", np.uint8, len(images))
        return "CIFAR-10", images[:samples], labels[:samples].astype(np.int64)
    found = fashion_mnist()
    if found is None:
        sys.exit("examples: no images; let TUCKFOLD_DATA name a folder with cifar10/, or install dataset-fashion-mnist")  # fmt: skip
    with gzip.open(FASHION_MNIST.with_name("train-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read()[8:], np.uint8)
    images = found.images[:samples, None]
    return "Fashion-MNIST", images, labels[: len(images)].astype(np.int64)
