"""A normalization by channels and a ReLU in a graph, as one factor and one sum for each channel.

Where the input is packed, one kernel unpacks it and makes the output of both; see `unpack_then`.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from tuckfold.torch._activations._chains import Chains
from tuckfold.torch._activations._packs import order_of
from tuckfold.torch._activations._split import Split, value_of

_aten = torch.ops.aten
_CAST = torch.ops.prims.convert_element_type.default


class Affine:
    """What a chain does to a large value.

    Args:
        split: the graphs.
        chains: what its other values are in backward.
        source: the large value, of forward.
    """

    def __init__(self, split: Split, chains: Chains, source: fx.Node) -> None:
        self.split, self.chains, self.source = split, chains, source
        value = value_of(source)
        self.channels = value.size(1) if value is not None and value.dim() >= 2 else 0
        self.scale: fx.Node | None = None  # 1
        self.shift: fx.Node | None = None  # 0

    @property
    def inner(self) -> int | None:
        """How many values in memory follow each other with one channel."""
        value = value_of(self.source)
        axes = order_of(value)
        if axes is None or value.size(0) == 1:
            return None
        if axes == sorted(axes):
            return math.prod(value.shape[2:])
        return 1 if axes[-1] == 1 and axes[0] == 0 else None

    def follow(self, chain: list[fx.Node], end: fx.Node) -> bool:
        """Whether the chain is casts, products and sums with numbers of channels, and a ReLU at its end."""
        if self.channels == 0 or self.inner is None or end.target is not _aten.relu.default:
            return False
        last, of_source = self.source, {self.source}
        for node in chain:
            if not of_source & set(node.all_input_nodes):
                continue
            of_source.add(node)
            if node is end:
                return node.args[0] is last and self.scale is not None and self.shift is not None
            if not self._takes(node, last):
                return False
            last = node
        return False

    def _takes(self, node: fx.Node, last: fx.Node) -> bool:
        if node.kwargs:
            return False
        if node.target is _CAST:
            return node.args[0] is last
        if node.target not in (_aten.sub.Tensor, _aten.mul.Tensor, _aten.add.Tensor):
            return False
        a, b = node.args
        if b is last and node.target is not _aten.sub.Tensor:
            a, b = b, a
        if a is not last or not isinstance(b, fx.Node) or b is last or not self._is_of_channels(b):
            return False
        number = self.split.add(_aten.reshape.default, self.chains.in_backward(b), [self.channels])
        if node.target is _aten.mul.Tensor:
            self.scale = self._by(_aten.mul.Tensor, self.scale, number, number)
            if self.shift is not None:
                self.shift = self.split.add(_aten.mul.Tensor, self.shift, number)
        elif node.target is _aten.add.Tensor:
            self.shift = self._by(_aten.add.Tensor, self.shift, number, number)
        elif self.shift is None:
            self.shift = self.split.add(_aten.neg.default, number)
        else:
            self.shift = self.split.add(_aten.sub.Tensor, self.shift, number)
        return True

    def _by(
        self, target: object, so_far: fx.Node | None, number: fx.Node, first: fx.Node
    ) -> fx.Node:
        return first if so_far is None else self.split.add(target, so_far, number)

    def _is_of_channels(self, node: fx.Node) -> bool:
        value, like = value_of(node), value_of(self.source)
        if value is None or value.dtype != torch.float32 or value.numel() != self.channels:
            return False
        after = like.dim() - 2  # axes after that of channels
        return value.dim() > after and value.size(value.dim() - after - 1) == self.channels
