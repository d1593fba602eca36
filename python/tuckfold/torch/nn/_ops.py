"""What torch's stable ABI leaves to Python for the operators of structured layers: fake kernels, autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tuckfold._structure import structure_of
from tuckfold.torch import _library as ops  # loads the operators
from tuckfold.torch.nn._plain import plain

__all__ = ["call"]
call = ops.call


def _forward_shape(
    x: Tensor, text: str, out: int, weights: list[Tensor], bias: Tensor | None
) -> Tensor:
    return x.new_empty((*x.shape[:-1], out))


def _backward_shapes(
    grad_y: Tensor, x: Tensor, text: str, weights: list[Tensor], needs_x: bool
) -> list[Tensor]:
    return [
        x.new_empty(x.shape if needs_x else (0,)),
        *(x.new_empty(w.shape if w.is_floating_point() else (0,)) for w in weights),
        x.new_empty((grad_y.shape[-1],)),
    ]


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.text, _, weights, bias = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, *weights)


def _differentiable(ctx: Any, grad_y: Tensor, x: Tensor, weights: list[Tensor]) -> tuple[Any, ...]:
    """The gradients by torch's operators, for `create_graph` and for gradients that are batched."""
    s = structure_of(ctx.text, x.shape[-1], grad_y.shape[-1])
    has_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        y = plain(s, x, weights)
    wanted = [t for t in (x, *weights) if t.requires_grad]
    found = iter(torch.autograd.grad(y, wanted, grad_y, create_graph=has_graph) if wanted else ())
    gx, *grads = [next(found) if t.requires_grad else None for t in (x, *weights)]
    bias = grad_y.reshape(-1, grad_y.shape[-1]).sum(0) if ctx.has_bias else None
    return gx, None, None, grads, bias


def _no_more(ctx: Any, *_: Any) -> None:
    raise NotImplementedError(
        "[structured_backward] has no derivative of its own; call the layer, whose second derivatives "
        "are torch's"
    )


def _backward(name: str) -> Any:
    operator = getattr(torch.ops.tuckfold, f"{name}_backward")

    def backward(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        needs_x = ctx.needs_input_grad[0]
        if torch.is_grad_enabled() or torch._C._functorch.is_legacy_batchedtensor(grad_y):
            return _differentiable(ctx, grad_y, x, weights)
        gx, *rest = operator(grad_y, x, ctx.text, weights, needs_x)
        grads = [
            g if w.is_floating_point() else None for g, w in zip(rest[:-1], weights, strict=True)
        ]
        return gx if needs_x else None, None, None, grads, rest[-1] if ctx.has_bias else None

    return backward


for _name in ("structured", "structured_kernel"):
    torch.library.register_fake(f"tuckfold::{_name}")(_forward_shape)
    torch.library.register_fake(f"tuckfold::{_name}_backward")(_backward_shapes)
    torch.library.register_autograd(
        f"tuckfold::{_name}", _backward(_name), setup_context=_keep_inputs
    )
    torch.library.register_autograd(f"tuckfold::{_name}_backward", _no_more)
