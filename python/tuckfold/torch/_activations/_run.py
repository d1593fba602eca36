"""One forward pass: the hooks that autograd calls, and what they know until it ends."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuckfold.torch._activations import _attention as attention
from tuckfold.torch._activations import _lossy as lossy
from tuckfold.torch._activations import _products as products
from tuckfold.torch._activations import _store as store
from tuckfold.torch._activations._finite import Watch
from tuckfold.torch._activations._graph import Prober, is_cast_leaf, is_reshaped, kind, producer
from tuckfold.torch._activations._program import Survey
from tuckfold.torch._activations._recompute import MAKERS, MOST_OPERATORS, Builder
from tuckfold.torch._activations._rules import RULES
from tuckfold.torch._activations._saved import Form, Handle, Kept, Record, storage_key, stream_of

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_NOTHING = torch.empty(0)
_OFTEN, _RARELY = 4, 64  # calls of pack between looks at who else holds storages
_MUCH = 1 << 20  # bytes that are worth a look at once
_PATIENCE = 16  # calls of pack until a node that was not met counts as reading all values
_DELAY = 24  # calls of pack until a codec stores what nothing was recomputed from so far
_MOST_GRADES = 1 << 16
_sequence_number = torch._C._autograd._get_sequence_nr


def _key(handles: list[Handle]) -> tuple[Any, ...]:
    """Of a storage, likely to be equal in passes that repeat each other."""
    h = handles[0]
    return (h.number, h.op, h.shape, len(handles))


class Run:
    """Packs and unpacks for one forward pass; nodes hold it through their hooks.

    After the forward pass it holds no tensor and no node, so graphs live and die as without it.
    """

    def __init__(self, owner: Activations, flops: int = 0, nbytes: int = 0) -> None:
        """flops: of products, in a pass with such inputs; nbytes: that it saved."""
        self.owner = owner
        self.flops = 0  # of products so far
        self.nbytes = 0  # that were saved so far
        late = lossy.LATE.get(owner.device.type, 0.0) if owner.goal is None else 0.0
        self.late_from = nbytes * (1 - late) if nbytes and late else math.inf
        self.least = owner.least
        self.thread = threading.get_ident()
        self.packs = self.large = 0
        self.fresh = 0  # bytes that came since the last look
        self.probe = Prober()
        self.first = _sequence_number()
        self.records: dict[int, weakref.ref[Record]] = {}
        self.pending: dict[Record, Any] = {}  # with the node that made it, if it can be recomputed
        self.late: dict[Record, Any] = {}
        self.saved: dict[int, list[weakref.ref[Handle]]] = {}
        self.made: dict[tuple[int, int], weakref.ref[Handle]] = {}
        self.ours: set[int] = set()  # nodes that saved something through our hooks
        self.seen: set[int] = set()
        self.operators: set[str] = set()  # that saved tensors
        self.is_lossy = owner.is_lossy
        self.builder = Builder(
            self.probe, self.made, owner.norms(), self.ours, owner.recompute, self.is_lossy
        )
        if owner.goal is None:  # else tensors are stored as the solver has chosen
            self.builder.flops = products.limit(
                flops, owner.device, owner.recompute, MOST_OPERATORS, self.is_lossy
            )
        self.waiting: dict[Record, tuple[int, str]] = {}  # for a codec, since when, and for which
        self.grades: dict[Any, list[str]] = {}  # of what a codec may store, in the end
        self.watch = Watch(owner) if self.is_lossy else None
        self.trace = owner.trace
        self.survey: Survey | None = None

    def pack(self, x: Tensor) -> Handle | Kept:
        """Autograd's pack hook. Nothing that goes wrong here reaches the model."""
        try:
            return self._pack(x)
        except Exception as error:
            self.owner.note(error)
            return Kept(x.detach(), x._version, None)

    def unpack(self, saved: Handle | Kept) -> Tensor:
        """Autograd's unpack hook, in any thread, any number of times, in any order."""
        if self.probe.asking and threading.get_ident() == self.thread:
            self.probe.found = saved
            return _NOTHING
        value = saved.given()
        if self.trace is not None and isinstance(saved, Handle):
            self.trace.unpacked(saved, value)
        return value

    def _pack(self, x: Tensor) -> Handle | Kept:
        node = x.grad_fn
        self.ours.add(_sequence_number() - 1)
        origin = None if node is None else (kind(node), x.output_nr)
        if type(x) is not Tensor:
            # A subclass may carry more than its values. A leaf holds no node, so no cycle.
            return Kept(x if node is None else x.detach(), x._version, origin)
        least = self.least[x.is_cuda]
        is_sparse = x.layout is not torch.strided
        small = is_sparse or x.nbytes < least
        # A leaf as it is, since `.data =` may replace its values.
        if is_sparse or (small and self.trace is None):
            return Kept(x if node is None else x.detach(), x._version, origin)
        made = producer(x)
        if made is not None and is_cast_leaf(made[0]):
            return Kept(x.detach(), x._version, origin)
        self.packs += 1
        self.large += not small
        record = self._record(x)
        if record.before < 0 and not small:
            record.before = self.nbytes
            self.nbytes += record.nbytes
        handle = Handle(x, record, origin)
        record.handles.append(weakref.ref(handle))
        record.seen = self.packs
        saver = _sequence_number() - 1  # the node that is being made
        if node is not None and kind(node) == "CloneBackward0" and node._sequence_nr() == saver:
            # An operator in place saves a copy of its input, after its own node was made.
            handle.is_copy = True
            saver -= 1
        handle.saver, handle.number = saver, self.large
        self.saved.setdefault(saver, []).append(weakref.ref(handle))
        if node is not None:
            handle.is_output = node._sequence_nr() == saver
            handle.is_direct = made is not None and made[0] is node
            handle.is_reshaped = is_reshaped(x)
            self._learn(node, unfinished=saver)
            self._register(made, record, handle, small)
        if self.owner.scope is not None:
            handle.place = self.owner.scope.place
        if self.trace is not None:
            self.trace.packed(handle)
        if not small:
            self.pending.setdefault(record, None)
            self.fresh += x.nbytes
            if self.packs % _OFTEN == 0 or self.fresh > _MUCH:
                self.fresh = 0
                self._settle(final=False)
        return handle

    def _record(self, x: Tensor) -> Record:
        key = storage_key(x)
        ref = self.records.get(key)
        record = ref() if ref is not None else None
        # A record without a tensor says nothing of who has the address now.
        if record is None or all(h.tensor is None for h in record.live()):
            record = Record(x.untyped_storage().nbytes(), stream_of(x.device))
            self.records[key] = weakref.ref(record)
            if self.survey is not None and x.grad_fn is not None:
                self.survey.saved(record.nbytes)
        elif record.stream != stream_of(x.device):
            record.stream = -1
        return record

    def _register(
        self, made: tuple[Any, int] | None, record: Record, handle: Handle, small: bool
    ) -> None:
        """Remembers which node made a storage."""
        if made is None:
            return
        node, output = made
        if handle.is_direct:
            self.made.setdefault((node._sequence_nr(), output), weakref.ref(handle))
        if small or output != 0 or kind(node) not in MAKERS:
            return
        if self.late.get(record) is None and self.pending.get(record) is None:
            self.pending[record] = node

    def _learn(self, node: Any, unfinished: int = -1) -> None:
        """Looks at the nodes before one, as far as this pass made them and they are new.

        unfinished: a node that still saves tensors, to be looked at later.
        """
        stack = [node]
        while stack:
            node = stack.pop()
            number = node._sequence_nr()
            if number in self.seen or number < self.first or kind(node) == "AccumulateGrad":
                continue
            handles = None
            if number != unfinished:
                self.seen.add(number)
                if kind(node) in products.KINDS:
                    self.flops += products.flops(node)
                handles = self.saved.get(number)
            if handles is not None:  # else its tensors went to the hooks of somebody else
                self.operators.add(kind(node))
                rule = RULES.get(kind(node))
                try:
                    if rule is not None:
                        rule(node, self.probe)
                    if self.is_lossy:
                        lossy.learn(node, self.probe)
                        attention.learn(node, self.probe)
                except AttributeError as error:  # saved otherwise by this torch
                    self.owner.note(error)
                for ref in handles:
                    if (handle := ref()) is not None:
                        handle.known, handle.op = True, kind(node)
                if self.trace is not None:
                    self.trace.learned(node, self.probe)
            stack.extend(edge[0] for edge in node.next_functions if edge[0] is not None)

    def _settle(self, final: bool) -> None:
        """Packs the storages that nobody else holds any more."""
        pending = self.pending
        if final or self.packs % _RARELY == 0:
            pending.update(self.late)
            self.late.clear()
        for record, node in list(pending.items()):
            handles = record.live()
            if not handles:
                del pending[record]
            elif not record.is_ours(handles) or record.stream != stream_of(handles[0].device):
                # Most are let go of soon. Weights and shortcuts over many layers are not.
                if self.packs - record.seen >= _PATIENCE:
                    self.late[record] = pending.pop(record)
            elif final or self.packs - record.seen >= _PATIENCE or all(h.known for h in handles):
                del pending[record]
                if self.is_lossy or store.is_promising(handles, node):
                    self._store(record, handles, node)
        for record, (since, codec) in list(self.waiting.items()):
            if final or self.packs - since >= _DELAY:
                del self.waiting[record]
                self._store_lossy(record, codec)

    def _store(self, record: Record, handles: list[Handle], node: Any) -> None:
        try:
            policy = self.owner.policy(handles)
            if policy is None or not all(h.is_unchanged() for h in handles):
                return
            may_recompute, codec = policy
            is_late = isinstance(codec, lossy.Usual) and record.before >= self.late_from
            if is_late and node is not None and kind(node) in products.KINDS:
                node = None  # no product is worth it there
            with torch.no_grad():
                found = store.forms_of(record, handles)
            if found is None and node is not None and may_recompute:
                form = store.recomputed(record, handles, node, self.builder)
                if form is not None:
                    found = store.spread(form, handles) if self.is_lossy else [form] * len(handles)
            if found is None:
                if is_late:
                    return
                if codec is not None and not lossy.may_be(handles):
                    codec = self.owner.elsewhere(codec)
                if codec is not None:
                    known = self.owner.grades.get(_key(handles))
                    self.waiting[record] = (-_DELAY if known else self.packs, codec)
                    for h, grade in zip(handles, known or (), strict=False):
                        if grade != "value" or h.grade == "":  # what was raised since stays so
                            h.grade = grade
                return
        except Exception as error:
            self.owner.note(error)
            return
        self._stored(record, handles, found, node)

    def _store_lossy(self, record: Record, codec: str) -> None:
        """By a codec, once what may be recomputed from it has been compared with it."""
        handles = record.live()
        if handles:
            self.grades[_key(handles)] = [h.grade for h in handles]
        try:
            if not handles or not record.is_ours(handles) or not all(h.known for h in handles):
                return
            if record.stream != stream_of(handles[0].device):
                return
            assert self.watch is not None
            if not all(h.is_unchanged() for h in handles) or self.watch.is_kept(handles):
                return
            with torch.no_grad():
                found = lossy.forms_of(record, handles, codec, self.watch.seed(handles[0].number))
            if found is None or not self.watch.may_store(found, handles):
                return
        except Exception as error:
            self.owner.note(error)
            return
        self._stored(record, handles, found, None)

    def _stored(self, record: Record, handles: list[Handle], found: list[Form], node: Any) -> None:
        if self.trace is not None:
            self.trace.stored(record, handles, found)
        if self.survey is not None:
            self.survey.stored(record, handles, found, node, self.builder)
        for handle, form in zip(handles, found, strict=True):
            handle.store(form)

    def finish(self, outputs: Any) -> None:
        """Ends the pass: looks at the nodes that are left, and lets go of everything."""
        try:
            for x in torch.utils._pytree.tree_leaves(outputs):
                if isinstance(x, Tensor) and x.grad_fn is not None:
                    self._learn(x.grad_fn)
            self._settle(final=True)
        except Exception as error:
            self.owner.note(error)
        self.owner.saw(self.operators)
        if self.watch is not None:
            self.watch.end()
            if not self.builder.waits and len(self.owner.grades) < _MOST_GRADES:
                self.owner.grades.update(self.grades)
        self.pending.clear()
        self.waiting.clear()
        self.late.clear()
        self.records.clear()
        self.saved.clear()
        self.made.clear()
        self.seen.clear()
