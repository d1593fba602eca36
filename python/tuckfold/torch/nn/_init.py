"""Random weights for structured layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from tuckfold.torch.nn._layers import Structured


@torch.no_grad()
def initialize(layer: Structured, init: str) -> None:
    """Fills the weights of a layer; ValueError where its family has no such init."""
    name = layer.structure.name
    known = ("default", "paper")
    free = name == "butterfly" and layer.structure.option("form") == "free"
    if free:
        known += ("identity", "orthogonal")
    if init not in known:
        raise ValueError(f"[{name}] init must be one of {', '.join(known)}, got {init!r}")
    for info in layer.structure.weights:
        weight = getattr(layer, info.name)
        if not info.trained:
            weight.copy_(torch.randperm(weight.numel(), device=weight.device))
        elif info.name == "angle":
            weight.uniform_(-math.pi, math.pi)
        elif info.deviation > 0:
            weight.normal_(0, info.deviation)
        else:
            weight.zero_()
    if layer.bias is not None:
        layer.bias.uniform_(*_bounds(layer.in_features))
    if name == "fastfood":
        _fastfood(layer)
        if init == "default" and not layer.structure.option("normalize"):
            layer.scale /= layer.scale.numel()  # two transforms lengthen by the root of that each
    if init in ("identity", "orthogonal"):
        _rotations(layer.twiddle, turned=init == "orthogonal")
    if init == "paper":
        _paper(layer)


def _bounds(fan_in: int) -> tuple[float, float]:
    return -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in)


def _fastfood(layer: Structured) -> None:
    """Rows of the lengths that a Gaussian matrix has: scale ~ chi / |gaussian|, signs of +1 and -1."""
    n = layer.scale.numel()
    chi = torch.distributions.Chi2(float(n)).sample((n,)).sqrt()
    layer.scale.copy_(chi.to(layer.scale) / layer.gaussian.norm())
    layer.signs.copy_(torch.randint(0, 2, (n,), device=layer.signs.device) * 2 - 1)


def _rotations(twiddle: Tensor, *, turned: bool) -> None:
    shape = twiddle.shape[:-2]
    angle = torch.rand(shape, device=twiddle.device) * (2 * math.pi if turned else 0)
    sign = torch.randint(0, 2, shape, device=twiddle.device) * 2 - 1 if turned else 1
    c, s = angle.cos(), angle.sin()
    rows = [torch.stack([sign * c, -sign * s], -1), torch.stack([s, c], -1)]
    twiddle.copy_(torch.stack(rows, -2))


def _paper(layer: Structured) -> None:
    """Where the publications' code differs from the default."""
    name, s = layer.structure.name, layer.structure
    if name in ("dense", "low_rank", "circulant", "fastfood") and layer.bias is not None:
        layer.bias.zero_()
    if name == "low_rank":
        rank = s.option("rank")
        for weight, features in ((layer.first, s.in_features), (layer.second, s.out_features)):
            weight.normal_(0, 1 / math.sqrt(rank * features))
    elif name == "monarch" or name == "block_diagonal":
        for weight in layer.structure_weights():
            weight.uniform_(*_bounds(weight.shape[-1]))
    elif name == "pixelfly" and s.option("form") == "sum":
        # xavier_normal_ of a tensor of in x a x block, whose fans are a * block and in * block.
        block = s.option("block")
        each = layer.blocks.numel() / (s.in_features * block)
        fans = each * block + s.in_features * block
        layer.blocks.normal_(0, math.sqrt(2 / fans))
        nn.init.kaiming_uniform_(layer.first, a=math.sqrt(5))
        nn.init.kaiming_uniform_(layer.second, a=math.sqrt(5))
        if layer.bias is not None:
            layer.bias.uniform_(*_bounds(s.option("rank")))
    elif name == "pixelfly":
        nn.init.kaiming_uniform_(layer.first, a=math.sqrt(5))
        nn.init.kaiming_uniform_(layer.second, a=math.sqrt(5))
