"""Codecs by name: one text, parsed once."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuckfold import _library as lib


@dataclass(frozen=True)
class ParamInfo:
    """One parameter of a codec: a number in a range, or one of a few words."""

    name: str
    summary: str
    default: float | str | None  #: None: not given
    min: float | None = None  #: of numbers, inclusive
    max: float | None = None
    step: float | None = None  #: numbers are multiples of it; 0: any in the range
    words: tuple[str, ...] = ()  #: of words; empty means a number


@dataclass(frozen=True)
class CodecInfo:
    """The name, summary and parameters of a codec."""

    name: str
    summary: str
    params: tuple[ParamInfo, ...]
    cuda: bool = False  #: whether this build runs it on CUDA devices, too
    exact: bool = False  #: whether every bit comes back


class Params(Mapping[str, "float | str | None"]):
    """The parameters of a stage: a mapping that does not change, hashes, compares and pickles."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, float | str | None] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, name: str) -> float | str | None:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return Params, (self._items,)


@dataclass(frozen=True)
class Stage:
    """One codec of a spec with all its parameters, defaults filled in."""

    name: str
    params: Mapping[str, float | str | None] = field(default_factory=Params)


@functools.cache
def list_codecs() -> tuple[CodecInfo, ...]:
    """Every codec of this build, in the order of the documentation.

    >>> [codec.name for codec in tuckfold.list_codecs()][:3]
    ['raw', 'dct_chop', 'dct_quant']
    """
    codecs = json.loads(lib.codecs_json())
    return tuple(
        CodecInfo(
            name=codec["name"],
            summary=codec["summary"],
            cuda=codec["cuda"],
            exact=codec["exact"],
            params=tuple(
                ParamInfo(**{**param, "words": tuple(param.get("words", ()))})
                for param in codec["params"]
            ),
        )
        for codec in codecs
    )


class CodecSpec:
    """A codec with its parameters, or a chain ``a | b`` in which b packs what a produced.

    ``str`` and ``repr`` give the canonical text: parameters at their defaults are left out, but for
    the headline ones, and equal specs print alike. Specs are immutable, hashable, picklable, and may
    be used from several threads. Wherever a spec is wanted, its text will do.

    >>> spec = tuckfold.CodecSpec("dct_chop(block=8, keep=4) | block_quant")
    >>> spec
    dct_chop(keep=4, order=planes) | block_quant(bits=8)
    >>> spec == tuckfold.CodecSpec(str(spec))
    True
    >>> spec.stages[1].params["group"]
    256
    >>> tuckfold.CodecSpec("dct_chop(keep=9)")
    Traceback (most recent call last):
      ...
    ValueError: [codec] keep must be 1..8 for block=8, got 9
      dct_chop(keep=9)
                    ^
    """

    __slots__ = ("__weakref__", "_handle", "_text")

    def __init__(self, text: str | CodecSpec) -> None:
        handle = ctypes.c_void_p()
        lib.call("spec_parse", lib.encoded(text_of(text)), ctypes.byref(handle))
        self._handle: int | None = handle.value
        self._text: str = lib.spec_text(handle).decode()

    @classmethod
    def parse(cls, text: str) -> CodecSpec:
        """Reads ``name(param=value, …) | name(…)``; a ValueError points at what is wrong."""
        return cls(text)

    @classmethod
    def of(cls, name: str, **params: float | str) -> CodecSpec:
        """One codec by name and parameters: ``CodecSpec.of("dct_chop", keep=4)``.

        >>> tuckfold.CodecSpec.of("dct_chop", keep=4) | "block_quant"
        dct_chop(keep=4, order=planes) | block_quant(bits=8)
        """
        given = ", ".join(f"{key}={value}" for key, value in params.items())
        return cls(f"{text_of(name)}({given})" if given else name)

    def __or__(self, other: str | CodecSpec) -> CodecSpec:
        """The chain in which other packs what self produced."""
        if not isinstance(other, (str, CodecSpec)):
            return NotImplemented
        return CodecSpec(f"{self} | {other}")

    def __ror__(self, other: str) -> CodecSpec:
        return CodecSpec(other) | self if isinstance(other, str) else NotImplemented

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The codecs of the chain, each with all its parameters."""
        return tuple(
            Stage(stage["name"], Params(stage["params"]))
            for stage in json.loads(lib.spec_json(self._handle))
        )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def __format__(self, how: str) -> str:
        return format(self._text, how)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CodecSpec):
            return NotImplemented
        return bool(lib.spec_equal(self._handle, other._handle))

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[CodecSpec], tuple[str]]:
        return type(self), (self._text,)

    def __del__(self, free: Any = lib.spec_free) -> None:  # the module may be gone by then
        if getattr(self, "_handle", None):
            free(self._handle)
            self._handle = None


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> CodecSpec:
    return CodecSpec(text)


def text_of(spec: str | CodecSpec) -> str:
    """The text of a spec, as it was given."""
    if type(spec) is CodecSpec:
        return spec._text
    if not isinstance(spec, (str, CodecSpec)):
        raise TypeError(
            f"[spec] a codec is named by a text or a CodecSpec, got {type(spec).__name__}"
        )
    return str(spec)


def spec_of(spec: str | CodecSpec) -> CodecSpec:
    """A spec as it is, or from its text, which is parsed once."""
    return spec if isinstance(spec, CodecSpec) else _parsed(text_of(spec))
