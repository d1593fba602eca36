"""Storages that wait in the CPU's memory until backward reads them; every bit comes back.

On a GPU both copies run in a stream of their own, beside the model's work, and the copy back of a storage
begins when the one that was stored after it is read. On the CPU it is a copy within its memory.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from tuckfold.torch._activations._gates import Gate
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._saved import Form, Handle, Record

CPU = "cpu"


class _Last(threading.local):
    """What a thread has stored last."""

    def __init__(self) -> None:
        self.form: Callable[[], Offloaded | None] = lambda: None


_last = _Last()


@functools.lru_cache(maxsize=16)
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Offloaded(Lossy):
    """A whole storage, as a row of values.

    Args:
        x: the storage as one row.
    """

    __slots__ = ("__weakref__", "_before", "_coming", "_device", "_is_read")
    changes = False

    def __init__(self, x: Tensor) -> None:
        self.label, self.mask, self.gate = CPU, None, None
        self.shape, self.strides = x.shape, x.stride()
        self._device = x.device
        self._coming: tuple[Tensor, torch.cuda.Event] | None = None
        self._is_read = False
        self._before, _last.form = _last.form, weakref.ref(self)
        if x.device.type != "cuda":
            self.bytes = x.clone()
            return
        self.bytes = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        side = _stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):
            self.bytes.copy_(x, non_blocking=True)
        x.record_stream(side)  # its memory is not given to others before the copy is over

    @property
    def nbytes(self) -> int:
        """On the device of the model."""
        return self.bytes.nbytes if self._device.type == "cpu" else 0

    def _unpacked(self, handle: Handle, gate: Gate | None = None) -> Tensor:
        if self._device.type != "cuda":
            return self.bytes.clone()
        self._is_read = True
        self._fetch()
        assert self._coming is not None
        x, ready = self._coming
        self._coming = None
        torch.cuda.current_stream(self._device).wait_event(ready)
        # Backward reads in about the reverse order; where it does not, nothing but time is lost.
        before = self._before()
        if before is not None and not before._is_read and before._device == self._device:
            before._fetch()
        return x

    def _fetch(self) -> None:
        """Begins the copy back."""
        if self._coming is not None:
            return
        side, current = _stream(self._device), torch.cuda.current_stream(self._device)
        x = torch.empty(self.shape, dtype=self.bytes.dtype, device=self._device)
        side.wait_stream(current)  # the memory may have been somebody else's
        with torch.cuda.stream(side):
            x.copy_(self.bytes, non_blocking=True)
        x.record_stream(side)
        self._coming = (x, side.record_event())


def forms_of(record: Record, handles: list[Handle]) -> list[Form] | None:
    """For every view of a storage, or None to keep it."""
    x = handles[0].tensor
    if x is None or any(
        h.tensor is None or h.tensor.is_conj() or h.tensor.is_neg() for h in handles
    ):
        return None
    if len({h.dtype for h in handles}) > 1 or record.nbytes % x.dtype.itemsize:
        return None
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    form = Offloaded(x.as_strided((record.nbytes // x.dtype.itemsize,), (1,), 0))
    return [form] * len(handles)


@functools.lru_cache(maxsize=8)
def seconds_per_byte(device: torch.device) -> float:
    """Of the way there: measured once on each device."""
    x = torch.empty(1 << (26 if device.type == "cuda" else 20), dtype=torch.uint8, device=device)
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=device.type == "cuda")
    times = []
    for _ in range(4):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        host.copy_(x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times[1:]) / x.nbytes
