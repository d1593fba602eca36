"""The gradients of a plain and of a wrapped model, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations._forms import as_bits
from tuckfold.torch._activations._handle import Activations, handle_of
from tuckfold.torch._activations._peak import PASSES
from tuckfold.torch._activations._plan import Plan, compiled_plan, split
from tuckfold.torch._activations._quality import Measure, Quality
from tuckfold.torch._activations._text import bytes_text
from tuckfold.torch._activations._trace import Trace, untouched
from tuckfold.torch._activations._warn import warn
from tuckfold.torch._activations._wrap import activations

_REPEATED = 8  # passes over one batch, where a codec's noise differs


@dataclass
class Difference:
    """One parameter's gradients."""

    name: str
    identical: bool
    cosine: float
    relative_error: float


@dataclass
class Check:
    """What :func:`check` found; ``print`` shows a table.

    Attributes:
        ok: whether every bit of every gradient and of the loss is the same.
        repeatable: whether the plain model repeats itself; if not, ok may be False through no fault
            of how tensors are stored. See ``torch.use_deterministic_algorithms``.
        parameters: a comparison each.
        loss, wrapped_loss: the values.
        saved, stored: bytes, as in a plan.
        peak, wrapped_peak: bytes of GPU memory above what was allocated before; None on a CPU.
        ms, wrapped_ms: of forward and backward.
        quality: of gradients that a codec changes; None where all is stored exactly.
    """

    ok: bool
    repeatable: bool
    parameters: list[Difference]
    loss: float
    wrapped_loss: float
    saved: int
    stored: int
    peak: int | None
    wrapped_peak: int | None
    ms: float
    wrapped_ms: float
    quality: Quality | None = None

    @property
    def is_good(self) -> bool:
        """Whether gradients are the same, or with a codec near enough; see :class:`Quality`."""
        return self.ok or (self.quality is not None and self.quality.is_good)

    def __str__(self) -> str:
        width = max([len("parameter"), *(len(p.name) for p in self.parameters)])
        lines = [f"{'parameter':{width}}  identical  cosine    relative error"]
        for p in self.parameters:
            word = "yes" if p.identical else "NO"
            lines.append(f"{p.name:{width}}  {word:9}  {p.cosine:.6f}  {p.relative_error:.2e}")
        lines.append(f"loss {self.loss!r} and {self.wrapped_loss!r}")
        lines.append(f"saved {bytes_text(self.saved)}, stored {bytes_text(self.stored)}")
        if self.peak is not None and self.wrapped_peak is not None:
            lines.append(f"peak {bytes_text(self.peak)} and {bytes_text(self.wrapped_peak)}")
        lines.append(f"time {self.ms:.1f} ms and {self.wrapped_ms:.1f} ms")
        verdict = "every bit is the same" if self.ok else "gradients differ"
        if self.quality is not None and not self.ok:
            lines.append(str(self.quality))
            verdict += (
                ", by less than what is safe" if self.is_good else ", by more than what is safe"
            )
        if not self.repeatable:
            verdict += (
                "; the plain model does not repeat itself, see torch.use_deterministic_algorithms"
            )
        return "\n".join([*lines, verdict])


@dataclass
class _Result:
    loss: Tensor
    gradients: list[Tensor | None]
    ms: float
    peak: int | None


def _step(
    model: nn.Module, inputs: tuple[Any, ...], loss: Callable[[Any], Tensor | None]
) -> _Result:
    parameters = [p for p in model.parameters() if p.requires_grad]
    on_gpu = any(p.is_cuda for p in parameters)
    with untouched(model), torch.enable_grad():
        base = 0
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
        began = time.perf_counter()
        value = loss(model(*inputs))
        if value is None:
            raise ValueError("[check] no output of the model requires a gradient")
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        if on_gpu:
            torch.cuda.synchronize()
        ms = (time.perf_counter() - began) * 1e3
        peak = torch.cuda.max_memory_allocated() - base if on_gpu else None
    return _Result(value.detach(), list(gradients), ms, peak)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool(torch.equal(as_bits(a.contiguous()), as_bits(b.contiguous())))


