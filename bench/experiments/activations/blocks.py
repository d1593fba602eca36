"""Blocks as common libraries write them: what each saves is the table of docs/activations.md."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.experiments.activations.models import lora


class Bottleneck(nn.Module):
    """torchvision's ResNet."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv1, self.conv3 = (
            nn.Conv2d(i, o, 1, bias=False) for i, o in ((4 * c, c), (c, 4 * c))
        )
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm2d(n) for n in (c, c, 4 * c))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        y += x
        return self.relu(y)


class InvertedResidual(nn.Module):
    """torchvision's MobileNetV2."""

    def __init__(self, c: int, wider: int = 6) -> None:
        super().__init__()
        w = wider * c
        self.conv = nn.Sequential(
            nn.Conv2d(c, w, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU6(inplace=True),
            nn.Conv2d(w, w, 3, 1, 1, groups=w, bias=False), nn.BatchNorm2d(w), nn.ReLU6(inplace=True),
            nn.Conv2d(w, c, 1, bias=False), nn.BatchNorm2d(c),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x)


class SqueezeExcite(nn.Module):
    """timm's EfficientNet: SiLU and a gate for each channel."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv, self.bn, self.act = (
            nn.Conv2d(c, c, 3, 1, 1, groups=c),
            nn.BatchNorm2d(c),
            nn.SiLU(),
        )
        self.reduce, self.expand = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1)
        self.out, self.bn2 = nn.Conv2d(c, c, 1), nn.BatchNorm2d(c)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn(self.conv(x)))
        gate = self.expand(self.act(self.reduce(y.mean((2, 3), keepdim=True)))).sigmoid()
        return x + self.bn2(self.out(y * gate))


class ConvNeXt(nn.Module):
    """timm's ConvNeXt."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
        self.up, self.act, self.down = nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(self.act(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class VisionBlock(nn.Module):
    """timm's ViT: fused attention, GELU."""

    def __init__(self, c: int, heads: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(c), nn.LayerNorm(c), heads
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc1, self.act, self.fc2 = nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        x = x + self.proj(y)
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class EagerAttention(nn.Module):
    """Hugging Face's GPT-2 without fused attention: softmax, and dropout in attention."""

    def __init__(self, c: int, heads: int = 4, p: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads, self.drop = (
            nn.LayerNorm(c),
            nn.LayerNorm(c),
            heads,
            nn.Dropout(p),
        )
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc1, self.fc2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (t.view(b, n, self.heads, c // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / (c // self.heads) ** 0.5
        hidden = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        weights = self.drop(scores.masked_fill(hidden, -1e9).softmax(-1))
        x = x + self.drop(self.proj((weights @ v).transpose(1, 2).reshape(b, n, c)))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh")))


class HandNorm(nn.Module):
    """RMSNorm as Hugging Face's Llama writes it."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    """Rotary positions, fused attention, SwiGLU."""

    def __init__(self, c: int, norm: Callable[[int], nn.Module], heads: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = norm(c), norm(c), heads
        self.q, self.k, self.v, self.o = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(c, 3 * c, bias=False), nn.Linear(c, 3 * c, bias=False)
        self.down = nn.Linear(3 * c, c, bias=False)

    def rotated(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        of = torch.arange(half, device=x.device) / half
        at = torch.arange(x.shape[-2], device=x.device)[:, None] / 10000**of
        angle = torch.cat([at, at], -1)
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angle.cos() + turned * angle.sin()

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(b, n, self.heads, c // self.heads).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, c))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def repeated(block: Callable[[], nn.Module]) -> nn.Sequential:
    """Three in a row, so that each saves what it saves inside of a network."""
    return nn.Sequential(*(block() for _ in range(3)))


IMAGES, TOKENS = (4, 32, 28, 28), (4, 128, 64)

# A name, how it is made, and the sizes of its input.
BLOCKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ResNet bottleneck": (lambda: repeated(lambda: Bottleneck(8)), IMAGES),
    "MobileNetV2, ReLU6": (lambda: repeated(lambda: InvertedResidual(32)), IMAGES),
    "EfficientNet, SiLU, gates": (lambda: repeated(lambda: SqueezeExcite(32)), IMAGES),
    "ConvNeXt": (lambda: repeated(lambda: ConvNeXt(32)), IMAGES),
    "ViT, fused attention": (lambda: repeated(lambda: VisionBlock(64)), TOKENS),
    "GPT-2, softmax, dropout": (lambda: repeated(lambda: EagerAttention(64)), TOKENS),
    "Llama, `nn.RMSNorm`": (lambda: repeated(lambda: Llama(64, lambda c: nn.RMSNorm(c, 1e-6))), TOKENS),
    "Llama, RMSNorm by hand": (lambda: repeated(lambda: Llama(64, HandNorm)), TOKENS),
    "Llama, LoRA on all linears": (
        lambda: lora(repeated(lambda: Llama(64, lambda c: nn.RMSNorm(c, 1e-6)))),
        TOKENS,
    ),
}  # fmt: skip
