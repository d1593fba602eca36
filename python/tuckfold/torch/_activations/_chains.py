"""Saved values that backward can make again from others that are saved.

Compilers save both the input and the output of a GELU, the normalized values and what an affine map
makes of them, since a matrix product or a convolution needs the one in memory and a gradient the
other. The second follows from the first by element-wise operators, and the same operators run again
in backward. Where that would not give the same bits, the value stays saved.
"""

from __future__ import annotations

import torch
import torch._inductor.config
from torch import fx

from tuckfold.torch._activations import _graph_ops, _split  # noqa: F401 (registers operators)
from tuckfold.torch._activations._split import Split, bytes_of, is_static, value_of

_MOST_NODES = 48  # longer chains cost registers
_LOW = (torch.float16, torch.bfloat16)
_SEEDED = {"inductor_random", "inductor_randint", "inductor_lookup_seed"}
_CONSTANTS = {"full", "iota", "arange", "scalar_tensor"}
# Operators that inductor compiles into loops, beside element-wise ones: their results may exist in
# registers alone, with more digits than are saved.
_POOLS = {"_low_memory_max_pool_with_offsets", "max_pool2d_with_indices", "avg_pool2d"}
_LOOPS = {"embedding", "index", "cat", "gather", "constant_pad_nd", "upsample_nearest2d", "copy"}


def name_of(node: fx.Node) -> str:
    """Of its operator, without namespace and overload."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return getattr(packet, "__name__", str(packet))


def _tags(node: fx.Node) -> list[torch.Tag]:
    return getattr(node.target, "tags", [])


def is_repeatable(node: fx.Node) -> bool:
    """Whether running it again, element by element, gives the same values."""
    if node.op != "call_function":
        return False
    if _split.is_view(node) or name_of(node) in _SEEDED:
        return True
    if name_of(node) in _CONSTANTS:
        return not node.all_input_nodes
    schema = getattr(node.target, "_schema", None)
    return (
        schema is not None
        and not schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in _tags(node)
        and (torch.Tag.pointwise in _tags(node) or name_of(node) == "_to_copy")
    )


def _is_of_a_loop(node: fx.Node) -> bool:
    """Whether a compiler may fuse it with others."""
    if node.op == "placeholder":
        return False
    if name_of(node) == "getitem":
        node = node.args[0]
    names = _LOOPS | _POOLS
    return is_repeatable(node) or name_of(node) in names or torch.Tag.reduction in _tags(node)


def _is_of_all_samples(node: fx.Node) -> bool:
    """Whether element-wise operators made it of sums over the first axis, as of a batch normalization's variance."""
    if node.op != "call_function" or not is_repeatable(node) or _split.is_view(node):
        return False
    stack, seen = list(node.all_input_nodes), 0
    while stack and seen < _MOST_NODES:
        source, seen = stack.pop(), seen + 1
        if name_of(source) == "getitem":
            source = source.args[0]
        if torch.Tag.reduction in _tags(source) or name_of(source) == "var_mean":
            axes = source.args[1] if len(source.args) > 1 else ()
            return isinstance(axes, (list, tuple)) and 0 in axes
        if source.op == "call_function" and is_repeatable(source):
            stack += source.all_input_nodes
    return False


def _has_epilogues(node: fx.Node) -> bool:
    """Whether inductor may fuse what follows into a kernel of its own for a product."""
    config = torch._inductor.config
    return node.op != "placeholder" and bool(config.max_autotune or config.max_autotune_gemm)


