"""How each saved value of a compiled graph is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from tuckfold.torch._activations import _split
from tuckfold.torch._activations._affine import Affine
from tuckfold.torch._activations._chains import Chains, is_repeatable, name_of
from tuckfold.torch._activations._graph_reads import Reads, is_gate_of, is_softmax
from tuckfold.torch._activations._graph_sums import make_sums_again
from tuckfold.torch._activations._inside import Inside
from tuckfold.torch._activations._lossy import LATE, for_scores, is_exact, suits_graphs
from tuckfold.torch._activations._packs import Packer
from tuckfold.torch._activations._policy import is_codec
from tuckfold.torch._activations._split import Split, bytes_of, value_of
from tuckfold.torch._activations._trace import Row

_aten = torch.ops.aten
_ABOVE_ZERO = {torch.float16: 2.0**-24}  # for others the smallest normal number


@dataclass(frozen=True)
class Options:
    """What wrap was asked for.

    Args:
        least: bytes; smaller values are kept.
        recompute: whether values may be made again in backward.
        codec: for values that nothing exact fits, or None.
        is_lossy: whether it is given, or rules name codecs.
    """

    least: int
    recompute: bool
    codec: str | None = None
    is_lossy: bool = False


class Choice:
    """Goes through the saved values of two graphs.

    Args:
        split: the graphs, which are changed.
        options: as above.
        fused: whether the compiler fuses operators.
        policy: `keep`, `pack` or `auto` for a value's row.
        model: for the names of its modules.
    """

    def __init__(
        self, split: Split, options: Options, fused: bool, policy: Any, model: nn.Module
    ) -> None:
        self.split, self.options, self.policy, self.model = split, options, policy, model
        self._places = {str(id(module)): name for name, module in model.named_modules()}
        self.chains = Chains(split, fused, options.least, settle=not options.is_lossy)
        self.packer = Packer(split)
        self._inside = Inside(model, split.forward)
        self._gates: set[fx.Node] = set()  # of backward, above 0 where forward's values are
        # Values of a ReLU that are made again: the chain, the bits, and what backward has.
        self._chains_of_gates: list[tuple[fx.Node, list[fx.Node], fx.Node, fx.Node]] = []

    def run(self) -> list[Row]:
        """Rows in the order of forward."""
        rows: dict[fx.Node, Row] = {}
        for base, views in self._bases():
            if base.op == "placeholder" or _is_weight(base):
                continue
            rows[base] = self._row(base, len(rows))
            if self._may_change(base, views):
                self._exactly(base, views, rows[base])
        if self.options.is_lossy:
            late = self._late(rows)
            for base, views in self._bases():
                row = rows.get(base)
                if row is None or row.how != "keep" or self.policy(row) == "keep":
                    continue
                if base in late and self.policy(row) == "auto":
                    continue
                if self._may_change(base, views):
                    self._by_codec(base, views, row)
            self._fuse_gates()
            make_sums_again(self.split)
        self.split.finish()
        return list(rows.values())

    def _late(self, rows: dict[fx.Node, Row]) -> set[fx.Node]:
        """What is saved last, and no codec stores."""
        found, left = set(), sum(row.before for row in rows.values())
        total = left
        for base, row in rows.items():
            value = value_of(base)
            share = LATE.get(value.device.type, 0.0) if value is not None else 0.0
            if left <= share * total:
                found.add(base)
            left -= row.before
        return found

    def _bases(self) -> list[tuple[fx.Node, list[fx.Node]]]:
        """What is saved now, in the order of forward, with the views of it that are saved."""
        found: dict[fx.Node, list[fx.Node]] = {}
        for node in self.split.saved:
            found.setdefault(_split.base_of(node), []).append(node)
        return sorted(found.items())

    def _may_change(self, base: fx.Node, views: list[fx.Node]) -> bool:
        return (
            bytes_of(base) >= self.options.least
            and value_of(base) is not None
            and base not in self.split.returned  # it is alive anyway
            and base not in self.split.mutated
            and not any(n.meta.get("saved_tensor_with_no_vc_check") for n in views)
            and all(self._may_view(base, view) for view in views)
        )

    def _may_view(self, base: fx.Node, view: fx.Node) -> bool:
        """Whether backward can look at what was made as it looks at what is saved: it needs the sizes."""
        between = _split.views_between(view, base)
        return all(
            n is base or n in between or self.split.has_symbol(n)
            for node in between
            for n in node.all_input_nodes
        )

    def _exactly(self, base: fx.Node, views: list[fx.Node], row: Row) -> None:
        """Stores less of it without losing a bit, if there is a way."""
        allowed = self.policy(row)
        if allowed == "keep":
            return
        if self.options.recompute and allowed == "auto":
            chain = self.chains.find(base)
            if chain is not None:
                made = self.chains.replay(base, chain)
                row.how, row.after = "recompute", 0
                if self.options.is_lossy and self._is_gate(base, views):
                    made = self._gated(base, made, row, chain)  # what it is made of will be lossy
                self._exchange(base, views, made)
                return
        if value_of(base).dtype == torch.bool or self._is_gate_alone(base, views):
            stored = self.packer.bits(base)
            if stored is not None:
                packed, made = stored
                row.how, row.after = "1 bit", bytes_of(packed)
                is_mask = value_of(base).dtype == torch.bool
                self.chains.stored(base, made if is_mask else None)
                if not is_mask:
                    made = self._where(made, 0.0, 1.0, value_of(base).dtype)
                self._exchange(base, views, made)

    # ---- by a codec

    def _by_codec(self, base: fx.Node, views: list[fx.Node], row: Row) -> None:
        if not self._inside.reads(self.split.saved[v] for v in views):
            return
        store = self.policy(row)
        codec = store if is_codec(store) else self.options.codec
        usable = codec is not None and suits_graphs(codec)
        reads = Reads(self.split, [self.split.saved[v] for v in views], self._gates)
        spec = self._codec_for(base, views, codec, reads) if usable else None
        stored = self.packer.codec(base, spec) if spec is not None else None
        if stored is None:
            return
        packed, made = stored
        row.how, row.after = spec, bytes_of(packed)
        if reads.is_gate or name_of(base) == "relu":
            made = self._gated(base, made, row)
        self._exchange(base, views, made)

    def _codec_for(
        self, base: fx.Node, views: list[fx.Node], codec: str, reads: Reads
    ) -> str | None:
        if not value_of(base).dtype.is_floating_point or _is_statistic(base):
            return None
        for view in views:
            for user in self.split.saved[view].users:
                names = _arguments(user, self.split.saved[view])
                # Backward takes exponentials of scores that it computes from these.
                if "backward" in name_of(user) and names & {"query", "key"}:
                    return for_scores(codec)
        if not reads.is_smooth and not is_exact(codec):
            return None
        return for_scores(codec) if reads.is_score or is_softmax(base) else codec

    def _gated(
        self, base: fx.Node, made: fx.Node, row: Row, chain: list[fx.Node] | None = None
    ) -> fx.Node:
        """Values that are lossy, and above 0 where they were and nowhere else."""
        bits = self.packer.positive(base)
        if bits is None:
            return made
        row.after += bytes_of(bits)
        row.how += ", 1 bit"
        is_relu = name_of(base) == "relu"
        if chain is None and is_relu and (fused := self.packer.gated(base, bits)) is not None:
            self._gates.add(fused)
            return fused
        mask = self.packer.mask_of(bits, base)
        dtype = value_of(base).dtype
        least = _ABOVE_ZERO.get(dtype, torch.finfo(dtype).tiny)
        below: float | fx.Node = 0.0  # a ReLU's
        if not is_relu:
            below = self.split.add(_aten.clamp_max.default, made, 0)
        made = self.split.add(_aten.clamp_min.default, made, least)
        made = self._where(mask, below, made, dtype)
        self._gates.add(made)
        if chain is not None:
            self._chains_of_gates.append((base, chain, bits, made))
        return made

    def _fuse_gates(self) -> None:
        """Has one kernel unpack what a normalization read, and make what the ReLU after it made."""
        for base, chain, bits, made in self._chains_of_gates:
            sources = {n for node in chain for n in node.all_input_nodes} & set(self.packer.packed)
            if len(sources) != 1:
                continue
            source = sources.pop()
            like, of = value_of(base), value_of(source)
            affine = Affine(self.split, self.chains, source)
            is_alike = (like.dtype, like.shape, like.stride()) == (of.dtype, of.shape, of.stride())
            if not is_alike or not affine.follow(chain, base):
                continue
            numbers = (affine.scale, affine.shift, affine.inner)
            fused = self.packer.gated(base, bits, source, numbers)
            if fused is not None:
                made.replace_all_uses_with(fused)
                self._gates.add(fused)

    def _where(
        self, mask: fx.Node, a: float | fx.Node, b: float | fx.Node, dtype: torch.dtype
    ) -> fx.Node:
        device = mask.meta["val"].device

        def number(value: float) -> fx.Node:
            return self.split.add(
                _aten.full.default, [], value, dtype=dtype, device=device, pin_memory=False
            )

        a, b = (x if isinstance(x, fx.Node) else number(x) for x in (a, b))
        return self.split.add(_aten.where.self, mask, a, b)

    # ---- what backward does with a value

    def _is_gate(self, base: fx.Node, views: list[fx.Node]) -> bool:
        reads = Reads(self.split, [self.split.saved[v] for v in views], self._gates)
        return name_of(base) == "relu" or reads.is_gate

    def _is_gate_alone(self, base: fx.Node, views: list[fx.Node]) -> bool:
        """Whether backward reads no more of it than which values are above 0."""
        users = [(self.split.saved[v], u) for v in views for u in self.split.saved[v].users]
        return bool(users) and all(
            is_gate_of(user, place) or _reads_sizes_alone(user, place) for place, user in users
        )

    def _exchange(self, base: fx.Node, views: list[fx.Node], made: fx.Node) -> None:
        """Backward looks at what was made as it looked at what was saved."""
        copies = {base: made}
        for view in views:
            for node in _split.views_between(view, base):
                if node not in copies:
                    copies[node] = self.split.copy(node, lambda n: self._known(copies, n))
            self.split.exchange(view, copies[view])

    def _known(self, copies: dict[fx.Node, fx.Node], node: fx.Node) -> fx.Node:
        return copies[node] if node in copies else self.split.symbol(node)

    # ---- names

    def _place(self, node: fx.Node) -> str:
        """The path of the module that called an operator."""
        place = ""
        for key in node.meta.get("nn_module_stack") or ():  # ids of modules, the innermost last
            place = self._places.get(key.partition("@")[0], place)
        return place

    def _readers(self, base: fx.Node) -> list[tuple[str, str, str, str]]:
        """What forward does with a value, also through views."""
        found, looked = [], [base]
        for node in looked:
            for user in node.users:
                if _split.is_view(user):
                    looked.append(user)
                elif user.op == "call_function":
                    place = self._place(user)
                    type_ = type(self.model.get_submodule(place)).__name__
                    op = name_of(user).strip("_").removesuffix("_legit_functional")
                    found += [(place, type_, op, role) for role in _arguments(user, node)]
        return found

    def _row(self, base: fx.Node, number: int) -> Row:
        place = self._place(base)
        value = base.meta.get("val")
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        original = base.meta.get("original_aten")
        op = getattr(getattr(original, "overloadpacket", None), "__name__", None) or name_of(base)
        size = bytes_of(base)
        type_ = type(self.model.get_submodule(place)).__name__
        readers = self._readers(base)
        return Row(place, type_, shape, dtype, number, size, size, op, "result", readers=readers)


def _is_weight(base: fx.Node) -> bool:
    """Whether it is made of one input by casts and copies, as autocast makes weights."""
    while base.op == "call_function" and is_repeatable(base) and len(base.all_input_nodes) == 1:
        if not (
            _split.is_view(base) or name_of(base) in ("convert_element_type", "_to_copy", "clone")
        ):
            return False
        base = base.all_input_nodes[0]
    return base.op == "placeholder"


def _is_statistic(base: fx.Node) -> bool:
    """Means, deviations, sums of exponentials: every value stands for many."""
    for _ in range(6):
        if name_of(base) == "getitem":
            return base.args[1] > 0 or torch.Tag.reduction in getattr(
                base.args[0].target, "tags", []
            )
        if torch.Tag.reduction in getattr(base.target, "tags", []):
            return True
        inputs = [n for n in base.all_input_nodes if bytes_of(n) >= bytes_of(base)]
        if not is_repeatable(base) or len(inputs) != 1:
            return False
        base = inputs[0]
    return False


def _arguments(user: fx.Node, place: fx.Node) -> set[str]:
    """The names under which an operator takes a value."""
    schema = getattr(user.target, "_schema", None)
    if schema is None:
        return set()
    return {a.name for a, given in zip(schema.arguments, user.args, strict=False) if given is place}


def _reads_sizes_alone(user: fx.Node, place: fx.Node) -> bool:
    names = {"max_pool2d_with_indices_backward", "avg_pool2d_backward"}
    return name_of(user) in names and _arguments(user, place) == {"self"}
