"""Configurations of CompressNN as rules: its keys are default, layer_type and layer_number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import nn

from tuckfold.torch._activations._text import PlanError, quoted

_KEYS = ("default", "layer_type", "layer_number")
_COMPRESSORS = {"nocompress": "keep", "cpu": "cpu"}


def _store(path: str | Path, where: str, entry: Any) -> str:
    """What a rule says for one entry."""
    if not isinstance(entry, dict) or not isinstance(entry.get("compressor"), str):
        raise PlanError(f'[import] {path}: {where} must be an object with a "compressor"')
    name = entry["compressor"]
    if name in _COMPRESSORS:
        return _COMPRESSORS[name]
    if name != "cuszp":
        known = ", ".join(("cuszp", *_COMPRESSORS))
        raise PlanError(f"[import] {path}: {where}: compressor must be {known}, got {name!r}")
    mode, bound = entry.get("error_mode", "abs"), entry.get("error_bound")
    if mode not in ("abs", "rel"):
        raise PlanError(f"[import] {path}: {where}: error_mode must be abs or rel, got {mode!r}")
    is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    if not is_number or not 0 < bound < math.inf:
        raise PlanError(f"[import] {path}: {where}: error_bound must be above 0, got {bound!r}")
    return f"bounded({mode}={bound!r})"


def rules_of(path: str | Path, model: nn.Module | None) -> str:
    """The text of a file of rules.

    Args:
        path: of the JSON.
        model: whose modules without parts are counted; layer_number needs it.
    """
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"[import] {path}: {error}") from None
    if not isinstance(config, dict):
        raise PlanError(f"[import] {path}: expected an object with {', '.join(_KEYS)}")
    for key in config:
        if key not in _KEYS:
            raise PlanError(f"[import] {path}: unknown key {key}, expected {', '.join(_KEYS)}")
    lines = ["# From a configuration of CompressNN. Its errors of mode rel were absolute ones;"]
    lines += ["# here they are parts of the range of values."]
    if "default" in config:
        lines += ["", "[[rule]]", f"store = {quoted(_store(path, 'default', config['default']))}"]
    for name, entry in _entries(path, config, "layer_type"):
        store = _store(path, f"layer_type {name}", entry)
        lines += ["", "[[rule]]", f"type = {quoted(name)}", f"store = {quoted(store)}"]
    numbered = _entries(path, config, "layer_number")
    if numbered and model is None:
        raise PlanError(
            f"[import] {path}: layer_number counts modules: give --model MODULE:FUNCTION"
        )
    leaves = (
        [] if model is None else [n for n, m in model.named_modules() if not list(m.children())]
    )
    for name, entry in numbered:
        if not name.isdigit() or int(name) >= len(leaves):
            raise PlanError(
                f"[import] {path}: layer_number must be 0..{len(leaves) - 1}, got {name!r}"
            )
        store = _store(path, f"layer_number {name}", entry)
        lines += [
            "",
            "[[rule]]",
            f"match = {quoted(leaves[int(name)])}",
            f"store = {quoted(store)}",
        ]
    return "\n".join(lines) + "\n"


def _entries(path: str | Path, config: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    entries = config.get(key, {})
    if not isinstance(entries, dict):
        raise PlanError(f"[import] {path}: {key} must be an object")
    return list(entries.items())
