"""What the backward of an operator reads of each tensor that it saved.

Nodes of autograd carry what they saved as attributes, `_saved_self`, `_saved_result1`; here are the
names of those whose values are not needed in full. An attribute or a node that the installed torch
does not have is passed over, so that its tensor is kept. `tests/python/activations/test_needs.py`
holds every line to the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tuckfold.torch._activations._saved import Handle

Node = Any  # torch.autograd.graph.Node, with the attributes of its kind
# Where the tensor of an attribute is, of those that came through our hooks.
Probe = Callable[[Node, str], Handle | None]


def _always(attribute: str, need: str) -> Callable[[Node, Probe], None]:
    def rule(node: Node, probe: Probe) -> None:
        handle = probe(node, attribute)
        if handle is not None:
            handle.need = need

    return rule


def _requires_grad(node: Node, argument: int) -> bool:
    edges = node.next_functions
    return argument >= len(edges) or edges[argument][0] is not None


def _convolution(node: Node, probe: Probe) -> None:
    """The input is read for the gradient of the weight alone."""
    handle = probe(node, "_saved_input")
    if handle is not None and not _requires_grad(node, 1):
        handle.need = "nothing"


def _batch_norm(node: Node, probe: Probe) -> None:
    """With running statistics and a frozen weight, the gradient of the input needs no input."""
    if not node._saved_training and not _requires_grad(node, 1):
        handle = probe(node, "_saved_input")
        if handle is not None:
            handle.need = "nothing"


def _max_pool(node: Node, probe: Probe) -> None:
    x, indices = probe(node, "_saved_self"), probe(node, "_saved_result1")
    if x is not None:
        x.need = "nothing"
    if x is None or indices is None:
        return
    kernel = _pair(node._saved_kernel_size)
    stride = _pair(node._saved_stride) or kernel
    padding, dilation = _pair(node._saved_padding), _pair(node._saved_dilation)
    if kernel[0] * kernel[1] <= 256 and x.shape[-1] * x.shape[-2] < 2**31:
        indices.need = "pool index"
        indices.limits = (x.shape[-1], kernel, stride, padding, dilation)


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (values[0], values[0]) if len(values) == 1 else tuple(values)


def _plane_index(axes: int) -> Callable[[Node, Probe], None]:
    """Pools whose indices count in a plane or a volume of the input."""

    def rule(node: Node, probe: Probe) -> None:
        x, indices = probe(node, "_saved_self"), probe(node, "_saved_result1")
        if x is not None:
            x.need = "nothing"
        if x is not None and indices is not None:
            indices.need = "below"
            indices.limits = (x.shape[-axes:].numel(),)

    return rule


def _hardtanh(node: Node, probe: Probe) -> None:
    handle = probe(node, "_saved_self")
    if handle is None or not handle.dtype.is_floating_point:
        return
    low, high = float(node._saved_min_val), float(node._saved_max_val)
    middle = low + (high - low) / 2
    of_dtype = torch.tensor([low, middle, high], dtype=handle.dtype)
    # Kernels compare half precision in f32: a limit that it does not have lies between two of its values, and what
    # stands for a value outside could be inside.
    wide = torch.tensor([low, high], dtype=torch.promote_types(handle.dtype, torch.float32))
    has_limits = torch.equal(of_dtype[::2].to(wide.dtype), wide)
    if has_limits and bool((of_dtype[0] < of_dtype[1]) & (of_dtype[1] < of_dtype[2])):
        handle.need, handle.limits = "between", (low, high, middle)


def _embedding(node: Node, probe: Probe) -> None:
    handle = probe(node, "_saved_indices")
    rows = getattr(node, "_saved_weight_sym_argsize_0", None)
    if handle is not None and isinstance(rows, int):
        handle.need, handle.limits = "below", (rows,)


RULES: dict[str, Callable[[Node, Probe], None]] = {
    "ReluBackward0": _always("_saved_result", "positive"),
    "LeakyReluBackward0": _always("_saved_self", "above 0"),
    "LeakyReluBackward1": _always("_saved_result", "above 0"),  # in place
    "HardtanhBackward0": _hardtanh,
    "ConvolutionBackward0": _convolution,
    "NativeBatchNormBackward0": _batch_norm,
    "MaxPool2DWithIndicesBackward0": _max_pool,
    "MaxPool3DWithIndicesBackward0": _plane_index(3),
    "AdaptiveMaxPool2DBackward0": _plane_index(2),
    "AdaptiveMaxPool3DBackward0": _plane_index(3),
    "EmbeddingBackward0": _embedding,
} | {
    name: _always("_saved_self", "nothing")
    for name in (
        "AvgPool2DBackward0",
        "AvgPool3DBackward0",
        "AdaptiveAvgPool2DBackward0",
        "AdaptiveAvgPool3DBackward0",
        "ReflectionPad1DBackward0",
        "ReflectionPad2DBackward0",
        "ReflectionPad3DBackward0",
        "ReplicationPad1DBackward0",
        "ReplicationPad2DBackward0",
        "ReplicationPad3DBackward0",
        "NllLossBackward0",
        "NllLoss2DBackward0",
    )
}
