"""Passes that repeat an earlier one with hooks in C++: what `_steady.py` does, without Python.

The library is for one version of torch, which is in its name. `TUCKFOLD_HOOKS=python` leaves it
alone, `TUCKFOLD_HOOKS=cpp` asks for it; else it is taken where it fits the torch that runs.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuckfold import _library as files
from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._activations import _products as products

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_WAYS = ("", "python", "cpp")


def library() -> ctypes.CDLL | None:
    """The hooks in C++, or None where Python is the way."""
    way = os.environ.get("TUCKFOLD_HOOKS", "")
    if way not in _WAYS:
        raise ValueError(f"[hooks] TUCKFOLD_HOOKS must be python or cpp, got {way!r}")
    path = files.library_path(f"libtuckfold_hooks-{torch.__version__.partition('+')[0]}.so")
    if way == "python" or (not way and not path.exists()):
        return None
    try:
        return _loaded(str(path))
    except OSError as error:
        if way == "cpp":
            raise ImportError(
                f"[hooks] TUCKFOLD_HOOKS=cpp, and the library for torch {torch.__version__} "
                f"cannot be loaded: {error}; build tuckfold with this torch, or use python"
            ) from None
        return None


@functools.cache
def _loaded(path: str) -> ctypes.CDLL:
    torch.classes.load_library(path)
    lib = ctypes.CDLL(path)
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    for name, result, *arguments in (
        ("begin", pointer, pointer, number, pointer, number),
        ("ended", ctypes.c_int, pointer, number, pointer),
        ("ended_many", ctypes.c_int, pointer, number, pointer, number),
        ("finish", ctypes.c_int, pointer, pointer, number),
        ("differs", ctypes.c_char_p, pointer),
        ("error", ctypes.c_char_p, pointer),
        ("count", number, pointer, ctypes.c_int),
        ("list", number, pointer, ctypes.c_int, pointer),
        ("answer", ctypes.c_int, pointer, pointer),
        ("end", None, pointer),
    ):
        function = getattr(lib, f"tuckfold_hooks_{name}")
        function.restype, function.argtypes = result, list(arguments)
        setattr(lib, name, function)
    return lib


@dataclass
class Norm:
    """A normalization that recipes have constants of, and what it had."""

    module: nn.Module
    eps: float | None
    weight: Tensor | None
    bias: Tensor | None

    def is_as_recorded(self) -> bool:
        parameters = self.module._parameters
        return (
            self.module.eps == self.eps
            and parameters.get("weight") is self.weight
            and parameters.get("bias") is self.bias
        )


@dataclass
class Compiled:
    """A program in C++."""

    program: Any
    address: int
    modules: set[int]
    is_lossy: bool
    keys: list[tuple[object, ...]]  # of groups, by which values that are not finite are remembered
    on_gpu: list[int]  # groups
    device: torch.device  # of the model
    norms: list[Norm] = field(default_factory=list)
    settings: tuple[object, ...] | None = None  # of torch's products, where some are made again
    passes: int = 0  # that went as it says

    def fits(self) -> bool:
        """Whether modules have the constants that were recorded, and torch the settings."""
        if self.settings is not None and self.settings != products.settings():
            return False
        return all(norm.is_as_recorded() for norm in self.norms)


class Native:
    """A pass with hooks in C++."""

    def __init__(self, owner: Activations, compiled: Compiled) -> None:
        self._pass: int | None = None
        lib = owner.library
        assert lib is not None
        self.owner, self.compiled, self._lib = owner, compiled, lib
        self.answers = owner.answers
        self.differs = ""
        self.hooked = self.stored = 0  # tensors
        seed, kept = 0, []
        if compiled.is_lossy:
            if self.answers._asked:
                self.answers.read()
            seed = owner.next_seed()
            if self.answers.kept:  # on the CPU each pass looks for itself
                kept = [i for i in compiled.on_gpu if compiled.keys[i] in self.answers.kept]
        numbers = (ctypes.c_int64 * len(kept))(*kept) if kept else None
        self._pass = lib.begin(compiled.address, seed, numbers, len(kept))
        self._ended = lib.ended
        self._modules = compiled.modules

    def ended(self, module: int, output: object) -> None:
        """A module has returned. Nothing that goes wrong here reaches the model."""
        if module not in self._modules or self._pass is None:
            return
        if type(output) is Tensor:
            self._ended(self._pass, module, output._cdata)
        else:
            addresses, count = _addresses(output)
            self._lib.ended_many(self._pass, module, addresses, count)

    def finish(self, output: object) -> bool:
        """Ends the pass; whether it went as the program says."""
        if self._pass is None:
            return False
        lib, done = self._lib, self._pass
        addresses, count = _addresses(output)
        went = bool(lib.finish(done, addresses, count))
        self.hooked, self.stored = lib.count(done, 0), lib.count(done, 1)
        if not went:
            self.differs = lib.differs(done).decode()
            if error := lib.error(done).decode():
                self.owner.note(RuntimeError(error))
        if self.compiled.is_lossy:
            self._answered()
        self._release()
        self.compiled.passes += went
        return went

    def _answered(self) -> None:
        """What codecs may not store, since it was not finite, or is not known to be."""
        keys = self.compiled.keys
        for group in self._list(1):
            self.answers.found(keys[group])
        groups = self._list(0)
        if groups and not torch.cuda.is_current_stream_capturing():
            answer = torch.empty(len(groups), dtype=torch.bool, pin_memory=True)
            if self._lib.answer(self._pass, answer._cdata):
                self.answers.asked([keys[g] for g in groups], answer, self.compiled.device)
            else:
                self.owner.note(RuntimeError(self._lib.error(self._pass).decode()))

    def _list(self, which: int) -> list[int]:
        count = self._lib.list(self._pass, which, None)
        found = (ctypes.c_int64 * count)()
        self._lib.list(self._pass, which, found)
        return list(found)

    def _release(self) -> None:
        if self._pass is not None:
            self._lib.end(self._pass)
            self._pass = None

    def __del__(self) -> None:
        self._release()  # of a pass that was interrupted


def _addresses(output: object) -> tuple[Any, int]:
    """Of the tensors that a module has returned, 0 for what is none."""
    leaves = [output] if isinstance(output, Tensor) else torch.utils._pytree.tree_leaves(output)
    found = [x._cdata if isinstance(x, Tensor) else 0 for x in leaves]
    return (ctypes.c_void_p * len(found))(*found), len(found)
