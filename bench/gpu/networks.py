"""ResNet-50 and ViT in plain torch, and saved-tensor hooks that pack what autograd keeps."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

import tuckfold.torch as tft

LEAST_BYTES = 65536  # smaller tensors are kept as they are


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 with a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        sides = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in sides
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sides)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = self.relu(y) if number < 2 else y
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inputs = [], 64
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if i == 0 and width > 64 else 1))
                inputs = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Encoder(nn.Module):
    """Attention and a perceptron, each after a normalization and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(y.reshape(batch, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class ViT(nn.Module):
    def __init__(self, width: int, heads: int, depth: int = 12, image: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (image // 16) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


# ---- what autograd saves, packed


class PackedStorage:
    """The values of a storage, packed in the order of memory; unpacked while somebody needs them."""

    def __init__(self, x: Tensor, spec: str, seed: int) -> None:
        elems = x.untyped_storage().nbytes() // x.dtype.itemsize
        self.packed = tft.Packed.pack(
            x.detach().as_strided((elems,), (1,), 0), spec, seed=seed, order="storage"
        )
        self._flat: weakref.ref | None = None

    def flat(self) -> Tensor:
        flat = self._flat() if self._flat is not None else None
        if flat is None:
            flat = self.packed.unpack()
            self._flat = weakref.ref(flat)
        return flat


@dataclass
class Saved:
    """A tensor as a view of a packed storage."""

    storage: PackedStorage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        return self.storage.flat().as_strided(self.shape, self.strides, self.offset)


def packing_hooks(
    model: nn.Module, spec: str
) -> Callable[[], torch.autograd.graph.saved_tensors_hooks]:
    """Hooks for a step: every floating storage over LEAST_BYTES that is no parameter's, packed once."""
    seeds = itertools.count()

    def hooks() -> torch.autograd.graph.saved_tensors_hooks:
        kept = {p.untyped_storage()._cdata for p in model.parameters()}
        # Weak, so that backward frees what it has used.
        seen: dict[tuple, tuple[StorageWeakRef, weakref.ref[PackedStorage]]] = {}

        def pack(x: Tensor) -> Tensor | Saved:
            storage = x.untyped_storage()
            if not x.is_floating_point() or storage.nbytes() < LEAST_BYTES:
                return x
            if storage._cdata in kept or x.nbytes * 8 < storage.nbytes():
                return x
            key = (storage._cdata, x.dtype, x._version)
            original, packed = seen.get(key, (None, None))
            known = packed() if packed and original and not original.expired() else None
            if known is None:
                known = PackedStorage(x, spec, next(seeds))
                seen[key] = (StorageWeakRef(storage), weakref.ref(known))
            return Saved(known, tuple(x.shape), x.stride(), x.storage_offset())

        def unpack(saved: Tensor | Saved) -> Tensor:
            return saved.tensor() if isinstance(saved, Saved) else saved

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    return hooks
