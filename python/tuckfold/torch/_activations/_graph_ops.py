"""Operators that compilers take as they are: they fuse nothing with them, and nothing across them.

A compiler that fuses other operators into a kernel may add its numbers in another order. Kernels that
read or write what these operators make or take are the ones that there are without them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._memory import flat

_ops = torch.library.Library("tuckfold", "FRAGMENT")
_ops.define("mask_to_bits(Tensor mask, int[] stride) -> Tensor")
_ops.define("bits_to_mask(Tensor bits, int[] size, int[] stride) -> Tensor")
_ops.define("settle_(Tensor(a!) x) -> ()")


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


@torch.library.impl(_ops, "settle_", "CompositeExplicitAutograd")
def _settle(x: Tensor) -> None:
    """Does nothing: what was computed is in memory, in its dtype, before it is read."""


@torch.library.register_fake("tuckfold::settle_", lib=_ops)
def _(x: Tensor) -> None:
    return None
