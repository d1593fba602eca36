"""How a tensor's elements are placed in memory."""

from __future__ import annotations

from torch import Tensor


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their storage without gaps or overlaps, in any order of axes."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for length, stride in sorted(
        zip(tensor.shape, tensor.stride(), strict=True), key=lambda axis: axis[1]
    ):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True


def flat(tensor: Tensor) -> Tensor:
    """A dense tensor's values in the order of its storage."""
    return tensor.as_strided((tensor.numel(),), (1,))
