"""The forward and the backward graph of a compiled model, and what one saves for the other.

A partitioner of torch made the two. Here the saved values are exchanged: a value is dropped and made
again in backward, or stored in another form. Nodes that are added run as late as their users allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

# Views that hold every value of what they look at, in another shape or order.
_RESHAPES = {
    torch.ops.aten.view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.squeeze.default,
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze.dims,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.detach.default,
}
_PERMUTE = torch.ops.aten.permute.default
_VIEWS = _RESHAPES | {
    _PERMUTE,
    torch.ops.aten.transpose.int,
    torch.ops.aten.t.default,
    torch.ops.aten.expand.default,
    torch.ops.aten.select.int,
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.split_with_sizes.default,
    torch.ops.aten.split.Tensor,
    torch.ops.aten.unbind.int,
}


def value_of(node: fx.Node) -> Tensor | None:
    """The fake tensor that stands for a node; None for numbers, tuples and subclasses."""
    value = node.meta.get("val")
    return value if type(value) is FakeTensor else None


def is_static(value: Tensor) -> bool:
    """Whether all of its sizes are known when the graph is compiled."""
    return all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def bytes_of(node: fx.Node) -> int:
    """Of its values; where sizes are open, of those that the graph was compiled with."""
    value = value_of(node)
    if value is None:
        return 0
    sizes = [n if isinstance(n, int) else n.node.hint for n in value.shape]
    return 0 if None in sizes else math.prod(sizes) * value.element_size()


def is_view(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target.__name__ == "getitem":
        return is_view(node.args[0])
    return node.target in _VIEWS


def base_of(node: fx.Node) -> fx.Node:
    """What a view looks at."""
    while is_view(node):
        node = node.args[0]
    return node


def call(
    graph: fx.Graph, mode: FakeTensorMode, target: Any, *arguments: Any, **names: Any
) -> fx.Node:
    """Adds a call with the fake value that torch's compilers ask a node for."""
    node = graph.call_function(target, arguments, names)
    values, named = fx.map_arg((arguments, names), lambda n: n.meta["val"])
    with mode:
        node.meta["val"] = target(*values, **named)
    return node


