"""What the user lets be done with which tensors."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import nn

from tuckfold.torch._activations import _text as text
from tuckfold.torch._activations._offload import CPU
from tuckfold.torch._activations._saved import Handle
from tuckfold.torch._activations._trace import Row, operator_of
from tuckfold.torch._activations._warn import warn
from tuckfold.torch._functions import layout

STORES = ("auto", "pack", "keep", CPU)
_RULE = {"match": text.Pattern, "type": text.Pattern, "op": text.Pattern} | {
    "store": text.OrCodec(STORES)
}
# As the forms call themselves.
_FORMS = (
    "keep",
    "nothing",
    "1 bit",
    "2 bits",
    "pool index",
    "narrow",
    "u8",
    "mask",
    "recompute",
    "codec",
    CPU,
)
_TENSOR = {"module": str, "op": str, "role": str, "shape": str, "dtype": str} | {
    "how": text.OrCodec(_FORMS),
    "before": int,
    "after": int,
}


@dataclass(frozen=True)
class Rule:
    """The last rule that fits decides. `*` matches anything.

    Args:
        match: paths of modules, `layer4.*`.
        type: classes of modules, `Conv2d`.
        op: operators, `convolution`, `max_pool2d*`.
        store: `auto`; `pack`: never recompute; `keep`; `cpu`: in the CPU's memory; or a codec, which may change
            values. Plans have `less`: no values of this view are read, so what others read decides.
        role: the operator's name of the tensor; plans have it.
        is_of_plan: whether a plan says it, for one model and one input.
    """

    match: str = "*"
    type: str = "*"
    op: str = "*"
    store: str = "auto"
    role: str = "*"
    is_of_plan: bool = False

    def fits(self, handle: Handle) -> bool:
        return self.fits_names(*handle.place, operator_of(handle.op), handle.role)

    def fits_names(self, module: str, type_: str, op: str, role: str) -> bool:
        return (
            fnmatchcase(module, self.match)
            and fnmatchcase(type_, self.type)
            and fnmatchcase(op, self.op)
            and (self.role == "*" or role in ("", self.role))
        )


class Policy:
    """A list of rules."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules

    @property
    def needs_names(self) -> bool:
        return any(rule.match != "*" or rule.type != "*" for rule in self.rules)

    @property
    def has_codecs(self) -> bool:
        return any(is_codec(rule.store) or rule.store == CPU for rule in self.rules)

    def of(self, handles: list[Handle]) -> str:
        """The most careful that any of the views asks for; of two codecs, the one with more bytes."""
        return _most_careful({self._of_one(handle) for handle in handles})

    def _of_one(self, handle: Handle) -> str:
        store = "auto"
        for rule in self.rules:
            if rule.fits(handle):
                store = rule.store
        return store

    def of_row(self, row: Row) -> str:
        """For a value that a compiled graph saves. Plans may know it by what reads it."""
        store = "auto"
        names = (row.module, row.type, row.op, row.role)
        planned = set()
        for rule in self.rules:
            if rule.fits_names(*names):
                store = rule.store
            if rule.is_of_plan and any(rule.fits_names(*of) for of in (names, *row.readers)):
                planned.add(rule.store)
        if planned:
            store = _most_careful(planned)
        return "pack" if store in ("less", CPU) else store

    def warn_of_operators(self, seen: set[str]) -> None:
        """Says which rules fit no operator of a pass. seen: nodes that saved tensors."""
        known = sorted(map(operator_of, seen))
        for pattern in {rule.op for rule in self.rules if rule.op and not rule.is_of_plan}:
            if known and not any(fnmatchcase(name, pattern) for name in known):
                near = difflib.get_close_matches(pattern, known, 3, 0.3)
                hint = f"; nearest: {', '.join(near)}" if near else ""
                warn(f'[wrap] op = "{pattern}" fits no operator that saved a tensor{hint}')

    def warn_of_strangers(self, model: nn.Module, path: object) -> None:
        """Says which rules fit no module."""
        names = [name for name, _ in model.named_modules()]
        types = sorted({type(m).__name__ for m in model.modules()})
        for rule in self.rules:
            for word, pattern, known in (("match", rule.match, names), ("type", rule.type, types)):
                if not any(fnmatchcase(name, pattern) for name in known):
                    near = difflib.get_close_matches(pattern, known, 3, 0.3)
                    hint = f"; nearest: {', '.join(near)}" if near else ""
                    warn(f'[wrap] {path}: {word} = "{pattern}" fits no module{hint}')


def _most_careful(asked: set[str]) -> str:
    """Of what views of one storage ask for."""
    for store in ("keep", "pack", CPU):
        if store in asked:
            return store
    codecs = sorted(filter(is_codec, asked), key=_bytes_of_codec)
    return codecs[-1] if codecs else "auto" if "auto" in asked else "pack"


def read_rules(path: str | Path) -> Policy:
    tables = text.read(path, {"rule": _RULE})
    return Policy([Rule(**table.values) for table in tables])  # type: ignore[arg-type]


def read_plan(path: str | Path) -> Policy:
    """A plan keeps every tensor that it does not name, and those that it says to keep."""
    rules = [Rule(store="keep")]
    for table in text.read(path, {"tensor": _TENSOR}):
        how = str(table.values.get("how", "keep"))
        store = how if is_codec(how) else _STORE_OF.get(how, "pack")
        values = {key: str(table.values.get(key, "*")) for key in ("op", "role")}
        module = str(table.values.get("module", "*"))
        rules.append(Rule(match=_escaped(module), store=store, is_of_plan=True, **values))
    return Policy(rules)


_STORE_OF = {
    "keep": "keep",
    "recompute": "auto",
    "codec": "auto",
    CPU: CPU,
    "nothing": "less",
    "1 bit": "less",
    "2 bits": "less",
}


def is_codec(store: str) -> bool:
    return store not in (*STORES, "less") and store not in _FORMS


def _bytes_of_codec(codec: str) -> int:
    return layout(codec, torch.float32, (1 << 8, 1 << 8)).max_bytes  # some need two sides


def _escaped(name: str) -> str:
    """A module's path as a pattern for itself."""
    return name if name == "*" else "".join(f"[{c}]" if c in "*?[" else c for c in name)
