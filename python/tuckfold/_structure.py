"""What a structured layer is: its text, its weights, its counts."""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass

from tuckfold import _library as lib


@dataclass(frozen=True)
class Weight:
    """One tensor of a structured layer."""

    name: str
    shape: tuple[int, ...]
    trained: bool  #: False for a permutation, of int64
    deviation: float  #: of a normal distribution that keeps the variance of the input


@dataclass(frozen=True)
class Structure:
    """A structure with sizes, as ``tuckfold/structured.h`` describes it."""

    text: str
    name: str
    options: tuple[tuple[str, int | bool | str], ...]
    in_features: int
    out_features: int
    weights: tuple[Weight, ...]
    weight_count: int  #: what is trained, without the bias
    flops_per_sample: float
    cuda: tuple[str, ...]  #: dtypes that have a CUDA kernel in this build

    def option(self, name: str) -> int | bool | str:
        return dict(self.options)[name]


@dataclass(frozen=True)
class StepMemory:
    """Bytes that a training step on the CPU holds because of one layer, by what they are for."""

    weights: int  #: the bias and permutations among them
    gradients: int  #: of what is trained
    optimizer: int  #: its states, each as large as what is trained
    saved: int  #: the input, from forward to backward
    passing: int  #: the gradients of output and input, while backward runs
    workspace: int  #: of the kernels

    @property
    def peak(self) -> int:
        """Their sum, which backward reaches."""
        return sum(
            (
                self.weights,
                self.gradients,
                self.optimizer,
                self.saved,
                self.passing,
                self.workspace,
            )
        )


@functools.cache
def families() -> dict[str, dict[str, int | bool | str]]:
    """Every family and the defaults of its options."""
    return {
        family["name"]: {
            option["name"]: _value(str(option["default"])) for option in family["options"]
        }
        for family in lib.structures_json()
    }


def _value(text: str) -> int | bool | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


@functools.lru_cache(maxsize=4096)
def _structure(text: str, in_features: int, out_features: int) -> Structure:
    about = lib.structure_json(text, in_features, out_features)
    name, _, inside = about["text"].rstrip(")").partition("(")
    given = dict(part.split("=") for part in inside.split(", ")) if inside else {}
    options = families()[name] | {key: _value(value) for key, value in given.items()}
    return Structure(
        text=about["text"],
        name=name,
        options=tuple(options.items()),
        in_features=in_features,
        out_features=out_features,
        weights=tuple(
            Weight(w["name"], tuple(w["shape"]), w["trained"], w["deviation"])
            for w in about["weights"]
        ),
        weight_count=about["weight_count"],
        flops_per_sample=about["flops_per_sample"],
        cuda=tuple(about["cuda"]),
    )


def structure_of(text: str, in_features: int, out_features: int) -> Structure:
    """A structure from its text; ValueError where text or sizes are wrong."""
    return _structure(str(text), operator.index(in_features), operator.index(out_features))


def step_memory(
    structure: Structure, samples: int, dtype: str, bias: bool, states: int, threads: int
) -> StepMemory:
    """Of a layer with this structure; ValueError where numbers are out of range."""
    sizes = (structure.in_features, structure.out_features)
    fields = lib.step_memory(structure.text, *sizes, dtype, samples, bias, states, threads)
    return StepMemory(*fields)


def text_of(name: str, **options: int | bool | str) -> str:
    """The text of a family with options."""
    inside = ", ".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    )
    return f"{name}({inside})"
