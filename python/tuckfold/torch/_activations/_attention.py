"""Fused attention whose q, k and v a codec stores.

Backward computes exp(q k - l), where l is the logarithm of a sum that forward has saved. With decoded q and k and an
exact l these no longer add up to one, and grow without limit with the scores. So l is made again from what was
decoded, and with it the output that backward reads, unless dropout took part in it: the gradient is then that of
attention at the decoded values. Others that saved the output read what is stored of it; where fewer than 8 bits were
named for attention and nobody else holds it, nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tuckfold.torch._activations._graph import Prober, kind
from tuckfold.torch._activations._lossy import Lossy, for_scores, is_exact
from tuckfold.torch._activations._recipe import Recomputed, outside, read
from tuckfold.torch._activations._saved import Form, Handle, Kept

aten = torch.ops.aten
Leaf = Handle | Kept
NAMES = ("query", "key", "value")


def _cpu(v: list[Tensor], mask: Tensor | None, causal: bool, scale: float | None) -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu(
        *v, 0.0, causal, attn_mask=mask, scale=scale
    )


def _flash(v: list[Tensor], mask: Tensor | None, causal: bool, scale: float | None) -> Any:
    return aten._scaled_dot_product_flash_attention(*v, 0.0, causal, False, scale=scale)


def _efficient(v: list[Tensor], mask: Tensor | None, causal: bool, scale: float | None) -> Any:
    return aten._scaled_dot_product_efficient_attention(*v, mask, True, 0.0, causal, scale=scale)


def _cudnn(v: list[Tensor], mask: Tensor | None, causal: bool, scale: float | None) -> Any:
    return aten._scaled_dot_product_cudnn_attention(*v, mask, True, 0.0, causal, False, scale=scale)


# The operator that makes a node's output and sums, and the node's name of a mask.
KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "ScaledDotProductFlashAttentionForCpuBackward0": (_cpu, "attn_mask"),
    "ScaledDotProductFlashAttentionBackward0": (_flash, ""),
    "ScaledDotProductEfficientAttentionBackward0": (_efficient, "attn_bias"),
    "ScaledDotProductCudnnAttentionBackward0": (_cudnn, "attn_bias"),
}
_SUMS = ("logsumexp", "log_sumexp")


def is_changed(form: Form | None) -> bool:
    """Whether a codec changes the values, or what they are made again from."""
    if isinstance(form, Recomputed):
        return any(isinstance(x, Handle) and is_changed(x.form) for x in form.leaves)
    return isinstance(form, Lossy) and form.changes and not is_exact(form.label)


def is_few(codec: str) -> bool:
    """Whether scores get it only where somebody names it for them."""
    return for_scores(codec) != codec


class Sums:
    """Those of one node: as they were saved, or made again where q or k is decoded, with the output.

    As a form, of sums that are large enough for a handle, it has the saved ones.
    """

    __slots__ = ("call", "leaves", "made", "mask", "saved", "with_output")
    label = "keep"
    whole = True

    def __init__(self, call: Callable[..., Any], leaves: list[Leaf], mask: Leaf | None) -> None:
        self.call, self.leaves, self.mask = call, leaves, mask
        self.saved: Kept | None = None
        self.with_output = False  # whether that is asked for
        self.made: dict[int, Tensor] = {}  # and not given yet

    @property
    def nbytes(self) -> int:
        return 0 if self.saved is None else self.saved.tensor.nbytes

    def value(self) -> Tensor | None:
        """None: the saved ones are right."""
        return self.take(1)

    def take(self, place: int) -> Tensor | None:
        """One result of the operator; backward asks for each once."""
        if not any(is_changed(x.form) for x in self.leaves[:2] if isinstance(x, Handle)):
            return None
        if place not in self.made:
            self.made = dict(enumerate(outside(self._call)))
            if not self.with_output:
                del self.made[0]
        return self.made.pop(place)

    def _call(self) -> Any:
        mask = None if self.mask is None else read(self.mask)
        return self.call([read(x) for x in self.leaves], mask)[:2]

    def decode(self, handle: Handle) -> Tensor:
        assert self.saved is not None
        return self.saved.value()


class Output:
    """That of one node, where its sums are made again."""

    __slots__ = ("sums",)

    def __init__(self, sums: Sums) -> None:
        self.sums, sums.with_output = sums, True

    def value(self) -> Tensor | None:
        return self.sums.take(0)


def drops(node: Any) -> bool:
    """Whether dropout drew what cannot be drawn again; sums do not depend on it, the output does."""
    return getattr(node, "_saved_dropout_p", 0.0) != 0.0


def call_of(node: Any) -> Callable[..., Any]:
    """The node's operator, of q, k, v and a mask, without dropout."""
    call, _ = KINDS[kind(node)]
    causal, scale = node._saved_is_causal, node._saved_scale
    return lambda v, mask: call(v, mask, causal, scale)


def is_output(handles: list[Handle]) -> bool:
    return any(h.role == "output" and h.op in KINDS for h in handles)


def sums_name(node: Any) -> str:
    return next((name for name in _SUMS if hasattr(node, f"_raw_saved_{name}")), "")


def sums_of(node: Any, read: Callable[[Any, str], Leaf | None]) -> Sums | None:
    """Of a node; read: what holds one of its attributes."""
    leaves = [leaf for name in NAMES if (leaf := read(node, f"_saved_{name}")) is not None]
    if len(leaves) < len(NAMES):
        return None
    name = KINDS[kind(node)][1]
    return Sums(call_of(node), leaves, read(node, f"_saved_{name}") if name else None)


def learn(node: Any, probe: Prober) -> None:
    """The node's sums are from now on those of what is decoded, so that q and k may be lossy; else they are not."""
    if kind(node) not in KINDS:
        return
    name = sums_name(node)
    sums = sums_of(node, probe.any) if name else None
    found = probe.any(node, f"_saved_{name}") if sums is not None else None
    grade = "score" if drops(node) else "sums"
    again = sums
    if sums is not None and isinstance(found, Kept):
        found.again = sums
    elif sums is not None and isinstance(found, Handle) and found.tensor is not None:
        sums.saved = Kept(found.tensor, found.version, found.origin)
        sums.saved.again = again = Sums(sums.call, sums.leaves, sums.mask)
        found.store(sums)
    else:
        grade = ""
    output = probe.any(node, "_saved_output") if grade == "sums" else None
    if output is not None and again is not None:
        output.again = Output(again)
    for role in NAMES[:2]:
        leaf = probe.any(node, f"_saved_{role}")
        if isinstance(leaf, Handle) and leaf.grade == "score":
            leaf.grade = grade
