"""One pass, operator by operator: which bytes are live when, and which of them depend on how tensors
are stored."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tuckfold.torch._activations._lossy import Lossy, best_grade
from tuckfold.torch._activations._peak import rounded
from tuckfold.torch._activations._recipe import Recomputed
from tuckfold.torch._activations._saved import Form, Handle, Record, storage_key
from tuckfold.torch._activations._trace import Trace, operator_of

Span = tuple[int, int, int]  # the first and the last position, and the bytes between


@dataclass
class Item:
    """A storage that a codec may store, or that is made again."""

    name: str
    key: tuple[Any, ...]
    nbytes: int
    dtype: torch.dtype
    how: str
    grade: str
    stored: int  # the position from which on it is stored
    died: int = -1
    made: list[Span] = field(default_factory=list)  # when it is whole again, to be read


class Timeline(TorchDispatchMode):
    """Counts positions: operators, in the order in which they run."""

    def __init__(self, known: list[Tensor], device: torch.device) -> None:
        super().__init__()
        self.position = 0
        self.device = device
        self._of_gpu: list[int] = []  # the most that was allocated in each position
        self._spans: list[tuple[int, int, int, Item | None]] = []
        self._live: dict[int, tuple[int, int, Any]] = {
            t.untyped_storage()._cdata: (-1, 0, None) for t in known if t.layout is torch.strided
        }
        self._owners: dict[int, Item] = {}

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        made = operator(*arguments, **(keywords or {}))
        if self.device.type == "cuda":
            self._of_gpu.append(torch.cuda.max_memory_allocated(self.device))
        for x in torch.utils._pytree.tree_leaves(made):
            if isinstance(x, Tensor) and x.layout is torch.strided:
                self._count(x.untyped_storage())
        self.position += 1
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._live:
            return
        born, nbytes = self.position, rounded(storage.nbytes())

        def freed(_: object) -> None:
            del self._live[key]
            last = max(born, self.position - 1)
            self._spans.append((born, last, nbytes, self._owners.pop(key, None)))

        self._live[key] = (born, nbytes, weakref.ref(storage, freed))

    def belongs(self, tensor: Tensor, item: Item) -> None:
        """A tensor that exists because of how an item is stored."""
        self._owners[storage_key(tensor)] = item

    def finish(self) -> None:
        for key, (born, nbytes, _) in list(self._live.items()):
            if born >= 0:
                self._spans.append((born, self.position, nbytes, self._owners.get(key)))
        self._live.clear()

    def base(self) -> list[int]:
        """Bytes at each position that live however items are stored."""
        change = [0] * (self.position + 2)
        for first, last, nbytes, item in self._spans:
            if (item is None) != (self.device.type == "cuda"):
                change[first] += nbytes
                change[last + 1] -= nbytes
        live, found = 0, []
        for step in change[: self.position + 1]:
            live += step
            found.append(live)
        if self.device.type != "cuda":
            return found
        # The allocator knows of workspaces, too. What depends on items is subtracted.
        measured = [*self._of_gpu, self._of_gpu[-1] if self._of_gpu else 0]
        return [max(0, a - b) for a, b in zip(measured, found, strict=True)]

    def made_spans(self) -> list[tuple[Item, Span]]:
        return [(item, (a, b, n)) for a, b, n, item in self._spans if item is not None]


class Ledger(Trace):
    """What a pass saved, with positions."""

    def __init__(self, model: nn.Module, timeline: Timeline) -> None:
        super().__init__(model)
        self.timeline = timeline
        self.items: list[Item] = []
        self._item_of: weakref.WeakKeyDictionary[Record, Item] = weakref.WeakKeyDictionary()

    def stored(self, record: Record, handles: list[Handle], forms: list[Form]) -> None:
        super().stored(record, handles, forms)
        form = next((f for f in forms if isinstance(f, (Lossy, Recomputed))), None)
        h = handles[0]
        if form is None:
            return
        place = f"{h.place[0]}." if h.place[0] else ""
        item = Item(
            f"{place}{operator_of(h.op)}.{h.role or 'result'}",
            (h.number, h.op, len(handles)),
            record.nbytes,
            h.dtype,
            form.label,
            best_grade(handles),
            self.timeline.position,
        )
        self.items.append(item)
        self._item_of[record] = item
        weakref.finalize(record, self._ended, item)
        if isinstance(form, Lossy):
            self.timeline.belongs(form.bytes, item)

    def _ended(self, item: Item) -> None:
        item.died = self.timeline.position

    def unpacked(self, handle: Handle, value: Tensor | None = None) -> None:
        super().unpacked(handle, value)
        item = self._item_of.get(handle.record)
        is_made = isinstance(handle.form, (Lossy, Recomputed))
        if item is not None and value is not None and is_made:
            self.timeline.belongs(value, item)

    def finish(self) -> None:
        """After the pass: when each item is whole again."""
        self.timeline.finish()
        for item, span in self.timeline.made_spans():
            if span[0] > item.stored:
                item.made.append(span)
        for item in self.items:
            if item.died < 0:
                item.died = self.timeline.position
