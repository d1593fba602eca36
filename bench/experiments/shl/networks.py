"""The networks of the butterfly paper's tables 4 and 5: one hidden layer of a family, ReLU, ten outputs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuckfold.torch import nn as tnn

FEATURES, CLASSES = 1024, 10

# Table 4: the number of parameters that it prints, and the structure that has them.
METHODS = {
    "baseline": ("dense", 1059850),
    "butterfly": ("butterfly(tied=true)", 16390),
    "fastfood": ("fastfood(normalize=false)", 14346),
    "circulant": ("circulant", 12298),
    "low_rank": ("low_rank(rank=1)", 13322),
    "pixelfly": ("pixelfly(block=64, butterfly=16, rank=32)", 404490),
}
# Accuracy in per cent that table 4 prints: a GPU with and without tensor cores, and an IPU.
PRINTED = {
    "baseline": (43.94, 43.4, 44.7),
    "butterfly": (42.27, 40.75, 41.13),
    "fastfood": (38.64, 37.94, 37.68),
    "circulant": (28.74, 29.21, 28.40),
    "low_rank": (18.64, 18.49, 18.59),
    "pixelfly": (42.61, 43.31, 43.79),
}


class SHL(nn.Module):
    """A single hidden layer. With `second_bias` it has the bias that the paper's butterfly counts twice."""

    def __init__(self, text: str, features: int = FEATURES, *, second_bias: bool = False) -> None:
        super().__init__()
        self.hidden = tnn.Structured(text, features, features, init="paper")
        self.second_bias = nn.Parameter(torch.zeros(features)) if second_bias else None
        self.logits = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        if self.second_bias is not None:
            h = h + self.second_bias
        return self.logits(torch.relu(h))

    def count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def network(method: str) -> SHL:
    """That of table 4."""
    return SHL(METHODS[method][0], second_bias=method == "butterfly")


@dataclass(frozen=True)
class Sweep:
    """A row of table 5: parameters while one option changes, and the two numbers that it prints."""

    changes: str
    counts: tuple[int, ...]
    printed_mean: int
    printed_deviation: int

    def to_json(self) -> dict[str, object]:
        return {
            "changes": self.changes,
            "counts": list(self.counts),
            "first": self.counts[0],
            "printed_mean": self.printed_mean,
            "mean": statistics.mean(self.counts),
            "deviation": statistics.stdev(self.counts),
            "printed_deviation": self.printed_deviation,
        }


def _swept(butterfly: int, block: int, rank: int) -> int:
    text = f"pixelfly(block={block}, butterfly={butterfly}, rank={rank})"
    structure = tnn.Structured(text, FEATURES, FEATURES, device="meta").structure
    return structure.weight_count + 2 * FEATURES + FEATURES * CLASSES + CLASSES  # two biases


def sweeps() -> list[Sweep]:
    """The column that table 5 calls mean is the first value; the row of blocks has butterfly 2^7 and rank 2."""
    return [
        Sweep("butterfly", tuple(_swept(2**k, 32, 2) for k in range(1, 9)), 1064970, 326625),
        Sweep("block", tuple(_swept(128, 2**k, 2) for k in range(3, 8)), 81930, 184638),
        Sweep("rank", tuple(_swept(16, 16, 2**k) for k in range(1, 9)), 344074, 181317),
    ]
