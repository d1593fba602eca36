"""The loss of a language model, in little memory."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

import tuckfold
from tuckfold.torch import _library  # noqa: F401 (loads the operators)

_log = logging.getLogger("tuckfold.loss")
_rows = torch.ops.tuckfold.cross_entropy_rows.default
_grad = torch.ops.tuckfold.cross_entropy_grad.default
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_HAS_CUDA = tuckfold.has_cuda()  # of this build
_agrees: dict[tuple[torch.device, torch.dtype], bool] = {}
_PART = 1 << 24  # values that are computed with at once
_ONCE = b"[cross_entropy] has no second derivative; use torch.nn.functional.cross_entropy for it"


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """The mean cross entropy of rows of logits, as ``torch.nn.functional.cross_entropy`` has it.

    torch keeps the logarithms of all probabilities for backward, and makes their gradients and those of the
    logits in float32, so that a large vocabulary takes several times the memory of its logits. Here rows are computed
    some at a time, in float32, and once more in backward; only the logits are kept. On a GPU forward reads them
    once, and so does backward, which writes the gradient, by kernels that are compared with double precision before they are
    used first.

    Args:
        logits: of any float type; the last axis has the classes.
        target: the class of each row, or `ignore_index` for rows that do not count.

    Raises:
        ValueError: the shapes do not fit.
        RuntimeError: its gradient is differentiated.

    >>> logits = torch.randn(4, 16, 100, requires_grad=True)
    >>> target = torch.randint(100, (4, 16))
    >>> loss = tuckfold.torch.cross_entropy(logits, target)
    >>> torch.allclose(loss, torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()))
    True
    """
    if logits.dim() < 1 or logits.shape[:-1] != target.shape or not logits.is_floating_point():
        raise ValueError(
            f"[cross_entropy] target must have the shape of logits without the last axis, got {tuple(target.shape)} "
            f"for {tuple(logits.shape)} of {logits.dtype}"
        )
    return _CrossEntropy.apply(logits, target, ignore_index)


def _parts(logits: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    rows = max(1, _PART // max(1, logits.shape[-1]))
    return list(zip(logits.split(rows), target.split(rows), strict=True))


def _wide(of: Tensor) -> torch.dtype:
    return torch.promote_types(of.dtype, torch.float32)


def _is_fused(logits: Tensor, target: Tensor) -> bool:
    """Whether kernels of ours take them: on a CPU torch's are as fast, and compilers fuse torch's own."""
    of_types = logits.dtype in _FLOATS and target.dtype == torch.int64
    if not (_HAS_CUDA and logits.is_cuda and of_types) or torch.compiler.is_compiling():
        return False
    key = logits.device, logits.dtype
    if key not in _agrees:
        if torch.cuda.is_current_stream_capturing():
            return False
        _agrees[key] = _agree(*key)
        if not _agrees[key]:
            _log.warning(
                "kernels of cross_entropy do not give what torch's do on %s in %s, and are not used",
                *key,
            )
    return _agrees[key]


def _agree(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether kernels give what double precision does: seen once on each device, before they are used."""
    x = (torch.arange(7 * 1003, dtype=torch.float64, device=device).sin() * 9).view(7, 1003)
    x = x.to(dtype)
    classes = torch.tensor([0, 1002, 5, -100, 500, 8, 77], device=device)
    scale = torch.full((), 0.25, device=device)
    try:
        losses, sums = _rows(x, classes, -100)
        grad = _grad(x, classes, -100, sums, scale)
    except RuntimeError as error:
        _log.warning("%s", error)
        return False
    wide, counts = x.double(), classes != -100
    picks = classes.where(counts, 0).unsqueeze(1)
    logarithms = wide.log_softmax(1)
    wanted = -logarithms.gather(1, picks).squeeze(1) * counts
    slopes = logarithms.exp().scatter_add(1, picks, -torch.ones_like(picks, dtype=wide.dtype))
    slopes = slopes * counts.unsqueeze(1) * 0.25
    return bool(
        ((losses.double() - wanted).abs() <= 1e-5 * (1 + wanted)).all()
        & ((grad.double() - slopes).abs() <= torch.finfo(dtype).eps * slopes.abs() + 1e-6).all()
    )


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
        flat, classes = logits.reshape(-1, logits.shape[-1]), target.reshape(-1)
        counts = classes != ignore_index
        ctx.ignored = ignore_index
        ctx.is_fused = _is_fused(logits, target)
        if ctx.is_fused:
            losses, sums = _rows(flat.contiguous(), classes.contiguous(), ignore_index)
            count = counts.sum()
            ctx.save_for_backward(logits, target, sums, count)
            return (losses.sum(dtype=torch.float64) / count).to(losses.dtype)
        picks = classes.where(counts, 0).unsqueeze(1)
        logarithms = [
            part.log_softmax(1, dtype=_wide(part)).gather(1, pick).squeeze(1)
            for part, pick in _parts(flat, picks)
        ]
        count = counts.sum()
        share = counts.to(_wide(flat)) / count.clamp(min=1)  # of the mean
        ctx.save_for_backward(logits, picks, share)
        losses = torch.cat(logarithms).masked_fill(~counts, 0)
        # As torch's: NaN where no row counts, though its gradient is zero.
        return -(losses.double().sum() / count).to(_wide(flat))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        with torch.no_grad():
            out = _CrossEntropy._gradient(ctx, grad)
        if torch.is_grad_enabled():  # somebody may differentiate it once more
            refuse = torch._C._functions.DelayedError(_ONCE, 1)
            out = refuse(out.requires_grad_())
        return out, None, None

    @staticmethod
    def _gradient(ctx: Any, grad: Tensor) -> Tensor:
        flat = ctx.saved_tensors[0].reshape(-1, ctx.saved_tensors[0].shape[-1])
        if ctx.is_fused:
            logits, target, sums, count = ctx.saved_tensors
            classes = target.reshape(-1).contiguous()
            out = _grad(flat.contiguous(), classes, ctx.ignored, sums, grad / count)
            return out.view(logits.shape)
        logits, picks, share = ctx.saved_tensors
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        factors = (share * grad).unsqueeze(1)
        minus = torch.full((), -1.0, dtype=_wide(flat), device=flat.device)
        at = 0
        for part, pick in _parts(flat, picks):
            rows = slice(at, at := at + len(part))
            wide = part.softmax(1, dtype=_wide(part)).scatter_add_(1, pick, minus.expand_as(pick))
            torch.mul(wide, factors[rows], out=out[rows])
            del wide
        return out.view(logits.shape)
