"""CIFAR-10, Fashion-MNIST and Cora as tensors."""

from __future__ import annotations

import collections
import gzip
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.images import FASHION_MNIST, cifar10_part, data_folder

Labelled = tuple[Tensor, Tensor]


def folder(name: str) -> Path:
    found = data_folder()
    if found is None or not (found / name).is_dir():
        sys.exit(f"adaptive_activations: set TUCKFOLD_DATA to a folder that has {name}/")
    return found / name


def _cifar10(part: str, count: int) -> Labelled:
    here = folder("cifar10")
    paths = sorted(here.glob(f"{part}_*.webp"))[: -(-count // 1000)]
    images = np.concatenate([cifar10_part(path) for path in paths])[:count]
    labels = np.fromfile(here / f"{part}_labels.u8", np.uint8)[:count]
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def _fashion(part: str, count: int) -> Labelled:
    name = {"train": "train", "test": "t10k"}[part]
    with gzip.open(FASHION_MNIST.parent / f"{name}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + count * 784)[16:], np.uint8).reshape(-1, 1, 28, 28)
    with gzip.open(FASHION_MNIST.parent / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count)[8:], np.uint8)
    x = F.pad(torch.from_numpy(images.astype(np.float32)), (2, 2, 2, 2)).expand(-1, 3, -1, -1)
    return x.contiguous(), torch.from_numpy(labels.astype(np.int64))


def images(name: str, train: int, test: int) -> tuple[Labelled, Labelled]:
    """Training and test images, 3 x 32 x 32, less the mean and over the deviation of each colour."""
    read = {"cifar10": _cifar10, "fashion_mnist": _fashion}[name]
    (x, y), (test_x, test_y) = read("train", train), read("test", test)
    mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return ((x - mean) / deviation, y), ((test_x - mean) / deviation, test_y)


class _Sparse:
    """What scipy's class of rows is read as."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def dense(self) -> np.ndarray:
        out = np.zeros(self._shape, np.float32)
        for row in range(len(self.indptr) - 1):
            span = slice(self.indptr[row], self.indptr[row + 1])
            out[row, self.indices[span]] = self.data[span]
        return out


class _Reader(pickle.Unpickler):
    """Arrays, rows and dictionaries of lists; whatever else a file names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "defaultdict"):
            return collections.defaultdict
        if (module, name) == ("__builtin__", "list"):
            return list
        if (module, name) == ("_codecs", "encode"):
            return lambda text, _: text.encode("latin1")
        if module in ("numpy.core.multiarray", "numpy") and name in (
            "_reconstruct",
            "ndarray",
            "dtype",
        ):
            return getattr(np._core.multiarray if name == "_reconstruct" else np, name)
        if module.startswith("scipy.sparse") and name == "csr_matrix":
            return _Sparse
        raise pickle.UnpicklingError(f"a file of Cora names {module}.{name}")


def cora() -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Features with rows of sum 1, the normalized graph, labels, and the nodes of each part of the usual split."""
    here = folder("planetoid")

    def part(name: str) -> Any:
        with (here / f"ind.cora.{name}").open("rb") as file:
            return _Reader(file, encoding="latin1").load()

    order = np.loadtxt(here / "ind.cora.test.index", dtype=np.int64)
    features = np.concatenate([part("allx").dense(), part("tx").dense()])
    labels = np.concatenate([part("ally"), part("ty")]).argmax(1)
    features[order], labels[order] = (
        features[np.sort(order)].copy(),
        labels[np.sort(order)].copy(),
    )
    count = len(features)
    near = np.eye(count, dtype=np.float32)
    for node, others in part("graph").items():
        near[node, others] = near[others, node] = 1
    degree = near.sum(1) ** -0.5
    graph = torch.from_numpy(near * degree[:, None] * degree).to_sparse()
    features /= features.sum(1, keepdims=True).clip(1)
    parts = {
        "train": torch.arange(140),
        "test": torch.from_numpy(np.sort(order)),
    }
    return torch.from_numpy(features), graph, torch.from_numpy(labels), parts