class Split:
    """Both graphs and the list of what is saved.

    Args:
        forward, backward: as a partitioner of torch returns them.
        outputs: how many values forward returns before those that it saves.
    """

    def __init__(self, forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> None:
        self.forward, self.backward, self.outputs = forward, backward, outputs
        results = next(iter(forward.graph.find_nodes(op="output"))).args[0]
        saved = [n for n in results[outputs:] if isinstance(n, fx.Node)]
        tensors = [n for n in saved if isinstance(n.meta.get("val"), Tensor)]
        others = len(saved) - len(tensors)  # symbols, which backward takes first
        places = backward.graph.find_nodes(op="placeholder")
        symbols = [n for n in saved if isinstance(n.meta.get("val"), torch.SymInt)]
        self.saved: dict[fx.Node, fx.Node] = dict(
            zip(tensors, places[len(symbols) :][: len(tensors)], strict=True)
        )
        self._rest = [n for n in saved if n not in self.saved]
        # Anything else, such as opaque objects, is left to torch.
        self.is_plain = (
            len(tensors) > 0
            and others == len(symbols)
            and len(results) == outputs + len(saved)
            and all(value_of(n) is not None for n in tensors)
        )
        # What backward can take from forward beside tensors, by its node there.
        self.symbols = dict(zip(symbols, places[: len(symbols)], strict=True))
        self._sizes: dict[fx.Node, fx.Node] = {}  # that follow from these, in backward
        self.returned = {base_of(n) for n in results[:outputs] if isinstance(n, fx.Node)}
        self.mutated = _mutated(forward.graph, outputs)
        self._added: list[fx.Node] = []  # to backward
        self.settled: list[
            fx.Node
        ] = []  # of these, those that must be in memory before they are read
        self.mode = next(
            (n.meta["val"].fake_mode for n in tensors if value_of(n) is not None), None
        )
        self._first = next(n for n in backward.graph.nodes if n.op != "placeholder")

    # ---- forward

    def after_uses(self, node: fx.Node) -> fx.Node:
        """The place in forward where a value is read for the last time; what is put there follows it."""
        users = set(users_of(node)) | {node}
        last = node
        for candidate in self.forward.graph.nodes:
            if candidate in users and candidate.op != "output":
                last = candidate
        return last

    def settle_in_forward(self, node: fx.Node) -> None:
        """Has forward write it to memory before it is read."""
        with self.forward.graph.inserting_after(node):
            call(self.forward.graph, self.mode, torch.ops.tuckfold.settle_.default, node)

    # ---- backward

    def add(self, target: Any, *arguments: Any, **names: Any) -> fx.Node:
        """A call in backward."""
        with self.backward.graph.inserting_before(self._first):
            node = call(self.backward.graph, self.mode, target, *arguments, **names)
        self._added.append(node)
        return node

    def copy(self, node: fx.Node, of: Callable[[fx.Node], fx.Node]) -> fx.Node:
        """A node of forward once more in backward."""
        with self.backward.graph.inserting_before(self._first):
            new = self.backward.graph.node_copy(node, of)
        self._added.append(new)
        return new

    def has_symbol(self, node: fx.Node) -> bool:
        """Whether a size follows from those that backward has."""
        if node in self.symbols:
            return True
        is_size = isinstance(node.meta.get("val"), torch.SymInt) and node.op == "call_function"
        return is_size and all(map(self.has_symbol, node.all_input_nodes))

    def symbol(self, node: fx.Node) -> fx.Node:
        """Such a size in backward."""
        if node in self.symbols:
            return self.symbols[node]
        if node not in self._sizes:
            self._sizes[node] = self.copy(node, self.symbol)
        return self._sizes[node]

    def place(self, node: fx.Node) -> fx.Node:
        """Where backward gets a value of forward; it is saved from now on."""
        if node in self.symbols:
            return self.symbols[node]
        if node not in self.saved:
            # Values whose version autograd does not check come last.
            before = [n for n in self.saved if n.meta.get("saved_tensor_with_no_vc_check")]
            following = self.saved[before[0]] if before else self._after_saved()
            with self.backward.graph.inserting_before(following):
                place = self.backward.graph.placeholder(node.name)
            place.meta = {k: v for k, v in node.meta.items() if k in ("val", "tensor_meta", "desc")}
            self.saved[node] = place
            for late in before:
                self.saved[late] = self.saved.pop(late)
        return self.saved[node]

    def place_apart(self, node: fx.Node) -> fx.Node:
        """The same of a small value whose first axis is 1, as a kernel of its own makes it: with two copies it has another number
        of elements than what it follows from, so that a compiler does not put both into one kernel."""
        value = value_of(node)
        assert value is not None
        graph, aten = self.forward.graph, torch.ops.aten
        with graph.inserting_after(node):
            wide = call(graph, self.mode, aten.expand.default, node, [2, *value.shape[1:]])
        with graph.inserting_after(wide):
            twice = call(
                graph, self.mode, aten.clone.default, wide, memory_format=torch.contiguous_format
            )
        return self.add(aten.slice.Tensor, self.place(twice), 0, 0, 1)

    def _after_saved(self) -> fx.Node:
        if self.saved:
            return list(self.saved.values())[-1].next
        if self.symbols:
            return list(self.symbols.values())[-1].next
        return next(iter(self.backward.graph.nodes))

    def exchange(self, node: fx.Node, new: fx.Node) -> None:
        """Backward reads new instead of the saved value, which is no longer saved."""
        self.saved[node].replace_all_uses_with(new)
        self.drop(node)

    def drop(self, node: fx.Node) -> None:
        """It is saved no longer; backward has no use of it."""
        self.backward.graph.erase_node(self.saved.pop(node))

    def finish(self) -> None:
        """Writes the lists into the graphs, and moves what was added to where it is used."""
        output = next(iter(self.forward.graph.find_nodes(op="output")))
        results = [*output.args[0][: self.outputs], *self.saved, *self._rest]
        output.args = (type(output.args[0])(results),)
        if isinstance(described := output.meta.get("desc"), list):
            output.meta["desc"] = described[: self.outputs] + _descriptions(self.saved, self._rest)
        self._sink()
        for node in self.settled:
            if node.users:
                with self.backward.graph.inserting_after(node):
                    call(self.backward.graph, self.mode, torch.ops.tuckfold.settle_.default, node)
        for module in (self.forward, self.backward):
            module.graph.eliminate_dead_code()
            module.graph.lint()
            module.recompile()

    def _sink(self) -> None:
        """Moves what was added to where it is read first: users before what they use."""
        added = set(self._added)
        left = {node: sum(user in added for user in node.users) for node in self._added}
        ready = [node for node in reversed(self._added) if left[node] == 0]
        while ready:
            node = ready.pop()
            inputs = [n for n in node.all_input_nodes if n in added]
            if node.users:
                min(node.users).prepend(node)  # nodes compare by their places
            else:
                self.backward.graph.erase_node(node)
            for source in inputs:
                left[source] -= 1
                if left[source] == 0:
                    ready.append(source)


def _descriptions(saved: dict[fx.Node, fx.Node], rest: list[fx.Node]) -> list[Any]:
    from torch._functorch._aot_autograd import descriptors as of

    checked = of.SavedForBackwardsAOTOutput
    # Before 2.11 torch checks all versions.
    unchecked = getattr(of, "SavedForBackwardsNoVcCheckAOTOutput", checked)
    return [
        (unchecked if n.meta.get("saved_tensor_with_no_vc_check") else checked)(i)
        for i, n in enumerate([*saved, *rest])
    ]


def _mutated(graph: fx.Graph, outputs: int) -> set[fx.Node]:
    """Inputs that forward changes: their values are other ones in backward."""
    found = {
        n.args[0]
        for n in graph.nodes
        if n.op == "call_function" and getattr(n.target, "_schema", None) is not None
        and n.target._schema.is_mutable and n.args
    }  # fmt: skip
    output = next(iter(graph.find_nodes(op="output")))
    by_description = {n.meta.get("desc"): n for n in graph.find_nodes(op="placeholder")}
    for description in (output.meta.get("desc") or [])[:outputs]:
        changed = getattr(description, "mutated_input", None)
        if changed is not None and changed in by_description:
            found.add(by_description[changed])
    return found


def users_of(node: fx.Node) -> Iterator[fx.Node]:
    """What reads it, also through views, which are among them."""
    for user in node.users:
        yield user
        if is_view(user):
            yield from users_of(user)


def views_between(view: fx.Node, base: fx.Node) -> list[fx.Node]:
    """From base to view, base left out."""
    found = []
    while view is not base:
        found.append(view)
        view = view.args[0]
    return found[::-1]


def can_undo(view: fx.Node, base: fx.Node) -> bool:
    """Whether a view holds every value of its base."""
    return all(
        n.target is _PERMUTE or (n.target in _RESHAPES and is_static(value_of(n.args[0])))
        for n in views_between(view, base)
    )


def undo(split: Split, place: fx.Node, view: fx.Node, base: fx.Node) -> fx.Node:
    """In backward, the base of a saved view."""
    for node in reversed(views_between(view, base)):
        source = node.args[0]
        if node.target is _PERMUTE:
            rank = len(node.args[1])
            back = sorted(range(rank), key=lambda i: node.args[1][i] % rank)
            place = split.add(_PERMUTE, place, back)
        else:
            place = split.add(torch.ops.aten.reshape.default, place, list(value_of(source).shape))
    return place
