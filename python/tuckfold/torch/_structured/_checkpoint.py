"""Factorizing the matrices of a checkpoint, and loading what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tuckfold.torch._structured import _file
from tuckfold.torch._structured._choose import choose, curve
from tuckfold.torch._structured._factorize import (
    FAMILIES,
    Factorized,
    FactorizedLayer,
    check_families,
    parse_budget,
)
from tuckfold.torch._structured._replace import (
    layer_like,
    put,
    shared_weights,
    undone_on_error,
)
from tuckfold.torch.nn import Structured

_KEY = "tuckfold.structures"  # of the file's metadata: {"fc1": "low_rank(rank=8)"}


def factorize_tensors(
    tensors: dict[str, Tensor],
    budget: str | int,
    families: Sequence[str],
    least: int,
    skip: Callable[[str], bool] | None = None,
    progress: Callable[[str], object] | None = None,
) -> tuple[dict[str, Tensor], dict[str, str], Factorized]:
    """New tensors, the structures of those that changed, and the report."""
    check_families(families)
    found = {
        name: tensor
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.dim() == 2 and tensor.is_floating_point()
        if tensor.numel() >= least
        if skip is None or not skip(name.removesuffix(".weight"))
    }
    if not found:
        raise ValueError(
            f"[factorize] the file has no matrices NAME.weight of {least} numbers or more"
            + (" that are not skipped" if skip else "")
        )
    total = sum(tensor.numel() for tensor in found.values())
    limit = parse_budget(budget, total)
    curves = []
    for name, tensor in found.items():
        if progress is not None:
            progress(name.removesuffix(".weight"))
        curves.append(curve(tensor, families, None))
    chosen = choose(curves, [tensor.numel() for tensor in found.values()], limit)
    rows, structures, made = [], {}, dict(tensors)
    for (name, tensor), choice in zip(found.items(), chosen, strict=True):
        module = name.removesuffix(".weight")
        if not choice.text:
            rows.append(FactorizedLayer(module, "dense", tensor.numel(), tensor.numel(), 0.0, 0.0))
            continue
        nearest = choice.projection(tensor)
        del made[name]
        for info, weight in zip(nearest.structure.weights, nearest.weights, strict=True):
            made[f"{module}.{info.name}"] = weight.to(tensor.dtype)
        structures[module] = nearest.structure.text
        rows.append(
            FactorizedLayer(
                module,
                nearest.structure.text,
                tensor.numel(),
                choice.weights,
                nearest.error,
                nearest.bound,
            )
        )
    left = [
        n for n, t in tensors.items() if n.endswith(".weight") and t.dim() == 2 and n not in found
    ]
    names = tuple(name.removesuffix(".weight") for name in left)
    return made, structures, Factorized(tuple(rows), limit, names)


def factorize_file(
    source: Path,
    to: Path,
    budget: str | int = "25%",
    families: Sequence[str] = FAMILIES,
    least: int = 4096,
    skip: Callable[[str], bool] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Factorized:
    """Factorizes every ``NAME.weight`` of two axes in a safetensors file, by the errors of the matrices alone."""
    tensors, metadata = _file.read(source)
    if _KEY in metadata:
        raise ValueError(f"[factorize] {source} is factorized already; begin with the original")
    made, structures, report = factorize_tensors(tensors, budget, families, least, skip, progress)
    _file.write(to, made, metadata | {_KEY: json.dumps(structures)})
    return report


def load_factorized(model: nn.Module, path: str | Path) -> list[str]:
    """Gives a model the structures and the weights of a file that ``tuckfold factorize`` wrote.

    Layers that are no ``nn.Linear``, such as embeddings, and layers that share their weight with another one stay
    what they are, with the product as their weight.

    Args:
        model: as the original checkpoint would be loaded into.
        path: of the file.

    Returns:
        The names of the layers that were replaced.

    Raises:
        ValueError: the model has no such layers, or its weights do not fit; its layers stay what they were.
    """
    tensors, metadata = _file.read(Path(path))
    structures = json.loads(metadata.get(_KEY, "{}"))
    shared = shared_weights(model)
    replaced: dict[str, nn.Module] = {}
    with undone_on_error(model, replaced):
        for name, text in structures.items():
            try:
                old = model.get_submodule(name)
            except AttributeError:
                old = None
            weight = getattr(old, "weight", None)
            if type(old) is nn.Linear and id(weight) not in shared:
                replaced[name] = old
                put(model, [name], old, layer_like(old, text, None))
            elif isinstance(weight, torch.Tensor) and weight.dim() == 2:
                layer = Structured(text, weight.shape[1], weight.shape[0], bias=False)
                parts = {k: tensors.pop(f"{name}.{k}") for k in layer.state_dict()}
                layer.to(next(iter(parts.values())).dtype).load_state_dict(parts)
                tensors[f"{name}.weight"] = layer.to_dense()
            else:
                raise ValueError(
                    f"[load_factorized] the file has {text} for {name}, which has no matrix here"
                )
        try:
            with torch.no_grad():
                model.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"[load_factorized] {error}") from None
    return list(replaced)
