"""The networks of the butterfly paper's tables 4 and 5: one hidden layer of a family, ReLU, ten outputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuckfold._study._params import CLASSES, FEATURES, METHODS, biases_of
from tuckfold.torch import nn as tnn

# Table 4: accuracy in per cent, then seconds, on a GPU with and without tensor cores and on an IPU.
PRINTED = {
    "baseline": ((43.94, 43.4, 44.7), (50.43, 49.46, 24.69)),
    "butterfly": ((42.27, 40.75, 41.13), (61.93, 61.46, 37.73)),
    "fastfood": ((38.64, 37.94, 37.68), (53.55, 51.15, 60.70)),
    "circulant": ((28.74, 29.21, 28.40), (54.26, 53.92, 21.82)),
    "low_rank": ((18.64, 18.49, 18.59), (49.71, 53.21, 21.75)),
    "pixelfly": ((42.61, 43.31, 43.79), (52.79, 56.01, 71.62)),
}


class SHL(nn.Module):
    """A single hidden layer. With two biases it has the one that the paper's butterfly counts twice."""

    def __init__(self, text: str, features: int = FEATURES, *, biases: int = 1) -> None:
        super().__init__()
        self.hidden = tnn.Structured(text, features, features, init="paper")
        self.second_bias = nn.Parameter(torch.zeros(features)) if biases == 2 else None
        self.logits = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        if self.second_bias is not None:
            h = h + self.second_bias
        return self.logits(torch.relu(h))

    def count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def network(method: str, features: int = FEATURES) -> SHL:
    """That of table 4."""
    return SHL(METHODS[method][0], features, biases=biases_of(method))