class Chains:
    """Looks for chains between saved values.

    Args:
        split: the graphs.
        fused: whether the compiler fuses operators, so that values between them are not rounded to
            their dtype.
        least: bytes; smaller values are not worth it, and may be saved in addition.
        settle: whether what reads a value must be compiled as if it had been saved.
        reads: how many large values a chain may read.
    """

    def __init__(
        self, split: Split, fused: bool, least: int, *, settle: bool = True, reads: int = 1
    ) -> None:
        self.split, self.fused, self.least, self.reads = split, fused, least, reads
        self.settle = fused and settle
        self.chains: dict[fx.Node, list[fx.Node]] = {}  # of values that are made again
        self._made: dict[fx.Node, fx.Node] = {}  # nodes of forward, in backward
        self._held = self._bases()

    def _bases(self) -> dict[fx.Node, fx.Node]:
        """The bases of what is saved, with a view that is saved and holds all of it."""
        found: dict[fx.Node, fx.Node] = {}
        for node in self.split.saved:
            base = _split.base_of(node)
            if _split.can_undo(node, base):
                found.setdefault(base, node)
        return found

    def find(self, base: fx.Node) -> list[fx.Node] | None:
        """The nodes to run again for it, in order; None where there is no such way."""
        if self.settle and not self._is_written_anyway(base):
            return None
        chain: list[fx.Node] = []
        leaves: set[fx.Node] = set()
        seen: set[fx.Node] = set()
        stack: list[tuple[fx.Node, bool]] = [(base, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                chain.append(node)
                continue
            if node in seen:
                continue
            seen.add(node)
            if len(seen) > 2 * _MOST_NODES:
                return None
            if node is not base and self._is_leaf(node):
                if not self._may_read(node):
                    return None
                leaves.add(node)
                continue
            if not is_repeatable(node) or not self._is_rounded_alike(node, base):
                return None
            stack.append((node, True))
            stack += [(n, False) for n in node.all_input_nodes]
        least = max(1, self.least)  # sizes that are numbers of the graph have none
        large = [n for n in leaves if bytes_of(n) >= least and value_of(n).dtype != torch.bool]
        new = sum(bytes_of(n) for n in leaves if n not in self._held and n.op != "placeholder")
        if len(large) > self.reads or len(chain) > _MOST_NODES:
            return None
        # Reading four times as much as is spared costs more time than it is worth.
        if sum(map(bytes_of, large)) > 4 * bytes_of(base) or 4 * new > bytes_of(base):
            return None
        return chain

    def _is_written_anyway(self, base: fx.Node) -> bool:
        """Whether forward has it in memory, saved or not. Else its kernels would change."""
        if value_of(base).dtype == torch.bool:
            return False
        users = [n for n in _split.users_of(base) if n.op != "output" and not _split.is_view(n)]
        return any(not _is_of_a_loop(n) for n in users) or self._feeds_pools_alone(base)

    @staticmethod
    def _feeds_pools_alone(base: fx.Node) -> bool:
        """Windows overlap, so what is pooled is written first, but need not be."""
        users = [n for n in _split.users_of(base) if n.op != "output" and not _split.is_view(n)]
        return bool(users) and all(name_of(n) in _POOLS for n in users)

    def _is_leaf(self, node: fx.Node) -> bool:
        if node in self.split.symbols or node.op == "placeholder":
            return True
        if node in self._held and node not in self.chains:
            return True
        return not is_repeatable(node) and 0 < bytes_of(node) < self.least

    def _may_read(self, node: fx.Node) -> bool:
        if node in self.split.symbols:
            return True
        if node in self.split.mutated or value_of(node) is None:
            return False
        if node.op == "placeholder" and node not in self._held and bytes_of(node) >= self.least:
            return False  # its owner could not free it
        # A loop may have gone on with more digits than it saved, and so may the end of a product.
        is_low = self.fused and value_of(node).dtype in _LOW
        return not (is_low and (_is_of_a_loop(node) or _has_epilogues(node)))

    def _is_rounded_alike(self, node: fx.Node, base: fx.Node) -> bool:
        """Whether the same kernel makes and reads it in forward as in backward."""
        value = value_of(node)
        if node is base or not self.fused or value is None or value.dtype not in _LOW:
            return True
        return len(node.users) == 1

    # ---- backward

    def replay(self, base: fx.Node, chain: list[fx.Node]) -> fx.Node:
        """Runs a chain in backward."""
        self.chains[base] = chain
        for node in chain:
            if node not in self._made:
                self._made[node] = self.split.copy(node, self.in_backward)
        made = self._made[base]
        if self.settle:
            # In memory it is rounded as it was when it was saved, and what reads it is compiled to
            # the kernels that read what was saved.
            self.split.settled.append(made)
            if self._feeds_pools_alone(base):
                self.split.settle_in_forward(base)
        return made

    def stored(self, base: fx.Node, made: fx.Node | None) -> None:
        """It is stored in another form: chains read what backward makes of it, or do without."""
        if made is None:
            self._held.pop(base, None)
        else:
            self._made[base] = made

    def in_backward(self, node: fx.Node) -> fx.Node:
        """A value of forward that is stored, or was made again."""
        if node in self._made:
            return self._made[node]
        if node in self.split.symbols:
            return self.split.symbols[node]
        if self.settle and self._is_made_twice(node):
            made = self.split.place_apart(node)
        else:
            view = self._held.get(node, node)
            place = self.split.place(view)
            made = _split.undo(self.split, place, view, node)
        self._made[node] = made
        return made

    def _is_made_twice(self, node: fx.Node) -> bool:
        """Whether forward makes it in two kernels: the one that adds up saves it, and the one that goes on makes it for itself. The
        compiler may take a product and a sum together in one of them, and not in the other (seen with the deviations of
        batch normalization on an H200)."""
        value = value_of(node)
        return (
            value is not None
            and is_static(value)
            and value.dim() > 0
            and value.shape[0] == 1
            and bytes_of(node) < self.least
            and _is_of_all_samples(node)
        )
