"""How much noise each tensor's codec adds to gradients, measured on batches of the user's.

The noise of independent tensors adds up. So each probe packs a random half of them, and the squares
of the differences that gradients then have are solved for the parts of single tensors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations._budget import square_of
from tuckfold.torch._activations._lossy import error_of
from tuckfold.torch._activations._timeline import Item, Ledger, Timeline
from tuckfold.torch._activations._trace import untouched

if TYPE_CHECKING:
    from tuckfold.torch._activations._goal import Goal
    from tuckfold.torch._activations._handle import Activations

CODEC = "block_quant(bits=4, group=256, round=stochastic)"
_STEPS = 400  # of the projected gradient
_LEAST = 0.2  # of the mean part
_TRUST = 0.05  # in the guess that all tensors matter alike, against one probe


@dataclass
class Probe:
    """What :meth:`Activations.probe` found; ``print`` shows a table.

    Attributes:
        parts: by tensor, the variance that 4 bits add, as a part of the variance between batches, or of the
            gradient's square where there was one batch.
        variance: the variance between batches over the gradient's square; None with one batch.
        probes: how many were made.
    """

    parts: list[tuple[str, float]]
    variance: float | None
    probes: int

    def __str__(self) -> str:
        width = max([len("tensor"), *(len(name) for name, _ in self.parts)])
        lines = [f"{'tensor':{width}}  noise of 4 bits"]
        lines += [f"{name:{width}}  {part:.2e}" for name, part in self.parts]
        of = (
            "the variance between batches" if self.variance is not None else "the gradient's square"
        )
        return "\n".join([*lines, f"{self.probes} probes; as parts of {of}"])


class _Gradients:
    """Calls of the user's step, which leave parameters' gradients, buffers and random numbers alone."""

    def __init__(self, model: nn.Module, step: Callable[[Any], object]) -> None:
        self.model, self.step = model, step
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def __call__(self, batch: Any) -> list[Tensor | None]:
        before = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        try:
            with untouched(self.model), torch.enable_grad():
                self.step(batch)
            return [p.grad for p in self.parameters]
        finally:
            for p, grad in zip(self.parameters, before, strict=True):
                p.grad = grad


def _items(act: Activations, gradients: _Gradients, batch: Any) -> list[Item]:
    device = next((p.device for p in act.model.parameters()), torch.device("cpu"))
    gradients(batch)  # compares what may be recomputed
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        gradients(batch)
        torch.cuda.synchronize(device)
    ledger = Ledger(act.model, Timeline([], device))
    with act.named(), act.traced(ledger):
        gradients(batch)
    return ledger.items


def solved(rows: list[list[float]], values: list[float], guess: float) -> list[float]:
    """Parts that are not negative, and sum to the values by rows; near the guess where those leave it open."""
    a = torch.tensor(rows, dtype=torch.float64)
    y = torch.tensor(values, dtype=torch.float64)
    count = a.shape[1]
    x = torch.full((count,), guess, dtype=torch.float64)
    ridge = _TRUST * float(a.square().sum()) / count
    hessian = a.T @ a + ridge * torch.eye(count, dtype=torch.float64)
    target = a.T @ y + ridge * guess
    rate = 1 / float(torch.linalg.matrix_norm(hessian, 2))
    for _ in range(_STEPS):
        x = (x - rate * (hessian @ x - target)).clamp_min_(0)
    return x.tolist()


def probe(
    goal: Goal,
    act: Activations,
    step: Callable[[Any], object],
    batches: Sequence[Any],
    count: int,
) -> Probe:
    gradients = _Gradients(act.model, step)
    goal.is_fitting = True
    chosen = goal.chosen
    try:
        goal.decide(act, {}, is_open=True)
        items = _items(act, gradients, batches[0])
        packed = [i for i in items if i.how != "recompute"]
        with act.paused():
            exact = [gradients(batch) for batch in batches]
        square = sum(map(square_of, exact)) / len(exact)
        spread = _spread(exact) if len(exact) > 1 else None
        whole = square if spread is None else spread
        rows, values = [], []
        draw = random.Random(1)
        for number in range(count):
            half = [draw.random() < 0.5 for _ in packed]
            decisions = {i.key: "recompute" for i in items if i.how == "recompute"}
            decisions |= {i.key: CODEC if h else "keep" for i, h in zip(packed, half, strict=True)}
            goal.decide(act, decisions)
            at = number % len(batches)
            # Batches differ in how large their gradients are, so the noise is taken relative to each.
            noise = square_of(gradients(batches[at]), exact[at]) / (square_of(exact[at]) or 1.0)
            values.append(noise * square / (whole or 1.0))
            rows.append([float(h) for h in half])
        guess = 2 * sum(values) / max(1, len(values) * len(packed))
        parts = solved(rows, values, guess) if packed and values else []
    finally:
        goal.is_fitting = False
        goal.decide(act, chosen)
    # Few probes do not show how small a part is: what seems free counts as a part of the mean.
    least = _LEAST * guess
    error = error_of(CODEC)
    goal.weights = {i.key: max(part, least) / error for i, part in zip(packed, parts, strict=True)}
    goal.unit = whole / square if square and whole else 1.0
    goal.fitted = None
    names = [i.name for i in packed]
    variance = None if spread is None else spread / square if square else 0.0
    return Probe(list(zip(names, parts, strict=True)), variance, count)


def _spread(gradients: list[list[Tensor | None]]) -> float:
    """The variance between batches."""
    n = len(gradients)
    total = 0.0
    for of_one in zip(*gradients, strict=True):
        found = [g.double() for g in of_one if g is not None]
        if len(found) == n:
            mean = sum(found[1:], found[0]) / n
            total += sum(float((g - mean).square().sum()) for g in found)
    return total / (n - 1)
