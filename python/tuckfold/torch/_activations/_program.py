"""What later passes of a model repeat: which saved tensors to take, where they are, and what to do.

A pass is surveyed once. Each node that matters is then found again by its path from the output of a
module, so that the passes that follow need no hook for any other tensor.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tuckfold.torch._activations._graph import Prober, kind
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._recipe import PRODUCTS, Recipe, Recomputed, Way
from tuckfold.torch._activations._rules import RULES
from tuckfold.torch._activations._saved import Form, Handle, Record

_MOST_DELAY = 0.04  # of all saved bytes that may be held longer than by hooks for every tensor
_MOST_GATHERED = 0.01  # of all stored bytes that may wait, so that fewer modules are listened to
_ALIVE = 3  # storages of the largest size that a module has while it runs, beside what is saved
_MOST_LOST = 0.02  # of all freed bytes that may be kept instead
Node = Any


@dataclass
class Slot:
    """A saved tensor that is taken: an attribute of a node."""

    role: str
    group: int
    like: Handle  # without its tensor

    def __post_init__(self) -> None:
        self.saved, self.raw = f"_saved_{self.role}", f"_raw_saved_{self.role}"

    def fits(self, x: object) -> bool:
        like = self.like
        return (
            type(x) is Tensor
            and x.shape == like.shape
            and x.dtype == like.dtype
            and x.stride() == like.strides
            and x.storage_offset() == like.offset
            and x.device == like.device
        )


@dataclass
class Target:
    """A node, as the path from an output of the module that has just ended."""

    key: int
    output: int
    path: tuple[int, ...]
    kind: str
    slots: list[Slot] = field(default_factory=list)
    rule: Callable[..., None] | None = None  # where something is stored as less than its values


@dataclass
class Recomputation:
    """How the recipe of a group was built: by which node, and what `Builder._input` found."""

    node: int
    fast: Way
    # The saver's key and role, whether it is the saver's output, and whether its recipe was taken; None:
    # the recipe went on from there.
    found: list[tuple[int, str, bool, bool] | None]
    signature: tuple[object, ...]
    template: Recipe


@dataclass
class Group:
    """A storage, with all tensors that look into it."""

    count: int
    stream: int | None  # None: the one that the pass began in, whichever that is
    recomputation: Recomputation | None
    codec: str | None = None  # that may change the values
    tensor: int = 0  # its number in a pass that is watched, for the seed
    # Ends of modules, since its last tensor was taken, until nobody else held it in an earlier pass.
    first: int = 0
    is_row: bool = (
        False  # whether the codec gets the storage as a row, and all views read what it makes
    )


@dataclass
class Program:
    """What a pass does at the end of each module of interest, in the order of their ends."""

    sequence: list[tuple[int, list[Target]]]  # the module, by its number
    last: list[Target]  # at the end of the pass
    groups: list[Group]
    is_lossy: bool = False
    native: Any = None  # the same in C++, once a pass was recorded
    tries: int = 0  # to record one

    def __post_init__(self) -> None:
        self.modules = {module for module, _ in self.sequence}
        self.parameters: dict[int, weakref.ref[Tensor]] = {}  # of recipes, by identity
        for t in (*self.last, *(t for _, targets in self.sequence for t in targets)):
            if any(self._is_less(self.groups[slot.group]) for slot in t.slots):
                t.rule = RULES.get(t.kind)

    def _is_less(self, group: Group) -> bool:
        return group.recomputation is None or self.is_lossy


@dataclass
class _Stored:
    record: Record
    handles: list[Handle]
    freed: int
    at: int  # ends of modules before it
    node: int  # that is run again
    fast: Way
    found: list[tuple[Handle, bool] | None]
    signature: tuple[object, ...] | None
    template: Recipe | None
    codec: str | None


class Survey:
    """Listens to one pass that has hooks for every tensor."""

    def __init__(
        self, first: int, stream: int, is_lossy: bool = False, parents: dict[int, int] | None = None
    ) -> None:
        self.first, self.stream, self.is_lossy = first, stream, is_lossy
        self.parents = parents or {}  # of modules, by their numbers
        self.outputs: list[list[Node]] = []  # the nodes that made them, at each end
        self.ends: list[int] = []
        self.places: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        self.nodes: dict[int, Node] = {}
        self.all: list[_Stored] = []
        self.bytes = 0  # of all saved storages
        self._largest = 0
        self._sizes: list[tuple[int, int]] = []  # both, at the end of each module
        self._roles: dict[int, tuple[int, str]] = {}

    def ended(self, module: int, output: object) -> None:
        """Finds the nodes that a module made: breadth first, so that paths are short."""
        end = len(self.ends)
        self.ends.append(module)
        self._sizes.append((self.bytes, self._largest))
        self.outputs.append([getattr(x, "grad_fn", None) for x in leaves(output)])
        for number, made in enumerate(self.outputs[-1]):
            queue = [(made, ())] if made is not None else []
            while queue:
                node, path = queue.pop(0)
                key = node._sequence_nr()
                if key in self.nodes or key < self.first or kind(node) == "AccumulateGrad":
                    continue
                self.nodes[key], self.places[key] = node, (end, number, path)
                for i, edge in enumerate(node.next_functions):
                    if edge[0] is not None:
                        queue.append((edge[0], (*path, i)))

    def saved(self, nbytes: int) -> None:
        self.bytes += nbytes
        self._largest = max(self._largest, nbytes)

    def stored(
        self, record: Record, handles: list[Handle], forms: list[Form], node: Node, builder: Any
    ) -> None:
        recipe = next((f.recipe for f in forms if isinstance(f, Recomputed)), None)
        codec = next((f.label for f in forms if isinstance(f, Lossy)), None)
        freed = record.nbytes - sum(f.nbytes for f in {id(f): f for f in forms}.values())
        self.all.append(
            _Stored(
                record,
                handles,
                freed,
                len(self.ends),
                node._sequence_nr() if recipe is not None else -1,
                builder.fast,
                list(builder.found) if recipe is not None else [],
                recipe.signature() if recipe is not None else None,
                recipe.template() if recipe is not None else None,
                codec,
            )
        )

    def _entry(self, handle: Handle, is_recipe: bool) -> tuple[int, str, bool, bool]:
        """Where a later pass finds it. What stays as it is, is found with the node that made it, which
        tells whether its values are still those, also where they were made in place."""
        if handle.form is None and not handle.is_output:
            like = (handle.version, handle.shape, handle.strides, handle.offset)
            for other in handle.record.live():
                is_like = like == (other.version, other.shape, other.strides, other.offset)
                if other.is_output and is_like and id(other) in self._roles:
                    handle = other
                    break
        return (*self._roles[id(handle)], handle.is_output, is_recipe)

    def program(self, probe: Prober, total: int) -> Program | None:
        """Of the pass that has ended, or None if it would hold much more than hooks do.

        total: bytes of all tensors that were saved.
        """
        self._find_roles(probe)
        usable = [s for s in self.all if self._is_found(s)]
        if sum(s.freed for s in self.all) > (1 + _MOST_LOST) * sum(s.freed for s in usable):
            return None
        if self._delay(usable) > _MOST_DELAY * total:
            return None
        targets: dict[int, Target] = {}

        def target(key: int) -> Target:
            if key not in targets:
                _, output, path = self.places[key]
                targets[key] = Target(key, output, path, kind(self.nodes[key]))
            return targets[key]

        groups = []
        for s in usable:
            recomputation = None
            if s.signature is not None:
                target(s.node)
                found = [None if f is None else self._entry(*f) for f in s.found]
                for entry in found:
                    if entry is not None:
                        target(entry[0])
                assert s.template is not None
                recomputation = Recomputation(s.node, s.fast, found, s.signature, s.template)
            for h in s.handles:
                key, role = self._roles[id(h)]
                target(key).slots.append(Slot(role, len(groups), h.shell()))
            stream = None if s.record.stream == self.stream else s.record.stream
            groups.append(
                Group(len(s.handles), stream, recomputation, s.codec, s.handles[0].number)
            )
        # What a product reads is stored before it, or never: it would find that later at other ends.
        if not any(s.template is not None and s.template.op[:1] in PRODUCTS for s in usable):
            self._gather(targets, usable)
        return self._arranged(targets, groups)

    def _gather(self, targets: dict[int, Target], usable: list[_Stored]) -> None:
        """Takes nodes at the end of a module instead of those inside of it, where little waits for that: every end
        of a module that is listened to takes some microseconds."""
        by_end: dict[int, list[int]] = {}
        for key in targets:
            by_end.setdefault(self.places[key][0], []).append(key)
        stored = self.bytes - sum(s.freed for s in usable)
        most = max(self._delay(usable), int(_MOST_GATHERED * stored))
        called, before = set(self.ends), {}
        parents = {module: self._called_parent(module, called) for module in called}
        for end, module in enumerate(self.ends):
            start, before[module] = before.get(module, -1), end
            inner = [
                e for e in range(start + 1, end)
                if e in by_end and parents[self.ends[e]] == module
            ]  # fmt: skip
            keys = [key for e in inner for key in by_end[e]]
            paths = self._paths(end, set(keys)) if keys else None
            if paths is None:
                continue
            places = {key: self.places[key] for key in keys}
            self.places |= {key: (end, *path) for key, path in paths.items()}
            if self._delay(usable) > most:
                self.places |= places
                continue
            for e in inner:
                by_end.setdefault(end, []).extend(by_end.pop(e))
        for key, target in targets.items():
            _, target.output, target.path = self.places[key]

    def _called_parent(self, module: int, called: set[int]) -> int:
        """The next module around one that is called itself; lists of modules are not."""
        parent = self.parents.get(module, -1)
        while parent >= 0 and parent not in called:
            parent = self.parents.get(parent, -1)
        return parent

    def _paths(self, end: int, keys: set[int]) -> dict[int, tuple[int, tuple[int, ...]]] | None:
        """Where nodes are, from the outputs of a module; None where some are not."""
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        first, seen = min(keys), set()
        for number, made in enumerate(self.outputs[end]):
            queue = collections.deque([(made, ())])
            while queue and len(found) < len(keys):
                node, path = queue.popleft()
                key = -1 if node is None else node._sequence_nr()
                # Nodes before the first one were made before it.
                if key < first or key in seen or kind(node) == "AccumulateGrad":
                    continue
                seen.add(key)
                if key in keys:
                    found[key] = (number, path)
                queue.extend((edge[0], (*path, i)) for i, edge in enumerate(node.next_functions))
        return found if len(found) == len(keys) else None

    def _arranged(self, targets: dict[int, Target], groups: list[Group]) -> Program:
        by_end: dict[int, list[Target]] = {}
        for key, t in targets.items():
            by_end.setdefault(self.places[key][0], []).append(t)
        last = by_end.pop(len(self.ends) - 1, [])  # of the model itself
        modules = {self.ends[end] for end in by_end}
        sequence = [
            (module, by_end.get(end, []))
            for end, module in enumerate(self.ends[:-1])
            if module in modules
        ]
        return Program(sequence, last, groups, self.is_lossy)

    def _find_roles(self, probe: Prober) -> None:
        """Which attribute of which node each handle is."""
        wanted = {h.saver for s in self.all for h in s.handles}
        read = [f[0] for s in self.all for f in s.found if f is not None]
        wanted |= {h.saver for one in read for h in (one, *one.record.live())}
        for key in wanted & set(self.nodes):
            node = self.nodes[key]
            for name in dir(node):
                if name.startswith("_raw_saved_"):
                    role = name.removeprefix("_raw_saved_")
                    handle = probe.one(node, f"_saved_{role}")
                    if handle is not None:
                        self._roles[id(handle)] = (key, role)

    def _is_found(self, s: _Stored) -> bool:
        if s.signature is not None and s.node not in self.places:
            return False
        sources = [f[0] for f in s.found if f is not None]
        return all(id(h) in self._roles for h in (*s.handles, *sources))

    def _delay(self, usable: list[_Stored]) -> int:
        """The most bytes that wait, at any end of a module, for the end of a later one.

        Early in a pass little is stored yet: what waits there cannot make the pass hold more than at its
        end, where the peak is, and does not count.
        """
        change, freed = [0] * (len(self.ends) + 2), [0] * (len(self.ends) + 2)
        for s in usable:
            freed[s.at] += s.freed
            keys = [self._roles[id(h)][0] for h in s.handles]
            known = 1 + max(self.places[k][0] for k in (*keys, s.node) if k in self.places)
            if known > s.at:
                change[s.at] += s.freed
                change[known] -= s.freed
        at_the_end = self.bytes - sum(freed)
        waiting = most = gone = 0
        for end, (held, largest) in enumerate(self._sizes):
            waiting, gone = waiting + change[end], gone + freed[end]
            if held - gone + waiting + _ALIVE * largest > at_the_end:
                most = max(most, waiting)
        return most


def leaves(output: object) -> list[Any]:
    return [output] if isinstance(output, Tensor) else torch.utils._pytree.tree_leaves(output)
