"""What a pass saves and how it is stored, as a table and as a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuckfold.torch._activations._peak import LiveBytes, Peak, bytes_of
from tuckfold.torch._activations._text import bytes_text, quoted
from tuckfold.torch._activations._trace import Row, Trace, untouched
from tuckfold.torch._activations._warn import warn

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_PASSES_FOR_PROOFS = 3  # until a GPU has answered which values may be recomputed


class Plan:
    """The tensors of one pass; ``print`` shows a table.

    Attributes:
        rows: a saved tensor each.
        before: bytes that autograd alone would hold, each storage counted once.
        after: bytes that are stored instead.
        peak: the most bytes of saved tensors at any time, with what is unpacked to be read.
        step: what a training step takes at most, as far as this pass tells: without an optimizer, and
            with the mean of the squared outputs as loss. See :meth:`Activations.peak`. None for compiled
            graphs.
        forward_ms, backward_ms: of the pass that was watched.
    """

    def __init__(
        self,
        trace: Any,  # a Trace or a CompiledTrace
        forward_ms: float,
        backward_ms: float,
        step: Peak | None,
    ) -> None:
        self.rows: list[Row] = trace.saved
        self.before: int = trace.before
        self.after: int = trace.after
        self.peak: int = trace.peak
        self.events: list[tuple[float, str, int, str]] = trace.events
        self.step: Peak | None = step
        self.forward_ms: float = forward_ms
        self.backward_ms: float = backward_ms

    @property
    def ratio(self) -> float:
        return self.before / self.after if self.after else 1.0

    def __str__(self) -> str:
        titles = ("module", "operator", "tensor", "shape", "dtype", "stored", "before", "after")
        lines = [titles]
        for row in self.rows:
            shape = "x".join(map(str, row.shape))
            before = bytes_text(row.before) if row.before else "shared"
            after = bytes_text(row.after) if row.before or row.after else ""
            lines.append(
                (row.module, row.op or "?", row.role, shape, row.dtype, row.how, before, after)
            )
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        text = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        text.append(
            f"{bytes_text(self.before)} are saved, {bytes_text(self.after)} stored: "
            f"{self.ratio:.2f} times less; at most {bytes_text(self.peak)} at any time"
        )
        if self.step is not None:
            text.append(str(self.step))
        return "\n".join(text)

    def save(self, path: str | Path) -> None:
        """Writes it as text that :func:`wrap` reads."""
        lines = [
            "# How the tensors that the model saves are stored; wrap(model, plan=...) reads it."
        ]
        entries: dict[tuple[str, str, str], Row] = {}
        for row in self.rows:
            key = (row.module, row.op, row.role)
            if key not in entries or entries[key].how == "keep":
                entries[key] = row
        for (module, op, role), row in entries.items():
            lines += [
                "",
                "[[tensor]]",
                f"module = {quoted(module)}",
                f"op = {quoted(op)}",
                f"role = {quoted(role)}",
                f"how = {quoted(_form_of(row))}",
                f"shape = {quoted('x'.join(map(str, row.shape)))}",
                f"dtype = {quoted(row.dtype)}",
                f"before = {row.before}",
                f"after = {row.after}",
            ]
        Path(path).write_text("\n".join(lines) + "\n")


def _form_of(row: Row) -> str:
    """As plans name it: without the mask that a compiled graph adds."""
    return row.how.removesuffix(", 1 bit")


def scalar_of(outputs: Any) -> Tensor | None:
    """The loss that a model returns by that name, or one number that depends on all outputs with gradients."""
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1:
        return loss
    total = None
    for x in torch.utils._pytree.tree_leaves(outputs):
        if isinstance(x, Tensor) and x.requires_grad:
            part = x.float().square().mean()
            total = part if total is None else total + part
    return total


def split(
    batch: Any, loss: Callable[..., Tensor] | None
) -> tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Any], Tensor | None]]:
    """A batch as the model's arguments and the target, and the loss of the model's output."""
    target: tuple[Any, ...] = ()
    if loss is None:
        inputs = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        return inputs, target, scalar_of
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        batch, target = batch[0], (batch[1],)
    inputs = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    return inputs, target, lambda output: loss(output, *target)


def run_once(act: Activations, arguments: Any, keywords: Any) -> tuple[float, float]:
    """One forward and one backward pass; milliseconds of each."""
    model = act.model
    parameters = [p for p in model.parameters() if p.requires_grad]
    with untouched(model), torch.enable_grad():
        _wait(model)
        began = time.perf_counter()
        loss = scalar_of(model(*arguments, **keywords))
        _wait(model)
        middle = time.perf_counter()
        if loss is not None and parameters:
            try:
                torch.autograd.grad(loss, parameters, allow_unused=True)
            except (
                RuntimeError
            ) as error:  # such as a reentrant checkpoint's, which writes gradients
                warn(f"[plan] backward was left out: {error}")
        _wait(model)
        ended = time.perf_counter()
    return (middle - began) * 1e3, (ended - middle) * 1e3


def _is_on_gpu(model: torch.nn.Module) -> bool:
    return any(p.is_cuda for p in model.parameters())


def _wait(model: torch.nn.Module) -> None:
    if _is_on_gpu(model):
        torch.cuda.synchronize()


class CompiledTrace:
    """What compiled graphs save, as a plan reads it."""

    def __init__(self, rows: list[Row]) -> None:
        self.saved = rows
        self.before, self.after = sum(r.before for r in rows), sum(r.after for r in rows)
        self.events: list[tuple[float, str, int, str]] = []
        live = 0
        for row in rows:
            live += row.after
            self.events.append((0.0, "save", live, row.module))
        for row in reversed(rows):  # each is whole again while it is read
            whole = 0 if row.how == "keep" else row.before
            self.events.append((0.0, "read", live + whole, row.module))
            live -= row.after
        self.peak = max((stored for _, _, stored, _ in self.events), default=0)


def compiled_plan(graphs: dict[object, list[Row]]) -> Plan:
    """Of the graphs that torch.compile has made."""
    return Plan(CompiledTrace([row for rows in graphs.values() for row in rows]), 0.0, 0.0, None)


def make_plan(act: Activations, arguments: Any, keywords: Any, is_asked: bool = True) -> Plan:
    """Watches a pass after the first ones, which compare what may be recomputed.

    is_asked: whether somebody waits for it, and is told where there is nothing in it.
    """
    model = act.model
    on_gpu = _is_on_gpu(model)
    for _ in range(_PASSES_FOR_PROOFS if on_gpu else 1):
        forward, backward = run_once(act, arguments, keywords)
    if act.compiled:
        with act.traced(Trace(model)) as trace:
            run_once(act, arguments, keywords)
        if not trace.rows:
            return compiled_plan(act.compiled)
    given = torch.utils._pytree.tree_leaves((arguments, keywords))
    own = [*model.parameters(), *model.buffers()]
    with act.traced(Trace(model)) as trace:
        if on_gpu:
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run_once(act, arguments, keywords)
            most = torch.cuda.max_memory_allocated() - before
        else:
            with LiveBytes([t for t in (*own, *given) if isinstance(t, Tensor)]) as live:
                run_once(act, arguments, keywords)
            most = live.most
    if not trace.rows and is_asked:
        warn(
            "[plan] the model saved no tensors: no parameter requires a gradient, it is compiled, or "
            "hooks of somebody else are around it"
        )
    return Plan(trace, forward, backward, Peak(bytes_of(own), bytes_of(given), 0, most))
