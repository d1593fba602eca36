"""Trained weights into structured layers, under a budget: per layer a curve of error over weights, the lower
convex hull of it, and the steepest steps of all layers first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._structured._project import Projection, project
from tuckfold.torch._structured._replace import (
    layer_like,
    matrix_of,
    put,
    replaceable,
    shared_weights,
)


@dataclass(frozen=True)
class FactorizedLayer:
    """What one layer became.

    Attributes:
        name: of the module, or of the tensor.
        text: the structure; "dense" where the layer stayed.
        weights_before: numbers in the matrix.
        weights: numbers in the structure.
        error: of the matrix, as a part of its length.
        bound: no matrix of that structure comes nearer.
        output_error: of the layer's output on the calibration data, as a part of its length.
    """

    name: str
    text: str
    weights_before: int
    weights: int
    error: float
    bound: float
    output_error: float | None = None


@dataclass(frozen=True)
class Factorized:
    """The report of :func:`factorize`.

    Attributes:
        layers: a row for each.
        budget: numbers that the layers' matrices may have in all.
    """

    layers: tuple[FactorizedLayer, ...]
    budget: int

    @property
    def weights_before(self) -> int:
        return sum(row.weights_before for row in self.layers)

    @property
    def weights(self) -> int:
        return sum(row.weights for row in self.layers)

    def to_json(self) -> str:
        rows = [asdict(row) for row in self.layers]
        totals = {"weights_before": self.weights_before, "weights": self.weights}
        return json.dumps({"budget": self.budget, **totals, "layers": rows}, indent=1)

    def __str__(self) -> str:
        titles = ["layer", "structure", "before", "now", "error", "bound", "output"]
        rows = [
            [
                row.name,
                row.text,
                str(row.weights_before),
                str(row.weights),
                f"{row.error:.4f}",
                f"{row.bound:.4f}",
                "" if row.output_error is None else f"{row.output_error:.4f}",
            ]
            for row in self.layers
        ]
        rows.append(["all", "", str(self.weights_before), str(self.weights), "", "", ""])
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in [titles, *rows]
        )


# ---- candidates


def candidates(out: int, in_: int, families: Sequence[str]) -> list[str]:
    """Structures to try for a matrix, each with fewer weights than it has."""
    dense, most = out * in_, min(out, in_)
    texts: list[str] = []
    if "low_rank" in families:
        ranks = {max(1, round(dense * share / (out + in_))) for share in _SHARES}
        texts += [f"low_rank(rank={r})" for r in sorted(ranks) if r <= most]
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


_SHARES = (0.02, 0.04, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 0.85)
FAMILIES = ("low_rank", "monarch", "butterfly", "pixelfly", "block_diagonal", "circulant")


@dataclass(frozen=True)
class _Choice:
    weights: int
    cost: float
    projection: Projection | None  # None: the layer as it is


def curve(matrix: Tensor, families: Sequence[str], moment: Tensor | None) -> list[_Choice]:
    """What each candidate costs: its share of the output's length, squared, or of the matrix's own."""
    a = matrix.detach().to("cpu", torch.float64)

    def length(m: Tensor) -> float:
        return float((m @ moment * m).sum() if moment is not None else m.square().sum())

    whole = length(a) or 1.0
    choices = [_Choice(a.numel(), 0.0, None)]
    for text in candidates(*a.shape, families):
        nearest = project(a, text)
        if nearest.structure.weight_count < a.numel():
            cost = length(a - nearest.to_dense()) / whole
            choices.append(_Choice(nearest.structure.weight_count, cost, nearest))
    return choices


def lower_hull(choices: Sequence[_Choice]) -> list[_Choice]:
    """Those that no mixture of others beats, from the fewest weights on: the steps get flatter."""
    hull: list[_Choice] = []
    for choice in sorted(choices, key=lambda c: (c.weights, c.cost)):
        if hull and choice.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-2], choice):
            hull.pop()
        hull.append(choice)
    return hull


def _slope(a: _Choice, b: _Choice) -> float:
    """What a weight more gains between two."""
    return (a.cost - b.cost) / (b.weights - a.weights)


def choose(hulls: Sequence[Sequence[_Choice]], sizes: Sequence[int], budget: int) -> list[_Choice]:
    """A choice for each layer within the budget.

    Steps of all hulls are taken from the steepest on until one does not fit, so that a larger budget never
    gives a larger cost. Costs count by the size of the layer.
    """
    least = sum(hull[0].weights for hull in hulls)
    if least > budget:
        raise ValueError(
            f"[factorize] the budget must be at least {least} weights, which the smallest structures have, got {budget}"
        )
    steps = [
        (_slope(a, b) * size, layer, number)
        for layer, (hull, size) in enumerate(zip(hulls, sizes, strict=True))
        for number, (a, b) in enumerate(zip(hull, hull[1:], strict=False))
    ]
    at, used = [0] * len(hulls), least
    for _, layer, number in sorted(steps, key=lambda step: (-step[0], step[1], step[2])):
        hull = hulls[layer]
        more = hull[number + 1].weights - hull[number].weights
        if used + more > budget:
            break
        at[layer], used = number + 1, used + more
    return [hull[number] for hull, number in zip(hulls, at, strict=True)]


def parse_budget(budget: str | int, total: int) -> int:
    """``"25%"`` of so many weights, or a number of them."""
    if isinstance(budget, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%", budget.strip())
        if found and float(found[1]) <= 100:
            return int(total * float(found[1]) / 100)
        if not budget.strip().isdigit():
            raise ValueError(
                f"[factorize] budget must be like 25% or a number of weights, got {budget!r}"
            )
        budget = int(budget)
    if budget < 1:
        raise ValueError(f"[factorize] budget must be at least 1 weight, got {budget}")
    return min(budget, total)


def check_families(families: Sequence[str]) -> None:
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"[factorize] families are {', '.join(FAMILIES)}, got {family!r}")


# ---- models


class _Watch:
    """The mean and the second moment of what comes into a layer."""

    def __init__(self, module: nn.Module) -> None:
        self.samples, self.sum, self.moment = 0, torch.zeros(()), torch.zeros(())
        self.handle = module.register_forward_pre_hook(self._look)

    def _look(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach()
        if not isinstance(module, nn.Linear):
            x = x.movedim(-3, -1)
        rows = x.reshape(-1, x.shape[-1]).to("cpu", torch.float64)
        self.samples += rows.shape[0]
        self.sum = self.sum + rows.sum(0)
        self.moment = self.moment + rows.T @ rows


def _run(model: nn.Module, data: Sequence[Any]) -> None:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for batch in data:
        x = batch[0] if isinstance(batch, (tuple, list)) else batch
        model(x.to(device))


def _moments(
    model: nn.Module, modules: dict[str, nn.Module], data: Sequence[Any]
) -> dict[str, _Watch]:
    was_training = model.training
    model.eval()
    watches = {name: _Watch(module) for name, module in modules.items()}
    try:
        _run(model, data)
    finally:
        for watch in watches.values():
            watch.handle.remove()
        model.train(was_training)
    return watches


@torch.no_grad()
def factorize(
    model: nn.Module,
    budget: str | int = "25%",
    *,
    calibration: Iterable[Any] | None = None,
    families: Sequence[str] = FAMILIES,
    skip: Callable[[str], bool] | None = None,
    least: int = 4096,
) -> Factorized:
    """Replaces trained linear layers and 1 x 1 convolutions by structured ones, in place, within a budget.

    Every layer is projected onto every candidate; what wins per weight is taken first, over all layers, and a layer
    may stay dense. The same is done for a larger budget, and more, so that it never costs more.

    Args:
        model: with trained weights.
        budget: of numbers in the matrices of these layers: ``"25%"`` of what they have, or a number.
        calibration: batches for the model, or tuples that begin with them. With them an error counts as it shows in
            the layer's output; each layer in turn is given the inputs that it has once those before it are
            replaced, and its bias takes up the mean of the error.
        families: those to try.
        skip: says of a name whether that layer is left alone; such layers do not count.
        least: matrices with fewer numbers are left alone, as are weights that stand in several places.

    Returns:
        What each layer became, with its error and a bound that no matrix of the same structure can pass.

    Raises:
        ValueError: no choice of structures fits the budget, or the model has no such layers.

    >>> net = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128))
    >>> report = tuckfold.torch.factorize(net, "25%")
    >>> report.weights <= 0.25 * report.weights_before
    True
    """
    check_families(families)
    shared = shared_weights(model)
    found = {
        name: module
        for name, module in replaceable(model)
        if name and module.weight.numel() >= least and id(module.weight) not in shared
        if skip is None or not skip(name)
    }
    if not found:
        raise ValueError(f"[factorize] the model has no linear layers of {least} weights or more")
    data = None if calibration is None else list(calibration)
    watches = {} if data is None else _moments(model, found, data)
    total = sum(module.weight.numel() for module in found.values())
    limit = parse_budget(budget, total)
    hulls = []
    for name, module in found.items():
        watch = watches.get(name)
        moment = None if watch is None or watch.samples == 0 else watch.moment / watch.samples
        hulls.append(lower_hull(curve(matrix_of(module), families, moment)))
    chosen = choose(hulls, [module.weight.numel() for module in found.values()], limit)
    rows = []
    for (name, module), choice in zip(found.items(), chosen, strict=True):
        before = module.weight.numel()
        if choice.projection is None:
            rows.append(
                FactorizedLayer(
                    name, "dense", before, before, 0.0, 0.0, None if data is None else 0.0
                )
            )
            continue
        nearest = choice.projection
        layer = layer_like(module, nearest.structure.text, nearest.weights)
        output_error = None
        if data is not None:
            watch = _moments(model, {name: module}, data)[name]
            if watch.samples > 0:
                output_error = _correct(layer, matrix_of(module), nearest, watch)
        put(model, name, module, layer)
        rows.append(
            FactorizedLayer(
                name,
                layer.text,
                before,
                layer.weight_count,
                nearest.error,
                nearest.bound,
                output_error,
            )
        )
    return Factorized(tuple(rows), limit)


def _correct(layer: nn.Module, matrix: Tensor, nearest: Projection, watch: _Watch) -> float:
    """Adds the mean of what is lost to the bias; returns the error of the output that remains."""
    lost = matrix.to("cpu", torch.float64) - nearest.to_dense()
    mean, moment = watch.sum / watch.samples, watch.moment / watch.samples
    whole = float(
        (matrix.to("cpu", torch.float64) @ moment * matrix.to("cpu", torch.float64)).sum()
    )
    missing = float((lost @ moment * lost).sum())
    if layer.bias is not None:
        shift = lost @ mean
        layer.bias += shift.to(layer.bias)
        missing -= float(shift.square().sum())
    return (max(missing, 0.0) / whole) ** 0.5 if whole > 0 else 0.0
