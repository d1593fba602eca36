"""A structure for each layer, within a budget for all of them.

Which combinations are looked at does not depend on the budget, and the cheapest that fits is taken, so that
a larger budget never costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tuckfold.torch._structured._project import Projection, project

_SHARES = [i / 50 for i in range(1, 50)]  # of the matrix's numbers, for ranks
_PLACES = 4096  # of numbers of weights that are told apart


@dataclass(frozen=True)
class Choice:
    """A candidate for one layer, or with no text the layer as it is."""

    weights: int
    cost: float  # its share of the output's length, squared, or of the matrix's own
    text: str = ""
    found: Projection | None = None

    def projection(self, matrix: Tensor) -> Projection:
        return self.found if self.found is not None else project(matrix, self.text)


def candidates(out: int, in_: int, families: Sequence[str]) -> list[str]:
    """Structures to try for a matrix; for low ranks see `_low_ranks`."""
    most = min(out, in_)
    texts: list[str] = []
    if "monarch" in families:
        texts += [f"monarch(blocks={k})" for k in (2, 4, 8, 16, 32) if k * k <= most]
    if "block_diagonal" in families:
        texts += [f"block_diagonal(blocks={k})" for k in (2, 4, 8, 16) if k <= most]
    if "butterfly" in families:
        texts += ["butterfly", "butterfly(stride=decreasing)"]
    if "circulant" in families:
        texts += ["circulant"]
    if "pixelfly" in families:
        block = max(1, min(32, most // 8))
        texts += [
            f"pixelfly(block={block}, butterfly={size}, rank={rank})"
            for size in (8, 16)
            for rank in sorted({max(1, most // 32), max(1, most // 16)})
        ]
    return texts


def _low_ranks(a: Tensor, moment: Tensor | None, whole: float) -> list[Choice]:
    """Of one decomposition: with left vectors of length one, what each right vector adds counts by itself."""
    out, in_ = a.shape
    _, sigma, v = torch.linalg.svd(a, full_matrices=False)
    parts = sigma.square()
    if moment is not None:
        parts = parts * ((v @ moment) * v).sum(1)
    left = parts.flip(0).cumsum(0).flip(0)  # of the parts from i on
    ranks = {max(1, int(a.numel() * share / (out + in_))) for share in _SHARES}
    return [
        Choice(r * (out + in_), max(float(left[r]), 0.0) / whole, f"low_rank(rank={r})")
        for r in sorted(ranks)
        if r < len(sigma) and r * (out + in_) < a.numel()
    ]


def curve(matrix: Tensor, families: Sequence[str], moment: Tensor | None) -> list[Choice]:
    """What candidates with fewer weights cost.

    moment: of the layer's inputs, so that an error counts as it shows in the output.
    """
    a = matrix.detach().to("cpu", torch.float64)
    if not torch.isfinite(a).all():
        raise ValueError("[factorize] a weight has values that are not finite; repair it first")

    def length(m: Tensor) -> float:
        return float((m @ moment * m).sum() if moment is not None else m.square().sum())

    whole = length(a) or 1.0
    choices = [Choice(a.numel(), 0.0)]
    if "low_rank" in families:
        choices += _low_ranks(a, moment, whole)
    for text in candidates(*a.shape, families):
        nearest = project(a, text)
        if nearest.structure.weight_count < a.numel():
            cost = length(a - nearest.to_dense()) / whole
            choices.append(Choice(nearest.structure.weight_count, cost, text, nearest))
    return choices


def choose(curves: Sequence[Sequence[Choice]], sizes: Sequence[int], budget: int) -> list[Choice]:
    """A choice for each layer within the budget. Costs count by the size of the layer.

    Layer by layer, combinations are kept that cost less than all with fewer weights; of those with nearly
    as many weights, the cheapest.
    """
    lightest = [min(curve, key=lambda c: (c.weights, c.cost)) for curve in curves]
    least = sum(choice.weights for choice in lightest)
    if least > budget:
        raise ValueError(
            f"[factorize] the budget must be at least {least} weights, which the smallest structures have, got {budget}"
        )
    grain = max(1, sum(sizes) // _PLACES)
    weights, cost = np.zeros(1, np.int64), np.zeros(1)
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    for choices, size in zip(curves, sizes, strict=True):
        more = np.array([choice.weights for choice in choices])
        price = np.array([choice.cost * size for choice in choices])
        all_weights = (weights[:, None] + more).ravel()
        all_cost = (cost[:, None] + price).ravel()
        order = np.lexsort((all_weights, all_cost, all_weights // grain))
        place = all_weights[order] // grain
        order = order[np.r_[True, place[1:] != place[:-1]]]
        before = np.minimum.accumulate(np.r_[np.inf, all_cost[order][:-1]])
        order = order[all_cost[order] < before]
        weights, cost = all_weights[order], all_cost[order]
        steps.append((order // len(choices), order % len(choices)))
    fitting = np.flatnonzero(weights <= budget)
    if len(fitting) == 0:
        return lightest
    at, chosen = int(fitting[-1]), []
    for (parent, which), choices in zip(reversed(steps), reversed(curves), strict=True):
        chosen.append(choices[which[at]])
        at = int(parent[at])
    return chosen[::-1]
