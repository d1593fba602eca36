"""The networks of the experiment, in plain torch; `blocks` are what checkpointing recomputes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Chain(nn.Module):
    """Blocks, one after the other, and a head."""

    def __init__(self, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(*blocks), head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


def _conv(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU(inplace=True)]


def alexnet_cifar() -> nn.Module:
    head = nn.Sequential(
        nn.Flatten(), nn.Dropout(), nn.Linear(256 * 2 * 2, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 10),
    )  # fmt: skip
    blocks = [
        nn.Sequential(*_conv(3, 64, 2), nn.MaxPool2d(2)),
        nn.Sequential(*_conv(64, 192), nn.MaxPool2d(2)),
        nn.Sequential(*_conv(192, 384), *_conv(384, 256), *_conv(256, 256), nn.MaxPool2d(2)),
    ]
    return Chain(blocks, head)


def vgg16() -> nn.Module:
    blocks, inputs = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        layers = []
        for _ in range(count):
            layers += _conv(inputs, width)
            inputs = width
        blocks.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000),
    )  # fmt: skip
    return Chain(blocks, head)


class UNet(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Module:
            layers: list[nn.Module] = []
            for i in (inputs, outputs):
                layers += [nn.Conv2d(i, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)]
                layers += [nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        widths = [width << i for i in range(5)]
        self.down = nn.ModuleList(map(double, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1])
        self.merge = nn.ModuleList(double(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(width, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x).mean((2, 3))


class Decoder(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.p, self.drop = heads, p, nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True).transpose(1, 2)
        x = x + self.drop(self.out(y.reshape(batch, tokens, width)))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.norms[1](x)))))


class GPT(nn.Module):
    def __init__(
        self, words: int = 8192, width: int = 768, depth: int = 12, p: float = 0.1
    ) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.drop = nn.Dropout(p)
        self.blocks = nn.Sequential(*(Decoder(width, width // 64, p) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.embed(tokens) + self.places(at))
        return self.head(self.norm(self.blocks(x)))


def frozen(model: nn.Module) -> nn.Module:
    """A trained head and first layer; what is between passes gradients, but has none."""
    model.requires_grad_(False).eval()
    for part in (model.head, next(m for m in model.modules() if isinstance(m, nn.Conv2d))):
        part.requires_grad_(True)
    return model


class LoRA(nn.Module):
    """A frozen linear layer and two small ones beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


def lora(model: nn.Module, rank: int = 16) -> nn.Module:
    """LoRA on all linear layers; all else is frozen."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LoRA):
                setattr(module, name, LoRA(child, rank))
    return model
