"""Saved values of a compiled graph in fewer bits: masks as bits, other values by a codec.

Both are packed after the last use in forward and unpacked before the first use in backward, so that
only packed bytes are alive in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, fx

from tuckfold.torch._activations import _graph_ops  # noqa: F401 (registers operators)
from tuckfold.torch._activations._split import Split, call, is_static, value_of
from tuckfold.torch._functions import layout, takes

Add = Callable[..., fx.Node]
_aten = torch.ops.aten
_graphs = itertools.count()  # each has seeds of its own


def order_of(value: Tensor) -> list[int] | None:
    """The axes from the largest stride to the smallest; None where there are gaps or overlaps."""
    if not is_static(value):
        return None
    axes = sorted(range(value.dim()), key=lambda i: (-value.stride(i), -value.size(i)))
    expected = 1
    for axis in reversed(axes):
        if value.size(axis) != 1 and value.stride(axis) != expected:
            return None
        expected *= value.size(axis)
    return axes


def _flat(add: Add, node: fx.Node, axes: list[int]) -> fx.Node:
    """Its values in the order of its memory."""
    if axes != sorted(axes):
        node = add(_aten.permute.default, node, axes)
    return add(_aten.reshape.default, node, [-1])


def _shaped(add: Add, node: fx.Node, value: Tensor, axes: list[int]) -> fx.Node:
    node = add(_aten.reshape.default, node, [value.size(i) for i in axes])
    if axes != sorted(axes):
        node = add(_aten.permute.default, node, sorted(axes, key=axes.__getitem__))
    return node


class Packer:
    """Stores values of forward in another form."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self._seeds: dict[torch.device, fx.Node] = {}  # of each device
        self._tensors = 0
        self.packed: dict[fx.Node, tuple[fx.Node, str]] = {}  # by a codec
        self._numbers: dict[float, fx.Node] = {}
        self.graph = next(_graphs)

    @property
    def has_seeds(self) -> bool:
        return bool(self._seeds)

    def _adder(self, node: fx.Node) -> Add:
        """Adds calls to forward, one after the other, where node is no longer read."""
        place = self.split.after_uses(node)

        def add(*arguments: object) -> fx.Node:
            nonlocal place
            with self.split.forward.graph.inserting_after(place):
                place = call(self.split.forward.graph, self.split.mode, *arguments)
            return place

        return add

    def bits(self, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
        """A bool mask, or whether other values are not above 0: what is saved, and it in backward."""
        value = value_of(node)
        if value is None or order_of(value) is None or value.numel() == 0:
            return None
        add, stride = self._adder(node), list(value.stride())
        mask = node if value.dtype == torch.bool else add(_aten.le.Scalar, node, 0)
        packed = add(torch.ops.tuckfold.mask_to_bits.default, mask, stride)
        place = self.split.place(packed)
        size = list(value.shape)
        return packed, self.split.add(torch.ops.tuckfold.bits_to_mask.default, place, size, stride)

    def codec(self, node: fx.Node, spec: str) -> tuple[fx.Node, fx.Node] | None:
        """A value by a codec: the bytes that are saved, and it in backward."""
        value = value_of(node)
        if value is None or (axes := order_of(value)) is None:
            return None
        length = value.numel()
        if not takes(spec, value.dtype, (length,)):
            return None
        fit = layout(spec, value.dtype, (length,))
        if not fit.fixed or fit.max_bytes >= length * value.element_size():
            return None
        add = self._adder(node)
        flat = _flat(add, node, axes)
        if "stochastic" in spec:
            seed = self._seed(value.device)
            packed = add(torch.ops.tuckfold.pack_seeded.default, flat, spec, seed)
        else:
            packed = add(torch.ops.tuckfold.pack.default, flat, spec, 0)
        back = self.split.add
        self.packed[node] = packed, spec
        unpacked = back(
            torch.ops.tuckfold.unpack.default, self.split.place(packed), spec, [length], value.dtype
        )
        return packed, _shaped(back, unpacked, value, axes)

    def positive(self, node: fx.Node) -> fx.Node | None:
        """Bits of the values above 0, in the order of memory, which are saved."""
        value = value_of(node)
        if value is None or (axes := order_of(value)) is None or value.numel() == 0:
            return None
        add = self._adder(node)
        return add(torch.ops.tuckfold.pack.default, _flat(add, node, axes), "positive", 0)

    def mask_of(self, bits: fx.Node, node: fx.Node) -> fx.Node:
        """In backward, what `positive` stored of a node: which values are not above 0."""
        value = value_of(node)
        size, stride = list(value.shape), list(value.stride())
        place = self.split.place(bits)
        above = self.split.add(torch.ops.tuckfold.bits_to_mask.default, place, size, stride)
        return self.split.add(_aten.logical_not.default, above)

    def gated(
        self,
        node: fx.Node,
        bits: fx.Node,
        source: fx.Node | None = None,
        numbers: tuple[fx.Node, fx.Node, int] | None = None,
    ) -> fx.Node | None:
        """In backward, what a codec stored of a node, with the zeros that its bits have; or of the source, of which
        a normalization with these numbers and a ReLU made the node."""
        packed, spec = self.packed.get(source or node, (None, ""))
        value = value_of(node)
        if packed is None or not spec.startswith("block_quant(") or "|" in spec:
            return None
        if value.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return None
        axes, length = order_of(value), value.numel()
        scale, shift, inner = numbers or (self._number(1.0), self._number(0.0), length)
        unpacked = self.split.add(
            torch.ops.tuckfold.unpack_then.default, self.split.place(packed), spec, [length], value.dtype, scale, shift,
            inner, "none" if numbers is None else "relu", None, None, None, None, self.split.place(bits),
        )  # fmt: skip
        return _shaped(self.split.add, unpacked, value, axes)

    def _number(self, number: float) -> fx.Node:
        if number not in self._numbers:
            device = next(value_of(n).device for n in self.packed)
            self._numbers[number] = self.split.add(
                _aten.full.default,
                [1],
                number,
                dtype=torch.float32,
                device=device,
                pin_memory=False,
            )
        return self._numbers[number]

    def _seed(self, device: torch.device) -> fx.Node:
        """A number for each tensor and step."""
        forward, mode = self.split.forward.graph, self.split.mode
        if device not in self._seeds:
            count = len(self.split.saved)  # at most one for each saved value
            inputs = list(forward.find_nodes(op="placeholder"))
            values = [value_of(node) for node in inputs]
            like = next(
                n
                for n, v in zip(inputs, values, strict=True)
                if v is not None and v.device == device
            )
            with forward.inserting_after(inputs[-1]):
                self._seeds[device] = call(
                    forward, mode, torch.ops.tuckfold.seeds.default, like, self.graph, count
                )
        self._tensors += 1
        seeds, i = self._seeds[device], self._tensors - 1
        with forward.inserting_after(seeds):
            return call(forward, mode, _aten.slice.Tensor, seeds, 0, i, i + 1)
