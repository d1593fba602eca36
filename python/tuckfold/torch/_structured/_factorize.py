"""Trained weights into structured layers, under a budget: per layer a curve of error over weights, and the
cheapest combination of all layers that fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._structured._choose import Choice, choose, curve
from tuckfold.torch._structured._project import Projection
from tuckfold.torch._structured._replace import (
    layer_like,
    made_in_hooks,
    matrix_of,
    put,
    replaceable,
    shared_weights,
    undone_on_error,
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
        left: names of linear layers and 1 x 1 convolutions that were left alone, and do not count.
    """

    layers: tuple[FactorizedLayer, ...]
    budget: int
    left: tuple[str, ...] = ()

    @property
    def weights_before(self) -> int:
        return sum(row.weights_before for row in self.layers)

    @property
    def weights(self) -> int:
        return sum(row.weights for row in self.layers)

    @property
    def structures(self) -> dict[str, str]:
        """Names and structures of the layers that were replaced: rules for :func:`structure`."""
        return {row.name: row.text for row in self.layers if row.text != "dense"}

    def to_json(self) -> str:
        rows = [asdict(row) for row in self.layers]
        totals = {"weights_before": self.weights_before, "weights": self.weights}
        about = {"budget": self.budget, **totals, "left": list(self.left)}
        return json.dumps({**about, "layers": rows}, indent=1)

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
        lines = [
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in [titles, *rows]
        ]
        lines.append(f"{self.weights} of {self.budget} weights of the budget are used")
        if self.left:
            lines.append(f"left alone, and not counted: {', '.join(self.left)}")
        return "\n".join(lines)


FAMILIES = ("low_rank", "monarch", "butterfly", "pixelfly", "block_diagonal", "circulant")


def parse_budget(budget: str | int, total: int) -> int:
    """``"25%"`` of so many weights, or a number of them."""
    if isinstance(budget, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%", budget.strip())
        if found and float(found[1]) <= 100:
            return int(total * float(found[1]) / 100)
        if not budget.strip().isdigit():
            raise ValueError(
                f"[factorize] budget must be like 25%, up to 100%, or a number of weights, got {budget!r}"
            )
        budget = int(budget)
    if budget < 1:
        raise ValueError(
            f"[factorize] budget must be at least 1 weight, or a part such as '25%', got {budget}"
        )
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
    progress: Callable[[str], object] | None = None,
) -> Factorized:
    """Replaces trained linear layers and 1 x 1 convolutions by structured ones, in place, within a budget.

    Every layer is projected onto every candidate, and the combination with the least error that fits the budget is
    taken; a layer may stay dense. A larger budget never costs more. Forward and backward hooks of a layer go to the one
    that takes its place.

    Args:
        model: with trained weights.
        budget: of numbers in the matrices of these layers: ``"25%"`` of what they have, or a number.
        calibration: batches for the model, or tuples that begin with them. With them an error counts as it shows in
            the layer's output; each layer in turn is given the inputs that it has once those before it are
            replaced, and its bias takes up the mean of the error.
        families: those to try.
        skip: says of a name whether that layer is left alone; such layers do not count.
        least: matrices with fewer numbers are left alone, as are weights that stand in several places.
        progress: called with the name of each layer before structures for it are tried.

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
    all_layers = dict(replaceable(model))
    found = {
        name: module
        for name, module in all_layers.items()
        if name and module.weight.numel() >= least
        if shared.isdisjoint(map(id, module.parameters()))
        if skip is None or not skip(name)
    }
    if not found and "" in all_layers:
        raise ValueError("[factorize] the model is one layer; put it into a Sequential first")
    if not found:
        raise ValueError(f"[factorize] the model has no linear layers of {least} weights or more")
    data = None if calibration is None else list(calibration)
    watches = {} if data is None else _moments(model, found, data)
    total = sum(module.weight.numel() for module in found.values())
    limit = parse_budget(budget, total)
    curves = []
    for name, module in found.items():
        if progress is not None:
            progress(name)
        watch = watches.get(name)
        moment = None if watch is None or watch.samples == 0 else watch.moment / watch.samples
        curves.append(curve(matrix_of(module), families, moment))
    chosen = choose(curves, [module.weight.numel() for module in found.values()], limit)
    with undone_on_error(model, found):
        rows = [
            _replace(model, name, module, choice, data)
            for (name, module), choice in zip(found.items(), chosen, strict=True)
        ]
    left = [name for name in (*all_layers, *made_in_hooks(model)) if name not in found]
    return Factorized(tuple(rows), limit, tuple(left))


def _replace(
    model: nn.Module, name: str, module: nn.Module, choice: Choice, data: Sequence[Any] | None
) -> FactorizedLayer:
    before = module.weight.numel()
    if not choice.text:
        return FactorizedLayer(
            name, "dense", before, before, 0.0, 0.0, None if data is None else 0.0
        )
    nearest = choice.projection(matrix_of(module))
    layer = layer_like(module, nearest.structure.text, nearest.weights)
    output_error = None
    if data is not None:
        watch = _moments(model, {name: module}, data)[name]
        if watch.samples > 0:
            output_error = _correct(layer, matrix_of(module), nearest, watch)
    put(model, [name], module, layer)
    return FactorizedLayer(
        name, layer.text, before, layer.weight_count, nearest.error, nearest.bound, output_error
    )


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
