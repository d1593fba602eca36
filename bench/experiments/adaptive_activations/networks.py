"""The networks of the study, each with a scale so that a CPU can train a small one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AlexNet(nn.Module):
    """AlexNet for images of 32 x 32; scale=1 has the widths that are used for CIFAR-10."""

    def __init__(self, scale: float, classes: int = 10) -> None:
        super().__init__()
        a, b, c, d = (int(width * scale) for width in (64, 192, 384, 256))
        wide = int(4096 * scale)
        self.features = nn.Sequential(
            nn.Conv2d(3, a, 3, 2, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(b, c, 3, 1, 1), nn.ReLU(inplace=True),
            nn.Conv2d(c, d, 3, 1, 1), nn.ReLU(inplace=True),
            nn.Conv2d(d, d, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(), nn.Linear(4 * d, wide), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    """Patches of 4 x 4 as tokens, `depth` blocks, their mean; scale=1 has a width of 256."""

    def __init__(self, scale: float, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        width = int(256 * scale)
        self.embed = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(0.02 * torch.randn(64, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class GCN(nn.Module):
    """Kipf and Welling's two layers, on one graph."""

    def __init__(self, features: int, classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden, bias=False)
        self.second = nn.Linear(hidden, classes, bias=False)
        self.drop = nn.Dropout()

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        x = torch.sparse.mm(graph, self.first(self.drop(x)))
        return torch.sparse.mm(graph, self.second(self.drop(x.relu())))
