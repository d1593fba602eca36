"""How good gradients are that a codec has changed: their error, its bias, and what it adds to the
variance that they have anyway."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_COSINE = 0.98  # of each parameter with more than _SHARE of the gradient's norm
MOST_BIAS = 0.02  # of the mean gradient
MOST_VARIANCE = 0.10  # of the minibatch's
_SHARE = 0.01


@dataclass
class Quality:
    """Of gradients with a codec, against exact ones; ``print`` shows a line.

    Attributes:
        cosine: the least of any parameter that has at least 1 % of the gradient's norm.
        parameter: which that is.
        relative_error: the root of the errors' squares over the gradients', each summed over the batches.
        bias: the norm of the mean error over that of the mean gradient; what noise of mean 0 would leave
            over so few batches is subtracted. None where one batch was repeated: rounding to nearest repeats
            its error there.
        variance: what the codec adds to the variance of gradients, as a part of the variance between
            batches; None likewise.
        batches: how many.
    """

    cosine: float
    parameter: str
    relative_error: float
    bias: float | None
    variance: float | None
    batches: int

    @property
    def is_good(self) -> bool:
        """Whether the codec's part is small: cosine at least 0.98, bias at most 2 %, variance 10 %."""
        return (
            self.cosine >= LEAST_COSINE
            and (self.bias is None or self.bias <= MOST_BIAS)
            and (self.variance is None or self.variance <= MOST_VARIANCE)
        )

    def __str__(self) -> str:
        text = (
            f"cosine {self.cosine:.4f} at least, of {self.parameter}; relative error "
            f"{self.relative_error:.2e}"
        )
        if self.bias is not None:
            text += f"; bias {self.bias:.2e}"
        if self.variance is not None:
            text += f"; added variance {self.variance:.2e} of the batches'"
        return f"{text}; over {self.batches} passes"


class Measure:
    """Sums over batches."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.batches = names, 0
        self._cosines = [1.0] * len(names)
        self._gradient: list[Tensor | None] = [None] * len(names)
        self._error: list[Tensor | None] = [None] * len(names)
        self._squares = [0.0, 0.0]  # of gradients, of errors

    def add(self, exact: Sequence[Tensor | None], lossy: Sequence[Tensor | None]) -> None:
        """The gradients of one batch."""
        self.batches += 1
        norms = [0.0 if a is None else float(a.double().square().sum()) for a in exact]
        total = sum(norms)
        for i, (a, b) in enumerate(zip(exact, lossy, strict=True)):
            if a is None or b is None:
                continue
            x, y = a.double().flatten(), b.double().flatten()
            e = y - x
            self._squares[0] += norms[i]
            self._squares[1] += float(e.square().sum())
            if norms[i] > _SHARE**2 * total:
                cosine = float(torch.dot(x, y)) / math.sqrt(norms[i] * float(y.square().sum()) or 1)
                worst = min(self._cosines[i], cosine)
                self._cosines[i] = worst if cosine == cosine else -1.0
            self._gradient[i] = x if self._gradient[i] is None else self._gradient[i] + x
            self._error[i] = e if self._error[i] is None else self._error[i] + e

    def result(self, is_one_batch: bool) -> Quality:
        n = self.batches
        gradient, error = (
            sum(float(t.square().sum()) for t in sums if t is not None) / n**2
            for sums in (self._gradient, self._error)
        )
        noise = _variance(self._squares[1], error, n)
        spread = _variance(self._squares[0], gradient, n)
        worst = min(range(len(self.names)), key=lambda i: self._cosines[i], default=0)
        is_nan = self._squares[1] != self._squares[1]
        bias = math.sqrt(max(0.0, error - noise / n) / gradient) if gradient else 0.0
        return Quality(
            self._cosines[worst] if self.names else 1.0,
            self.names[worst] if self.names else "",
            math.sqrt(self._squares[1] / self._squares[0]) if self._squares[0] else 0.0,
            None if is_one_batch else math.inf if is_nan else bias,
            None if is_one_batch or not spread else math.inf if is_nan else noise / spread,
            n,
        )


def _variance(squares: float, of_mean: float, n: int) -> float:
    return max(0.0, squares - n * of_mean) / (n - 1) if n > 1 else 0.0