def _difference(name: str, a: Tensor | None, b: Tensor | None) -> Difference:
    if a is None or b is None or _same(a, b):
        return Difference(name, _same(a, b), 1.0 if _same(a, b) else 0.0, 0.0)
    x, y = a.double().flatten(), b.double().flatten()
    norm = float(x.norm())
    error = float((x - y).norm()) / norm if norm else float("inf")
    return Difference(name, False, float(torch.cosine_similarity(x, y, dim=0)), error)


def check(
    model: nn.Module,
    batch: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    more: Sequence[Any] = (),
    **options: Any,
) -> Check:
    """Compares gradients with and without wrapping, on a batch of yours.

    The model, its gradients, buffers and random numbers are left as they were. With a codec the
    comparison is made over several passes, since the codec's noise differs: over batch and more, or
    eight times over batch.

    Args:
        model: wrapped or not.
        batch: what the model is called with; with loss a pair of that and a target. A tuple in the
            first place is the model's arguments.
        loss: a function of output and target; else the mean of the squared outputs.
        more: other batches, of the same sizes.
        options: of :func:`wrap`, where the model is not wrapped.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> tuckfold.torch.check(model, torch.rand(4, 8)).ok
    True
    """
    inputs, _, of = split(batch, loss)
    act = handle_of(getattr(model, "_orig_mod", model))
    if act is not None:
        with act.paused():
            plain = [_step(model, inputs, of) for _ in range(3)]
        return _compare(act, model, plain, inputs, of, [split(b, loss) for b in more])
    plain = [_step(model, inputs, of) for _ in range(3)]
    with activations(model, **options) as act:
        return _compare(act, model, plain, inputs, of, [split(b, loss) for b in more])


def quality_of(
    act: Activations, model: nn.Module, batches: Sequence[tuple[Any, ...]], is_one_batch: bool
) -> Quality:
    """Of gradients with what the handle stores, over batches as :func:`split` gives them."""
    measure = Measure([name for name, p in model.named_parameters() if p.requires_grad])
    for inputs, _, of in batches:
        with act.paused():
            exact = _step(model, inputs, of).gradients
        measure.add(exact, _step(model, inputs, of).gradients)
    return measure.result(is_one_batch)


def _compare(
    act: Activations,
    model: nn.Module,
    plain: list[_Result],
    inputs: tuple[Any, ...],
    of: Callable[..., Any],
    more: list[tuple[Any, ...]],
) -> Check:
    for _ in range(PASSES + 1):  # the last is like all that follow
        wrapped = _step(model, inputs, of)
    trace: Trace | Plan
    with act.traced(Trace(model)) as trace:
        _step(model, inputs, of)
    if not trace.rows and act.compiled:
        trace = compiled_plan(act.compiled)
    elif not trace.rows:
        warn(
            "[check] no saved tensor was seen, so nothing may have been tried: compiled graphs came from torch's "
            "cache, torch.compile runs this model without compiling it, or hooks of somebody else are around it"
        )
    exact = plain[-1]
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    found = [
        _difference(*row) for row in zip(names, exact.gradients, wrapped.gradients, strict=True)
    ]
    repeatable = _same(plain[-2].loss, exact.loss) and all(
        map(_same, plain[-2].gradients, exact.gradients)
    )
    quality = None
    if act.is_lossy:
        batches = [(inputs, (), of), *(more or [(inputs, (), of)] * (_REPEATED - 1))]
        quality = quality_of(act, model, batches, not more)
    return Check(
        ok=_same(exact.loss, wrapped.loss) and all(p.identical for p in found),
        repeatable=repeatable,
        parameters=found,
        loss=float(exact.loss),
        wrapped_loss=float(wrapped.loss),
        saved=trace.before,
        stored=trace.after,
        peak=exact.peak,
        wrapped_peak=wrapped.peak,
        ms=exact.ms,
        wrapped_ms=wrapped.ms,
        quality=quality,
    )
