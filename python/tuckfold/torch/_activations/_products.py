"""Products of matrices that are made again in backward: as many as take a small part of a step.

A product takes far longer than an element-wise operator, so a pass makes only some of them again: the first
ones, whose results wait longest, until their flops are a share of those of all its products. They are
those of linear layers under autocast: its copy of a weight is nobody else's, so a change of the weight
between forward and backward does not reach it.

With a codec they are those that attention's scores are computed from, which would have 8 bits otherwise: three tensors
follow from one, the input of a normalization, and need not be packed and unpacked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuckfold.torch._activations._graph import is_cast_leaf, kind
from tuckfold.torch._activations._recipe import Recipe
from tuckfold.torch._activations._saved import Kept

if TYPE_CHECKING:
    from tuckfold.torch._activations._recompute import Builder

Node = Any
# Of a step's flops of products, for the first number of operators that may be run again, and for each
# further one. On a CPU products take most of the time.
SHARE = {"cuda": 0.02, "cpu": 0.0}
SHARE_OF_SCORES = {"cuda": 0.1, "cpu": 0.0}  # with a codec
# The nodes, with what they saved of both sides, and the argument that the bias is.
KINDS: dict[str, tuple[str, str, int | None]] = {
    "AddmmBackward0": ("mat1", "mat2", 0),
    "MmBackward0": ("self", "mat2", None),
}
_IN_A_STEP = 3  # products in forward and backward for each in forward


def flops(node: Node) -> int:
    """Of a product's forward; 0 where that is not known."""
    left = KINDS[kind(node)][0]
    sizes = getattr(node, f"_saved_{left}_sym_sizes", ())
    shape = node._input_metadata[0].shape
    return 2 * math.prod(map(int, shape)) * int(sizes[-1]) if len(sizes) == 2 else 0


def limit(
    of_a_pass: int, device: torch.device, most: int, least: int, is_lossy: bool = False
) -> float:
    """Flops that may be run again, if all products of a pass have so many.

    most: operators that may be run again for one tensor. least: below it there is nothing.
    """
    share = (SHARE_OF_SCORES if is_lossy else SHARE).get(device.type, 0.0)
    return share * max(0, most - least + 1) * _IN_A_STEP * of_a_pass


def settings() -> tuple[object, ...]:
    """Of torch, that the bits of products depend on."""
    cuda = torch.backends.cuda.matmul
    return (
        cuda.allow_bf16_reduced_precision_reduction,
        cuda.allow_fp16_reduced_precision_reduction,
        getattr(cuda, "allow_fp16_accumulation", False),
        str(torch.backends.cuda.preferred_blas_library()),
        torch.are_deterministic_algorithms_enabled(),
    )


def recipe(builder: Builder, node: Node) -> Recipe | None:
    """How a product is made again, or None."""
    left, right, bias = KINDS[kind(node)]
    edges = node.next_functions
    weight = edges[-1][0]
    while weight is not None and kind(weight) in ("TBackward0", "TransposeBackward0"):
        weight = weight.next_functions[0][0]
    if weight is None or not is_cast_leaf(weight):
        return None
    a, b = builder.shared(node, f"_saved_{left}"), builder.shared(node, f"_saved_{right}")
    if a is None or not isinstance(b, Kept):
        return None
    dtype = node._input_metadata[0].dtype
    if dtype not in (torch.bfloat16, torch.float16):
        return None
    if bias is None:
        return Recipe(f"mm{settings()}", lambda v, _: torch.mm(*v), [a, b], ("mm",))
    if node._saved_alpha != 1 or node._saved_beta != 1:
        return None
    added = _cast(builder, edges[bias][0], dtype)
    if added is None:
        return None
    make = lambda v, _: torch.addmm(*v)  # noqa: E731
    return Recipe(f"addmm{settings()}", make, [added, a, b], ("addmm",))


def _cast(builder: Builder, node: Node | None, dtype: torch.dtype) -> Recipe | None:
    """Of a bias, which no node saved."""
    if node is None or not is_cast_leaf(node):
        return None
    leaf = node.next_functions[0][0].variable
    if type(leaf.data) is not Tensor or leaf.dim() != 1:
        return None
    make = lambda v, _: torch.ops.aten._to_copy(v[0], dtype=dtype)  # noqa: E731
    made = Recipe(f"to[{dtype}]", make, [Kept(leaf, leaf._version, None)], ("to", dtype))
    made.node, made.place = node, 0
    return made
