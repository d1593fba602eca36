"""Layers of a model that structured ones can stand for, and putting them there."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuckfold.torch._structured._project import project
from tuckfold.torch.nn import Structured


class PointwiseConv(nn.Module):
    """A structured layer over the channels of an image: in place of a 1 x 1 convolution."""

    def __init__(self, layer: Structured, stride: tuple[int, int]) -> None:
        super().__init__()
        self.layer, self.stride = layer, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.stride != (1, 1):
            x = x[..., :: self.stride[0], :: self.stride[1]]
        return self.layer(x.movedim(-3, -1)).movedim(-1, -3)


def _is_pointwise(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and module.groups == 1
        and module.padding in ((0, 0), "valid", "same")
    )


def replaceable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Linear layers and 1 x 1 convolutions, by name. Subclasses of Linear may mean something else, and so do
    layers that make their weight anew in a hook, such as pruned ones."""
    for name, module in model.named_modules(remove_duplicate=False):
        fits = type(module) is nn.Linear or _is_pointwise(module)
        if fits and {"weight", "bias"} <= module._parameters.keys():
            yield name, module


def made_in_hooks(model: nn.Module) -> list[str]:
    """Names of linear layers and 1 x 1 convolutions whose weight or bias is made anew for each call."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or _is_pointwise(module)
        if not {"weight", "bias"} <= module._parameters.keys()
    ]


def shared_weights(model: nn.Module) -> set[int]:
    """The ids of parameters that stand in more than one place, as of tied embeddings."""
    seen: set[int] = set()
    twice: set[int] = set()
    for _, parameter in model.named_parameters(remove_duplicate=False):
        (twice if id(parameter) in seen else seen).add(id(parameter))
    return twice


def tied_layers(model: nn.Module) -> set[int]:
    """The ids of layers with a parameter that another layer has, too."""
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).add(id(module))
    return {layer for layers in owners.values() if len(layers) > 1 for layer in layers}


def matrix_of(module: nn.Module) -> Tensor:
    """The weight of such a layer, out x in."""
    return module.weight.detach().flatten(1)


# What users hang on a layer. Hooks of state dicts stay: they speak of weights that are gone.
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
)


def put(model: nn.Module, names: Sequence[str], old: nn.Module, layer: Structured) -> None:
    """Puts a layer in the place of another, under all its names, with the hooks of the old one."""
    new = layer if isinstance(old, nn.Linear) else PointwiseConv(layer, tuple(old.stride))
    new.train(old.training)
    for hooks in _HOOKS:
        setattr(new, hooks, getattr(old, hooks))  # the same dictionary: handles still remove
    for name in names:
        parent, _, child = name.rpartition(".")
        inside = model.get_submodule(parent)
        setattr(inside, child, new)
        if isinstance(inside, nn.TransformerEncoderLayer):
            _call_its_layers(model, inside)


@contextmanager
def undone_on_error(model: nn.Module, layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """Puts the layers back where they stood if an exception comes."""
    flags = [
        (module, name, vars(module)[name])
        for module in model.modules()
        for name in ("activation_relu_or_gelu", "use_nested_tensor")  # see _call_its_layers
        if name in vars(module)
    ]
    try:
        yield
    except BaseException:
        for name, module in layers.items():
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, module)
        for module, name, value in flags:
            setattr(module, name, value)
        raise


def _call_its_layers(model: nn.Module, layer: nn.TransformerEncoderLayer) -> None:
    """In eval mode torch reads the matrices of such layers and does not call them; now it must."""
    layer.activation_relu_or_gelu = 0
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and layer in encoder.layers:
            encoder.use_nested_tensor = False


@torch.no_grad()
def layer_like(old: nn.Module, text: str, weights: tuple[Tensor, ...] | None) -> Structured:
    """A structured layer of the sizes, dtype, device and bias of another, with weights, or random ones."""
    matrix = matrix_of(old)
    layer = Structured(
        text, matrix.shape[1], matrix.shape[0], old.bias is not None, matrix.device, matrix.dtype
    )
    if weights is not None:
        for place, weight in zip(layer.structure_weights(), weights, strict=True):
            place.copy_(weight)
    if old.bias is not None and weights is not None:
        layer.bias.copy_(old.bias)
    for parameter in layer.parameters():
        parameter.requires_grad_(old.weight.requires_grad)
    if old.bias is not None:
        layer.bias.requires_grad_(old.bias.requires_grad)
    return layer


@dataclass(frozen=True)
class Replaced:
    """One layer that :func:`structure` replaced.

    Attributes:
        name: of the module.
        text: the structure that stands there now.
        weights_before: numbers in the matrix.
        weights: numbers that are trained now.
        error: of the projection, where the weights were kept.
    """

    name: str
    text: str
    weights_before: int
    weights: int
    error: float | None


def structure(
    model: nn.Module, rules: Mapping[str, str | None], *, keep: bool = False
) -> list[Replaced]:
    """Replaces linear layers and 1 x 1 convolutions of a model by structured ones, in place.

    Forward and backward hooks of a layer go to the one that takes its place. Layers that share a parameter with
    another one, as tied weights do, or whose weight is made in a hook, as by weight_norm or pruning, are left alone,
    with a warning.

    Args:
        model: whose modules are looked at; Linear layers and 1 x 1 convolutions can be replaced.
        rules: patterns for module names and the structure for what matches, in order; the first that matches
            counts, and None leaves a layer as it is. A layer that stands in several places has several names, and
            is replaced in all of them.
        keep: whether the structure's nearest matrix to the weights takes their place; else random ones do.

    Returns:
        A row for each layer that was replaced, with the first of its names.

    Raises:
        ValueError: a pattern matches no layer, or a structure does not fit one; then nothing is replaced.

    >>> net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    >>> for row in tuckfold.torch.structure(net, {"2": None, "*": "butterfly"}):
    ...     print(row.name, row.text, row.weights_before, row.weights)
    0 butterfly 4096 768
    """
    layers = list(replaceable(model))
    for pattern in rules:
        if not any(fnmatch.fnmatchcase(name, pattern) for name, _ in layers):
            names = ", ".join(name or "(the model)" for name, _ in layers) or "none"
            raise ValueError(
                f"[structure] {pattern!r} matches no layer that can be replaced; there are: {names}. "
                "Subclasses of Linear and layers whose weight is made in a hook cannot"
            )
    if any(name == "" for name, _ in layers):
        raise ValueError("[structure] the model is one layer; put it into a Sequential first")
    names_of: dict[nn.Module, list[str]] = {}
    for name, old in layers:
        names_of.setdefault(old, []).append(name)
    tied, left, planned = tied_layers(model), [], []
    for old, names in names_of.items():
        text = next(
            (t for p, t in rules.items() if any(fnmatch.fnmatchcase(n, p) for n in names)), None
        )
        if text is None:
            continue
        if id(old) in tied:
            left.append(names[0])
            continue
        try:
            nearest = project(matrix_of(old), text) if keep else None
            layer = layer_like(old, text, None if nearest is None else nearest.weights)
        except ValueError as error:
            raise ValueError(f"[structure] {names[0]}: {error}") from None
        error = None if nearest is None else nearest.error
        row = Replaced(names[0], layer.text, old.weight.numel(), layer.weight_count, error)
        planned.append((row, names, old, layer))
    if left:
        warnings.warn(
            f"[structure] left alone, since they share weights with other layers: {', '.join(left)}",
            stacklevel=2,
        )
    if hooked := [
        name
        for name in made_in_hooks(model)
        if next((t for p, t in rules.items() if fnmatch.fnmatchcase(name, p)), None)
    ]:
        warnings.warn(
            f"[structure] left alone, since their weights are made in hooks: {', '.join(hooked)}",
            stacklevel=2,
        )
    for _, names, old, layer in planned:
        put(model, names, old, layer)
    return [row for row, *_ in planned]
