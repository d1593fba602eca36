"""A pass that repeats an earlier one: it takes the saved tensors that its program names, no others.

Every other tensor is saved as if nobody had wrapped the model. What is taken is looked at as the
first time: the rules read the node, recipes are built from it, and must be those that were proven.
Whatever differs from the program is left as it is, and the next pass is watched again.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuckfold.torch._activations import _attention as attention
from tuckfold.torch._activations import _lossy as lossy
from tuckfold.torch._activations import _offload as offload
from tuckfold.torch._activations import _products as products
from tuckfold.torch._activations import _store as store
from tuckfold.torch._activations._finite import Watch
from tuckfold.torch._activations._graph import Prober, is_reshaped, kind, producer
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._program import Group, Program, Recomputation, Slot, Target, leaves
from tuckfold.torch._activations._recipe import Recipe, Recomputed
from tuckfold.torch._activations._recompute import Builder, is_as_made, is_whole
from tuckfold.torch._activations._record import Place, Recorder, Unknown
from tuckfold.torch._activations._saved import Form, Handle, Kept, Record, storage_key, stream_of

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_log = logging.getLogger("tuckfold.activations")
_NOTHING = torch.empty(0)
MOST_TRIES = 3  # passes that are recorded in vain
Node = Any


class _Missing(Exception):
    """A recipe needs what this pass has not made yet."""


class _Differs(Exception):
    """The pass is not the one that was surveyed."""


class Steady:
    """Takes tensors at the ends of modules. After the pass it holds no tensor and no node."""

    def __init__(
        self, owner: Activations, program: Program, recorder: Recorder | None = None
    ) -> None:
        self.owner, self.program, self.recorder = owner, program, recorder
        self.hooked = self.stored = 0  # tensors
        self.thread = threading.get_ident()
        self.stream = owner.stream if program.groups else 0
        self.probe = Prober()
        self.at = 0
        self.differs = ""  # what was found to differ from the program
        self.nodes: dict[int, Node] = {}
        self.records: list[Record | None] = [None] * len(program.groups)
        self.pending: list[int] = []
        self.looks = [0] * len(program.groups)  # at a group since its last tensor was taken
        self.watch = Watch(owner) if program.is_lossy else None
        self._next: tuple[Record, Handle] | None = None  # what is being taken
        self._last: Handle | None = None  # what was taken
        self._pack, self._unpack = self.pack, self.unpack  # one object each for all tensors

    @functools.cached_property
    def builder(self) -> _Replay:
        """Where something is recomputed."""
        return _Replay(self)

    def pack(self, tensor: Tensor) -> Handle:
        """Called by autograd when a tensor is taken."""
        assert self._next is not None
        record, like = self._next
        self._last = Handle.like(tensor, record, like)
        return self._last

    def unpack(self, saved: Handle | Kept) -> Tensor:
        if self.probe.asking and threading.get_ident() == self.thread:
            self.probe.found = saved
            return _NOTHING
        return saved.given()

    def ended(self, module: int, output: object) -> None:
        """A module of interest has returned. Nothing that goes wrong here reaches the model."""
        if self.differs or module not in self.program.modules:
            return
        sequence, at = self.program.sequence, self.at
        if at >= len(sequence) or sequence[at][0] != module:
            self.differs = "the order of modules"
            return
        self.at += 1
        self._take_all(sequence[at][1], output)

    def finish(self, output: object) -> bool:
        """Ends the pass; whether it went as the program says."""
        if self.at != len(self.program.sequence):
            self.differs = self.differs or "the number of modules"
        if not self.differs:
            self._take_all(self.program.last, output, final=True)
        if self.recorder is not None and not self.differs:
            self._compile()
        self.recorder = None
        self.nodes.clear()
        if "builder" in self.__dict__:
            self.builder.forget()
        self._next = self._last = None
        if self.watch is not None:
            self.watch.end()
        self.records.clear()
        self.pending.clear()
        return not self.differs

    def _compile(self) -> None:
        """For the passes that follow."""
        assert self.recorder is not None
        try:
            self.program.native = self.recorder.compiled(self)
        except Unknown as unknown:
            _log.debug("passes stay in Python: C++ does not know %s", unknown)
            self.program.tries = MOST_TRIES
        except Exception as error:
            self.owner.note(error)
            self.program.tries = MOST_TRIES

    def _take_all(self, targets: list[Target], output: object, final: bool = False) -> None:
        try:
            for target in targets:
                self._take(target, output)
            if self.pending:
                self._settle(final)
        except _Differs as difference:
            self.differs = str(difference)
        except Exception as error:
            self.owner.note(error)
            self.differs = "an error"

    def _take(self, target: Target, output: object) -> None:
        found = [output] if type(output) is Tensor else leaves(output)
        x = found[target.output] if target.output < len(found) else None
        if not isinstance(x, Tensor):  # another branch of forward, or an exception
            raise _Differs("no such output")
        node = x.grad_fn
        for step in target.path:
            edges = node.next_functions if node is not None else ()
            if step >= len(edges):
                raise _Differs(f"no {target.kind}")
            node = edges[step][0]
        if kind(node) != target.kind:
            raise _Differs(f"{kind(node)} instead of {target.kind}")
        self.nodes[target.key] = node
        if target.slots:
            for slot in target.slots:
                self._hook(node, slot)
            if target.rule is not None:
                target.rule(node, self.probe)
            if self.may_change_sums(target):
                self._hook_sums(node)

    def may_change_sums(self, target: Target) -> bool:
        """Whether q and k of attention may be other values in backward."""
        if target.kind not in attention.KINDS:
            return False
        slots = [s for s in target.slots if s.role in attention.NAMES[:2]]
        groups = [self.program.groups[s.group] for s in slots]
        return self.program.is_lossy and any(
            g.codec != offload.CPU and (g.codec or g.recomputation) is not None for g in groups
        )

    def _hook_sums(self, node: Node) -> None:
        """Of attention: they follow from what is decoded."""
        sums, name = attention.sums_of(node, self.builder._saved), attention.sums_name(node)
        if sums is None or not name:
            raise _Differs(f"what {kind(node)} saved")
        x = getattr(node, f"_saved_{name}")
        kept = Kept(x.detach(), x._version, (kind(node), 1))
        kept.again = sums
        getattr(node, f"_raw_saved_{name}").register_hooks(lambda _: kept, self._unpack)
        if attention.drops(node):
            return
        output = self.probe.any(node, "_saved_output")
        if output is None:
            x = node._saved_output
            output = Kept(x.detach(), x._version, (kind(node), 0))
            node._raw_saved_output.register_hooks(lambda _: output, self._unpack)
        output.again = attention.Output(sums)

    def _hook(self, node: Node, slot: Slot) -> None:
        try:
            x = getattr(node, slot.saved)
        except RuntimeError:  # changed in place: autograd will say so in backward
            raise _Differs(f"{slot.role} of {kind(node)} was changed") from None
        if not slot.fits(x):
            raise _Differs(f"the sizes of {slot.role} of {kind(node)}")
        group = self.program.groups[slot.group]
        record, stream, storage = self.records[slot.group], stream_of(x.device), storage_key(x)
        if record is None:
            record = Record(x.untyped_storage().nbytes(), stream, storage)
            self.records[slot.group] = record
        expected = self.stream if group.stream is None else group.stream
        if storage != record.key or stream != expected:
            raise _Differs(f"the storage or stream of {slot.role} of {kind(node)}")
        if slot.like.op == "PowBackward0" and node._saved_exponent != 2 and slot.like.grade:
            raise _Differs("the exponent of a power")
        if slot.like.is_copy and x.grad_fn._sequence_nr() != node._sequence_nr() + 1:
            raise _Differs(f"{slot.role} of {kind(node)} is no copy")
        self._next = (record, slot.like)
        getattr(node, slot.raw).register_hooks(self._pack, self._unpack)
        handle = self._last
        assert handle is not None
        made = producer(x)
        if made is not None:
            like = slot.like
            if like.is_direct != (made[0] is x.grad_fn) or like.is_reshaped != is_reshaped(x):
                raise _Differs(f"the views of {slot.role} of {kind(node)}")
            handle.maker = (made[0]._sequence_nr(), made[1])
        record.handles.append(weakref.ref(handle))
        self.hooked += 1
        if self.recorder is not None:
            self.recorder.hooked(slot)
        if len(record.handles) == group.count:
            self.pending.append(slot.group)

    def _settle(self, final: bool) -> None:
        """Stores what nobody else holds any more."""
        self.pending = [number for number in self.pending if not self._is_done(number, final)]

    def _is_done(self, number: int, final: bool) -> bool:
        group = self.program.groups[number]
        self.looks[number] += 1
        if self.looks[number] < group.first and not final:
            return False
        record = self.records[number]
        assert record is not None
        handles = record.live()
        if len(handles) != len(record.handles):
            return True  # a part of the graph is gone
        if not record.is_ours(handles) or record.stream != stream_of(handles[0].device):
            return False
        form: Form | None
        if not all(h.is_unchanged() for h in handles):
            return True
        group.first = self.looks[number]
        if group.codec is not None:
            forms = self._lossy(record, handles, group)
        elif group.recomputation is None:
            with torch.no_grad():
                forms = store.forms_of(record, handles)
        else:
            try:
                form = self._recomputed(number, record, handles)
            except _Missing:
                return False
            if form is None:
                forms = None
            elif self.watch is not None:
                forms = store.spread(form, handles)
            else:
                forms = [form] * len(handles)
        if forms is not None:
            if self.recorder is not None:
                self.recorder.stored(number, record, handles, forms)
            self.stored += len(handles)
            for handle, form in zip(handles, forms, strict=True):
                handle.store(form)
        return True

    def _lossy(self, record: Record, handles: list[Handle], group: Group) -> list[Form] | None:
        assert self.watch is not None and group.codec is not None
        if self.watch.is_kept(handles):
            return None
        seed = self.watch.seed(group.tensor)
        forms: list[Form] | None
        if group.is_row and all(h.need == "value" for h in handles):
            # All else that forms_of asks for has been checked with the slots.
            forms = [lossy.row(record, handles, group.codec, seed)] * len(handles)
        else:
            with torch.no_grad():
                forms = lossy.forms_of(record, handles, group.codec, seed)
            group.is_row = forms is not None and lossy.is_row(forms)
        return forms if forms is not None and self.watch.may_store(forms, handles) else None

    def _recomputed(self, number: int, record: Record, handles: list[Handle]) -> Form | None:
        how = self.program.groups[number].recomputation
        assert how is not None
        node = self.nodes.get(how.node)
        if node is None:
            raise _Missing
        if record.pinned or not store.is_as_made(handles, node, self.builder):
            return None
        if not any(h.maker == (node._sequence_nr(), 0) for h in handles):
            self.differs = f"what {kind(node)} made"
            return None
        recipe = self.builder.replay(node, how)
        if recipe is None or recipe.signature() != how.signature:
            self.differs = f"how the output of {kind(node)} is made"
            return None
        for source in recipe.sources():
            if source.record.stream != record.stream:
                return None
            source.record.pinned = source.is_source = True
        if self.recorder is not None:
            self.recorder.described(number, Describer(self), node, how)
        return Recomputed(recipe, how.template)


class _Replay(Builder):
    """Builds recipes again: `_input` finds what it found in the pass that was surveyed."""

    def __init__(self, run: Steady) -> None:
        super().__init__(run.probe, {}, run.owner.norms(), (), is_lossy=run.program.is_lossy)
        self.nodes = run.nodes
        self._left: list[tuple[int, str, bool, bool] | None] = []
        self._parameters = run.program.parameters
        self._copies: dict[int, tuple[Tensor, int, int, Tensor]] = {}

    def forget(self) -> None:
        self._copies = {}

    def copied(self, tensor: Tensor) -> Tensor:
        """Of all parameters at once: a call for each would take longer than the copies."""
        if not self._copies:
            alive = [p for ref in list(self._parameters.values()) if (p := ref()) is not None]
            with torch.no_grad():
                copies = torch._foreach_mul(alive, 1) if alive else []
            self._copies = {
                id(p): (p, p._version, p.data_ptr(), copy)
                for p, copy in zip(alive, copies, strict=True)
            }
        original, version, address, copy = self._copies.get(id(tensor), (None, 0, 0, tensor))
        if original is tensor and (version, address) == (tensor._version, tensor.data_ptr()):
            return copy
        key = id(tensor)
        forget = self._parameters.pop
        self._parameters[key] = weakref.ref(tensor, lambda _: forget(key, None))
        return super().copied(tensor)

    def replay(self, node: Node, how: Recomputation) -> Recipe | None:
        self.fast, self._left = how.fast, list(reversed(how.found))
        recipe = self._first(node)
        return None if recipe is None else self.settled(recipe)

    def _first(self, node: Node) -> Recipe | None:
        if kind(node) in products.KINDS:
            return products.recipe(self, node)
        return self._build(node, 1 << 20)

    def _saved(self, node: Node, attribute: str, made_again: bool = False) -> Handle | Kept | None:
        """A tensor that autograd holds for itself, unless it was taken."""
        found, x = self._read(node, attribute)
        if found is None:
            if x is None or x.grad_fn is None:
                return None if x is None else Kept(x, x._version, None)
            return Kept(x.detach(), x._version, (kind(x.grad_fn), x.output_nr))
        return found if is_whole(found, made_again) else None

    def _read(self, node: Node, attribute: str) -> tuple[Handle | None, Tensor | None]:
        """The handle of a tensor that was taken, or the tensor."""
        self.probe.found, self.probe.asking = None, True
        try:
            x = getattr(node, attribute)
        except (AttributeError, RuntimeError):  # not of this torch; changed in place
            return None, None
        finally:
            self.probe.asking = False
        found, self.probe.found = self.probe.found, None
        if isinstance(found, Handle):
            return found, None
        return None, x if isinstance(x, Tensor) else None

    def _input(self, node: Node, argument: int, left: int) -> Recipe | Handle | Kept | None:
        edges = node.next_functions
        if argument >= len(edges) or edges[argument][0] is None or not self._left:
            return None
        source, output = edges[argument]
        entry = self._left.pop()
        if entry is None:
            return self._build(source, left - 1) if output == 0 else None
        key, role, is_output, is_recipe = entry
        saver = self.nodes.get(key)
        if saver is None:
            raise _Missing
        handle, x = self._read(saver, f"_saved_{role}")
        if handle is not None:
            if handle.maker != (source._sequence_nr(), output) or not is_as_made(handle):
                return None
            if handle.form is None:
                if is_recipe:
                    raise _Missing
                return handle
            if isinstance(handle.form, Lossy):
                return None if is_recipe else handle
            if not isinstance(handle.form, Recomputed):
                return None
            return handle if handle.form.whole and not is_recipe else handle.form.recipe
        if x is None or is_recipe or x.grad_fn is None or x.output_nr != output:
            return None
        if x.grad_fn._sequence_nr() != source._sequence_nr() or (x._version and not is_output):
            return None
        return Kept(x.detach(), x._version, (kind(source), output))


class Describer(_Replay):
    """Builds a recipe once more, of the places where its arguments were found."""

    def __init__(self, run: Steady) -> None:
        super().__init__(run)
        self.modules = run.builder.modules

    def replay(self, node: Node, how: Recomputation) -> Recipe | None:
        self.fast, self._left = how.fast, list(reversed(how.found))
        recipe = self._first(node)
        if recipe is not None:
            recipe.node = node
        return recipe

    def _build(self, node: Node, left: int) -> Recipe | None:
        recipe = super()._build(node, left)
        if recipe is not None:
            recipe.node = node
        return recipe

    def _saved(self, node: Node, attribute: str, made_again: bool = False) -> Place | None:
        found = super()._saved(node, attribute, made_again)
        return None if found is None else Place(found, "saved", attribute.removeprefix("_saved_"))

    def _input(self, node: Node, argument: int, left: int) -> Recipe | Place | None:
        entry = self._left[-1] if self._left else None
        found = super()._input(node, argument, left)
        if found is None:
            return None
        if entry is None:
            found.place = argument
            return found
        key, role, is_output, is_recipe = entry
        leaf = None if is_recipe else found
        return Place(leaf, "nested" if is_recipe else "input", argument, key, role, is_output)
