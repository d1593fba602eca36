"""Operators that compilers take as they are: they fuse nothing with them, and nothing across them.

A compiler that fuses other operators into a kernel may add its numbers in another order. Kernels that
read or write what these operators make or take are the ones that there are without them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._memory import flat

_ops = torch.library.Library("tuckfold", "FRAGMENT")
_ops.define("mask_to_bits(Tensor mask, int[] stride) -> Tensor")
_ops.define("bits_to_mask(Tensor bits, int[] size, int[] stride) -> Tensor")
_ops.define("settle_(Tensor(a!) x) -> ()")
_ops.define("seeds(Tensor like, int graph, int count) -> Tensor")


@torch.library.impl(_ops, "mask_to_bits", "CompositeExplicitAutograd")
def _mask_to_bits(mask: Tensor, stride: list[int]) -> Tensor:
    """A dense bool mask as bits, in the order of strides that a graph was compiled with."""
    if list(mask.stride()) != stride:
        mask = torch.empty_strided(mask.shape, stride, dtype=mask.dtype, device=mask.device).copy_(
            mask
        )
    return torch.ops.tuckfold.pack(flat(mask).view(torch.uint8), "positive", 0)


@torch.library.register_fake("tuckfold::mask_to_bits", lib=_ops)
def _(mask: Tensor, stride: list[int]) -> Tensor:
    return mask.new_empty((-(-mask.numel() // 8),), dtype=torch.uint8)


@torch.library.impl(_ops, "bits_to_mask", "CompositeExplicitAutograd")
def _bits_to_mask(bits: Tensor, size: list[int], stride: list[int]) -> Tensor:
    mask = torch.empty_strided(size, stride, dtype=torch.bool, device=bits.device)
    torch.ops.tuckfold.unpack_into(bits, "positive", flat(mask).view(torch.uint8))
    return mask


@torch.library.register_fake("tuckfold::bits_to_mask", lib=_ops)
def _(bits: Tensor, size: list[int], stride: list[int]) -> Tensor:
    return bits.new_empty_strided(size, stride, dtype=torch.bool)


_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_calls: dict[tuple[int, torch.device], Tensor] = {}
_steps: dict[tuple[int, torch.device], Tensor] = {}
_starts: dict[int, int] = {}  # calls of graphs that there were before, in another process
_seed_of: dict[int, Callable[[], Callable[[], int] | None]] = {}


def begin(graph: int, calls: int, seed: Callable[[], int]) -> None:
    """A graph goes on after so many calls. seed: a method that stands for torch's seed."""
    _starts[graph], _seed_of[graph] = calls, weakref.WeakMethod(seed)
    for (number, _), count in _calls.items():
        if number == graph:
            count.fill_(calls)


def calls_of(graph: int) -> int:
    found = [int(count) for (number, _), count in _calls.items() if number == graph]
    return max(found, default=_starts.get(graph, 0))


def _seed(graph: int) -> int:
    method = _seed_of[graph]() if graph in _seed_of else None
    return torch.initial_seed() if method is None else method()


def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _shifted(z: Tensor, by: int) -> Tensor:
    """As of unsigned numbers."""
    return (z >> by) & ((1 << (64 - by)) - 1)


@torch.library.impl(_ops, "seeds", "CompositeExplicitAutograd")
def _seeds(like: Tensor, graph: int, count: int) -> Tensor:
    """Seeds on a tensor's device, others in every call: `mixed` of _lossy.py.

    They follow from torch's seed and from how many calls there were for the graph, and take nothing from
    torch's random numbers. The count is on the device, so that a CUDA graph that is replayed goes on.
    """
    key = (graph, like.device)
    with torch.inference_mode(False):  # what is kept outlives that
        if key not in _calls:
            start = _starts.get(graph, 0)
            _calls[key] = torch.full((), start, dtype=torch.int64, device=like.device)
        if (count, like.device) not in _steps:
            steps = [_signed((i + 1) * _GOLDEN) for i in range(count)]
            _steps[count, like.device] = torch.tensor(steps, dtype=torch.int64, device=like.device)
    calls = _calls[key]
    z = _steps[count, like.device] + calls * _signed(count * _GOLDEN)
    calls.add_(1)
    z += _signed(_seed(graph))
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


@torch.library.register_fake("tuckfold::seeds", lib=_ops)
def _(like: Tensor, graph: int, count: int) -> Tensor:
    return like.new_empty((count,), dtype=torch.int64)


@torch.library.impl(_ops, "settle_", "CompositeExplicitAutograd")
def _settle(x: Tensor) -> None:
    """Does nothing: what was computed is in memory, in its dtype, before it is read."""


@torch.library.register_fake("tuckfold::settle_", lib=_ops)
def _(x: Tensor) -> None:
    return None
