"""What the hooks hand to autograd in place of a saved tensor, and what is known of its storage."""

from __future__ import annotations

import functools
import weakref
from typing import Protocol

import torch
from torch import Tensor

_NOTHING = torch.empty(0)
_use_count = torch._C._storage_Use_Count


def _uses(tensor: Tensor) -> int:
    """How many tensors share the storage; Python's own object of the storage counts, too."""
    return _use_count(tensor.untyped_storage()._cdata)


_OF_PYTHON = _uses(torch.empty(1)) - 1


def storage_key(tensor: Tensor) -> int:
    """The storage's identity, for as long as somebody holds it."""
    return tensor.untyped_storage()._cdata


def stream_of(device: torch.device) -> int:
    """The stream that work on a device is queued in now."""
    if device.type != "cuda":
        return 0
    return torch._C._cuda_getCurrentRawStream(device.index)


class ModifiedError(RuntimeError):
    """What autograd raises for a tensor that was changed in place after it was saved."""


def check_version(tensor: Tensor, version: int, origin: tuple[str, int] | None) -> None:
    """Raises what autograd raises; it does not look itself where there are hooks."""
    if tensor._version == version:
        return
    made_by = f", which is output {origin[1]} of {origin[0]}," if origin else ""
    raise ModifiedError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{tensor.type()} {list(tensor.shape)}]{made_by} is at version "
        f"{tensor._version}; expected version {version} instead.{_hint()}"
    )


@functools.cache
def _hint() -> str:
    """What autograd adds, in the words of the installed torch."""
    with torch.enable_grad():
        changed = torch.ones((), requires_grad=True).exp()
        changed.detach().add_(1)
        try:
            _ = changed.grad_fn._saved_result  # type: ignore[union-attr]
        except RuntimeError as error:
            return str(error).partition(" instead.")[2]
    return ""


class Form(Protocol):
    """How a tensor is stored: bytes that it takes, a word for tables, and the way back."""

    label: str
    whole: bool  # whether every value comes back, not only what some backward reads

    @property
    def nbytes(self) -> int: ...

    def decode(self, handle: Handle) -> Tensor: ...


class Again(Protocol):
    """What a kept tensor must agree with: its value instead, or None where the kept one is right."""

    def value(self) -> Tensor | None: ...


