"""What one pass saved and how it was stored, for plans and reports."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations._graph import Prober, kind
from tuckfold.torch._activations._saved import Form, Handle, Record, storage_key

# Arguments that are weights where they have no gradient.
_WEIGHTS = {("convolution", "weight"), ("addmm", "mat2"), ("mm", "mat2")}


def operator_of(node_kind: str) -> str:
    """`max_pool2d_with_indices` of `MaxPool2DWithIndicesBackward0`."""
    name = re.sub(r"Backward\d*$", "", node_kind)
    name = re.sub(r"(\d)D", r"\1d", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass
class Row:
    """A saved tensor."""

    module: str  # its path in the model
    type: str  # the class of the module
    shape: tuple[int, ...]
    dtype: str
    storage: int  # equal for tensors that share one
    before: int  # bytes of the storage; 0 where an earlier row counts it
    after: int
    op: str = ""
    role: str = ""
    how: str = "keep"
    # Of a value that a compiled graph saves: module, class, operator and argument, as plans of passes that are not
    # compiled name it.
    readers: list[tuple[str, str, str, str]] = field(default_factory=list)


class Scope:
    """The modules that a thread is inside of, for names."""

    def __init__(self, model: nn.Module) -> None:
        self._root = ("", type(model).__name__)
        self._local = threading.local()
        self._removable: list[Any] = []
        for name, module in model.named_modules():
            if module is not model:
                place = (name, type(module).__name__)
                self._removable += [
                    module.register_forward_pre_hook(lambda *_, place=place: self._enter(place)),
                    module.register_forward_hook(lambda *_: self._leave(), always_call=True),
                ]

    @property
    def _stack(self) -> list[tuple[str, str]]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    @property
    def place(self) -> tuple[str, str]:
        """Path and class of the innermost module."""
        stack = self._stack
        return stack[-1] if stack else self._root

    def _enter(self, place: tuple[str, str]) -> None:
        if not torch.compiler.is_compiling():  # graphs have names of their own
            self._stack.append(place)

    def _leave(self) -> None:
        if not torch.compiler.is_compiling() and self._stack:
            self._stack.pop()

    def remove(self) -> None:
        for removable in self._removable:
            removable.remove()


class Trace:
    """Listens to a Run; bytes over time include what is freed in backward."""

    def __init__(self, model: nn.Module) -> None:
        self.rows: list[Row] = []
        self.live = 0
        self.events: list[tuple[float, str, int, str]] = []  # seconds, what, stored bytes, module
        self._began = time.perf_counter()
        self._numbers: weakref.WeakKeyDictionary[Record, int] = weakref.WeakKeyDictionary()
        self._bytes: dict[int, int] = {}  # that a storage takes now
        owned = [*model.parameters(), *model.buffers()]
        self._owned = {storage_key(t) for t in owned if type(t) in (Tensor, nn.Parameter)}
        self._row_of: weakref.WeakKeyDictionary[Handle, Row] = weakref.WeakKeyDictionary()

    def _event(self, what: str, module: str, transient: int = 0) -> None:
        now = time.perf_counter() - self._began
        self.events.append((now, what, self.live + transient, module))

    def packed(self, handle: Handle) -> None:
        assert handle.tensor is not None
        if storage_key(handle.tensor) in self._owned:
            return
        record, before = handle.record, 0
        number = self._numbers.get(record)
        if number is None:
            number = self._numbers[record] = len(self._bytes)
            before = self._bytes[number] = record.nbytes
            weakref.finalize(record, self._died, number)
        dtype = str(handle.dtype).removeprefix("torch.")
        name, type_ = handle.place
        row = Row(name, type_, tuple(handle.shape), dtype, number, before, before)
        self.rows.append(row)
        self._row_of[handle] = row
        self.live += before
        self._event("save", name)

    def _died(self, number: int) -> None:
        self.live -= self._bytes.pop(number, 0)
        self._event("free", "")

    def learned(self, node: Any, probe: Prober) -> None:
        for attribute in dir(node):
            if not attribute.startswith("_raw_saved_"):
                continue
            role = attribute.removeprefix("_raw_saved_")
            handle = probe(node, f"_saved_{role}")
            row = self._row_of.get(handle) if handle is not None else None
            if handle is None or row is None:
                continue
            row.op, row.role = operator_of(kind(node)), role
            if (row.op, role) in _WEIGHTS and handle.origin is None:
                row.how = "weight"
                self.live -= row.before
                self._bytes[row.storage] -= row.before

    def stored(self, record: Record, handles: list[Handle], forms: list[Form]) -> None:
        number = self._numbers.get(record)
        if number is None:
            return
        new = sum(form.nbytes for form in {id(f): f for f in forms}.values())
        counted: set[int] = set()
        for handle, form in zip(handles, forms, strict=True):
            row = self._row_of.get(handle)
            if row is not None:
                row.how = form.label
                row.after = 0 if id(form) in counted else form.nbytes
                counted.add(id(form))
        self.live += new - self._bytes[number]
        self._bytes[number] = new
        self._event("pack", handles[0].place[0])

    def unpacked(self, handle: Handle, value: Tensor | None = None) -> None:
        transient = 0
        if handle.tensor is None:
            transient = handle.dtype.itemsize * handle.shape.numel()
        self._event("read", handle.place[0], transient)

    @property
    def saved(self) -> list[Row]:
        """Without autocast's copies of frozen weights."""
        return [row for row in self.rows if row.how != "weight"]

    @property
    def before(self) -> int:
        """Bytes that autograd alone would hold: each storage once."""
        return sum(row.before for row in self.saved)

    @property
    def after(self) -> int:
        return sum(row.after for row in self.saved)

    @property
    def peak(self) -> int:
        """The most bytes at any time, with what is unpacked to be read."""
        return max((stored for _, _, stored, _ in self.events), default=0)


# With one tensor at a time every torch has it that has it at all.
_same_version = getattr(torch.autograd, "_unsafe_preserve_version_counter", nullcontext)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Random numbers, buffers and modes are afterwards as they were; gradients are not written.

    Graphs that wait for their backward may have saved buffers. These get the values back that they
    had, and their version, by which autograd would take them for changed.
    """
    devices = sorted({t.device.index or 0 for t in model.parameters() if t.is_cuda})
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with ExitStack() as versions:
        for buffer, _ in buffers:
            if not buffer.is_inference():  # those have no version
                versions.enter_context(_same_version(buffer))
        try:
            with torch.random.fork_rng(devices=devices):
                yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
