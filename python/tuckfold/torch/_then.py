"""What follows unpacking in the same kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuckfold.torch import _library as ops

_unpack_then = torch.ops.tuckfold.unpack_then.default


@dataclass(frozen=True)
class Then:
    """A normalization and an activation: y = act(scale[c] * x + shift[c]) for each channel c.

    The product and the sum are rounded to float32 each, and the result to the tensor's dtype. ReLU gives
    +0 for -0, and NaN stays. Tensors are of float32, float16 or bfloat16. Gradients end here.

    Args:
        scale: for each channel; of batch normalization ``weight / sqrt(var + eps)``.
        shift: for each channel; of batch normalization ``bias - mean * scale``.
        act: ``"relu"`` or ``"none"``.
        dim: the axis of the channels.

    Raises:
        ValueError: there is no such act.
        TypeError: scale or shift is no tensor of real numbers.

    >>> x = torch.rand(4, 16, 8, 8).to(memory_format=torch.channels_last)
    >>> packed = tuckfold.torch.Packed.pack(x, "block_quant(bits=4)", order="storage")
    >>> then = tuckfold.torch.Then(torch.ones(16), torch.full((16,), -0.5), act="relu")
    >>> torch.equal(packed.unpack(then=then), (packed.unpack() - 0.5).relu())
    True
    """

    scale: Tensor
    shift: Tensor
    act: str = "none"
    dim: int = 1

    def __post_init__(self) -> None:
        if self.act not in ("none", "relu"):
            raise ValueError(f"[then] act must be none or relu, got {self.act}")
        for name, factors in (("scale", self.scale), ("shift", self.shift)):
            if not isinstance(factors, Tensor) or factors.is_complex():
                kind = factors.dtype if isinstance(factors, Tensor) else type(factors).__name__
                raise TypeError(f"[then] {name} must be a tensor of real numbers, got {kind}")

    def axis(self, shape: Sequence[int]) -> int:
        """The axis of the channels, from 0 on; checks that there is a number for each."""
        rank = len(shape)
        if not -rank <= self.dim < rank:
            raise ValueError(f"[then] a tensor of {rank} axes has no axis {self.dim}")
        axis = self.dim % rank
        for name, factors in (("scale", self.scale), ("shift", self.shift)):
            if factors.ndim != 1 or len(factors) != shape[axis]:
                raise ValueError(
                    f"[then] {name} must have one axis of {shape[axis]} numbers, one for each channel, "
                    f"got {tuple(factors.shape)}"
                )
        return axis

    def unpack(
        self, packed: Tensor, spec: str, shape: Sequence[int], dtype: torch.dtype, inner: int
    ) -> Tensor:
        """The tensor of the operator; a channel has `inner` values next to each other."""
        scale, shift = (
            factors.detach().to(packed.device, torch.float32).contiguous()
            for factors in (self.scale, self.shift)
        )
        return ops.call(
            _unpack_then, packed, spec, list(shape), dtype, scale, shift, inner, self.act
        )


def rows_of_channel(shape: Sequence[int], axis: int) -> int:
    """How many values of a channel are next to each other in row-major order."""
    return math.prod(shape[axis + 1 :])