class Kept:
    """A tensor that stays as it is: a parameter, a small one, or one of a subclass."""

    __slots__ = ("again", "origin", "tensor", "version")

    def __init__(self, tensor: Tensor, version: int, origin: tuple[str, int] | None) -> None:
        self.tensor, self.version, self.origin = tensor, version, origin
        self.again: Again | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether no operator made it."""
        return self.origin is None

    def value(self) -> Tensor:
        check_version(self.tensor, self.version, self.origin)
        if self.again is not None and (made := self.again.value()) is not None:
            return made
        return self.tensor

    given = value


class Copied(Kept):
    """A copy of a small tensor, which nobody else can change."""

    __slots__ = ()


class Own(Kept):
    """What a node made for its own backward: nobody else has it, so that no recipe needs a copy."""

    __slots__ = ()


class Handle:
    """One saved tensor: a view of a storage, whatever becomes of the storage.

    Autograd owns it, through the node that saved it. It owns its record; the record refers to it
    weakly, so that both go when the node lets go.
    """

    __slots__ = (
        "__weakref__",
        "again",
        "device",
        "dtype",
        "form",
        "grade",
        "is_copy",
        "is_direct",
        "is_output",
        "is_reshaped",
        "is_source",
        "known",
        "limits",
        "maker",
        "need",
        "number",
        "offset",
        "op",
        "origin",
        "place",
        "record",
        "role",
        "saver",
        "shape",
        "strides",
        "tensor",
        "version",
    )

    def __init__(self, x: Tensor, record: Record, origin: tuple[str, int] | None) -> None:
        # Detached: the tensor itself would hold the node that saved it, a cycle nobody can collect.
        self.tensor: Tensor | None = x.detach()
        self.record, self.origin, self.version = record, origin, x._version
        self.dtype, self.device = x.dtype, x.device
        self.shape, self.strides, self.offset = x.shape, x.stride(), x.storage_offset()
        self.form: Form | None = None
        self.again: Again | None = None  # what the node that saved it gets instead
        self.need: str = "value"  # of the tensor, by the node that saved it
        self.limits: tuple[float, ...] = ()  # that need depends on
        # How well a codec must store it: as a value; as a score, in 8 bits; as a score whose sums follow from what
        # is decoded, in fewer if somebody asks for that; empty: exactly.
        self.grade = ""
        self.known = False  # whether that node was looked at
        self.is_direct = False  # whether it is no view of what a node made, but that itself
        self.is_reshaped = False  # whether it is that with other sizes
        self.is_output = False  # whether that node made the tensor
        self.is_copy = False  # whether it is what that node, in place, has overwritten
        self.is_source = False  # whether a recipe reads its values
        self.op = self.role = ""
        self.saver = -1  # sequence number of that node
        self.number = 0  # of the call of pack that made it
        self.maker = (
            -1,
            0,
        )  # that of the node which made the storage, and which of its outputs it is
        self.place = ("", "")  # path and class of the module, where somebody asks for them

    @classmethod
    def like(cls, tensor: Tensor, record: Record, other: Handle) -> Handle:
        """Of a tensor that is detached already, and as another was in all but its values."""
        self = cls.__new__(cls)
        self.tensor, self.record, self.origin = tensor, record, other.origin
        self.version = tensor._version
        self.dtype, self.device = other.dtype, other.device
        self.shape, self.strides, self.offset = other.shape, other.strides, other.offset
        self.form, self.need, self.limits, self.known = None, "value", (), True
        self.is_direct, self.is_output = other.is_direct, other.is_output
        self.is_copy, self.is_reshaped = other.is_copy, other.is_reshaped
        self.grade, self.is_source = other.grade, False
        self.op, self.role, self.saver, self.place = other.op, other.role, -1, other.place
        self.maker, self.number, self.again = (-1, 0), 0, None
        return self

    def shell(self) -> Handle:
        """All that is known of it, without tensors."""
        other = Handle.like(_NOTHING, Record(0, 0), self)
        other.tensor = None
        return other

    def value(self) -> Tensor:
        """The tensor, with the bits that backward needs."""
        if self.tensor is not None:
            check_version(self.tensor, self.version, self.origin)
            return self.tensor
        assert self.form is not None
        return self.form.decode(self)

    def given(self) -> Tensor:
        """What the node that saved it gets; others get the value."""
        if self.tensor is not None:
            check_version(self.tensor, self.version, self.origin)
        if self.again is not None and (made := self.again.value()) is not None:
            return made
        return self.value()

    @property
    def is_leaf(self) -> bool:
        """Whether no operator made it, and it is not packed."""
        return self.origin is None and self.tensor is not None

    def is_unchanged(self) -> bool:
        return self.tensor is None or self.tensor._version == self.version

    def store(self, form: Form) -> None:
        self.form, self.tensor = form, None

    def empty(self) -> Tensor:
        """A tensor of its sizes and strides."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)


class Record:
    """A storage that one or more saved tensors look into."""

    __slots__ = (
        "__weakref__",
        "before",
        "cache",
        "gate",
        "handles",
        "is_gate_read",
        "key",
        "nbytes",
        "pinned",
        "seen",
        "stream",
        "unread",
    )

    def __init__(self, nbytes: int, stream: int, key: int = 0) -> None:
        self.nbytes, self.key = nbytes, key  # the storage's, while somebody holds it
        # Of the operators that saved it, -1 if they differ: packing in another stream would read what
        # is not there yet, and free what is still read.
        self.stream = stream
        self.handles: list[weakref.ref[Handle]] = []
        self.before = -1  # bytes of storages that came earlier in the pass
        self.seen = 0  # when the last handle came, in calls of pack
        self.pinned = False  # whether another storage is recomputed from it
        self.cache: Tensor | None = None  # recomputed, for the next reader
        self.unread: set[int] = set()
        self.gate: Form | None = None  # whose bits the cache has, so that its readers read that
        self.is_gate_read = False  # whether they had it otherwise

    def live(self) -> list[Handle]:
        return [handle for ref in self.handles if (handle := ref()) is not None]

    def is_ours(self, handles: list[Handle]) -> bool:
        """Whether nobody else holds the storage, so that packing it frees it."""
        held = [handle.tensor for handle in handles if handle.tensor is not None]
        return bool(held) and _uses(held[0]) <= len(held) + _OF_PYTHON
