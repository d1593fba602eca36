"""The zeros of a ReLU in values that a codec has changed.

The backward of a ReLU reads which values were above 0, and the operator after it reads the values
themselves. Both look into one storage. Its bits are exact; its values are unpacked, or made again, and
where one kernel does that and applies the bits, both operators can read what it makes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._activations._forms import Bits
from tuckfold.torch._activations._saved import Form, Handle, Record

_unpack_then = torch.ops.tuckfold.unpack_then.default


class Gate:
    """Bits that may be applied to what is made."""

    __slots__ = ("bits", "is_used")

    def __init__(self, bits: Tensor) -> None:
        self.bits, self.is_used = bits, False


def of(record: Record, handles: list[Handle], forms: list[Form]) -> Bits | None:
    """The bits of all values of a storage, in the order of memory, if there are such."""
    for handle, form in zip(handles, forms, strict=True):
        if handle.need != "positive" or type(form) is not Bits or handle.offset != 0:
            continue
        if handle.shape.numel() * handle.dtype.itemsize == record.nbytes:
            return form
    return None


def decoded(
    handle: Handle, form: Form, bits: Bits | None, make: Callable[[Gate | None], Tensor]
) -> Tensor:
    """A view of what a storage decodes to, which stays until its other readers, which follow soon, had it."""
    return _next(handle.record, handle, base_of(handle.record, form, bits, make))


def base_of(
    record: Record, form: Form, bits: Bits | None, make: Callable[[Gate | None], Tensor]
) -> Tensor:
    """What a storage decodes to, and who will read it."""
    base = record.cache
    if base is None:
        gate = None if bits is None or record.is_gate_read else Gate(bits.bytes)
        base = make(gate)
        record.gate = bits if gate is not None and gate.is_used else None
        record.unread = {
            id(other) for other in record.live() if other.form is form or _waits(other, record)
        }
    return base


def _waits(handle: Handle, record: Record) -> bool:
    return record.gate is not None and handle.form is record.gate


def read(handle: Handle, bits: Bits) -> Tensor | None:
    """What was decoded with these bits, if that is still there."""
    record = handle.record
    if record.gate is bits and record.cache is not None:
        return _next(record, handle, record.cache)
    record.is_gate_read = True
    return None


def _next(record: Record, handle: Handle, base: Tensor) -> Tensor:
    record.unread.discard(id(handle))
    record.cache = base if record.unread else None
    return base.as_strided(handle.shape, handle.strides, handle.offset)


@functools.lru_cache(maxsize=16)
def _numbers(device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        return torch.ones(1, device=device), torch.zeros(1, device=device)


def unpack(packed: Tensor, codec: str, length: int, dtype: torch.dtype, gate: Gate) -> Tensor:
    """A row of values with their zeros."""
    gate.is_used = True
    one, zero = _numbers(packed.device)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return _unpack_then(
            packed,
            codec,
            [length],
            dtype,
            one,
            zero,
            length,
            "none",
            None,
            None,
            None,
            None,
            gate.bits,
        )
