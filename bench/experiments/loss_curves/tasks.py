"""A residual network on images and a GPT on text, at four sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.experiments.adaptive_activations import data
from bench.record import ROOT

NETWORKS = ("resnet", "gpt")


@dataclass(frozen=True)
class Setting:
    """Of one network: images or bytes of text, the width of the first layer, blocks of a stage."""

    data: str
    width: int
    blocks: int
    train: int
    batch: int
    steps: int
    rate: float


SIZES: dict[str, dict[str, Setting]] = {
    "test": {
        "resnet": Setting("fashion_mnist", 8, 1, 256, 16, 8, 2e-3),
        "gpt": Setting("docs", 32, 1, 1 << 16, 8, 8, 1e-3),
    },
    "cpu": {
        "resnet": Setting("cifar10", 16, 1, 4000, 32, 250, 2e-3),
        "gpt": Setting("docs", 64, 2, 1 << 18, 16, 250, 1e-3),
    },
    "gpu": {
        "resnet": Setting("cifar10", 64, 2, 50000, 128, 1600, 1e-3),
        "gpt": Setting("docs", 384, 6, 1 << 20, 64, 1200, 5e-4),
    },
    "full": {
        "resnet": Setting("cifar10", 64, 2, 50000, 128, 8000, 1e-3),
        "gpt": Setting("docs", 384, 6, 1 << 20, 64, 4000, 5e-4),
    },
}
TOKENS = 128


class Residual(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Identity()
        if stride > 1 or inputs != width:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.short(x)).relu()


def resnet(width: int, blocks: int) -> nn.Module:
    """Two blocks of a stage and a width of 64 make a ResNet-18 for small images."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
    ]  # fmt: skip
    inputs = width
    for stage in range(4):
        for block in range(blocks):
            layers.append(Residual(inputs, width << stage, 2 if stage and not block else 1))
            inputs = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Decoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    """Of bytes."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(256, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.Sequential(*(Decoder(width, max(1, width // 32)) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.places(at))))


class Task:
    """A network in training. Batches follow from the seed and the number of the step alone."""

    def __init__(self, model: nn.Module, setting: Setting, seed: int, device: torch.device) -> None:
        self.model, self.setting, self.seed, self.device = model.to(device), setting, seed, device
        self.optimizer = torch.optim.AdamW(self.model.parameters(), setting.rate)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def test(self) -> list[tuple[Tensor, Tensor]]:
        raise NotImplementedError

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())

    def step(self, step: int) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(*self.batch(step))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def test_loss(self) -> float:
        self.model.eval()
        found = [float(self.loss(x, y)) for x, y in self.test()]
        self.model.train()
        return sum(found) / len(found)

    def _draw(self, step: int, high: int) -> Tensor:
        draw = torch.Generator().manual_seed(1000003 * self.seed + step)
        return torch.randint(high, (self.setting.batch,), generator=draw)


class Images(Task):
    def __init__(self, setting: Setting, seed: int, device: torch.device) -> None:
        super().__init__(resnet(setting.width, setting.blocks), setting, seed, device)
        parts = data.images(setting.data, setting.train, min(setting.train, 10000))
        self.parts = [tuple(t.to(device) for t in part) for part in parts]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        x, y = self.parts[0]
        picks = self._draw(step, len(x)).to(self.device)
        return x[picks], y[picks]

    def test(self) -> list[tuple[Tensor, Tensor]]:
        x, y = self.parts[1]
        return list(zip(x.split(250), y.split(250), strict=True))


class Text(Task):
    """The pages of the repository's docs; the last tenth is for the test."""

    def __init__(self, setting: Setting, seed: int, device: torch.device) -> None:
        super().__init__(GPT(setting.width, setting.blocks), setting, seed, device)
        pages = sorted((ROOT / "docs").rglob("*.md"))
        text = b"\n".join(page.read_bytes() for page in pages)[: setting.train]
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().to(device)
        self.cut = 9 * len(self.tokens) // 10

    def _at(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        spans = starts.to(self.device)[:, None] + torch.arange(TOKENS + 1, device=self.device)
        found = self.tokens[spans]
        return found[:, :-1], found[:, 1:]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        return self._at(self._draw(step, self.cut - TOKENS - 1))

    def test(self) -> list[tuple[Tensor, Tensor]]:
        starts = torch.arange(self.cut, len(self.tokens) - TOKENS - 1, TOKENS)
        return [self._at(some) for some in starts.split(64)]


def task(name: str, setting: Setting, seed: int, device: torch.device) -> Task:
    torch.manual_seed(seed)
    return (Images if name == "resnet" else Text)(setting, seed, device)
