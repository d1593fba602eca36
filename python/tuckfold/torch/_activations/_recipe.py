"""A recipe: the operators and the stored values that make a value again, and how it is run.

Which recipe makes which value is found in `_recompute.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tuckfold.torch._activations import _gates as gates
from tuckfold.torch._activations._forms import Bits
from tuckfold.torch._activations._lossy import Lossy, adds_packed, is_fused
from tuckfold.torch._activations._saved import Handle, Kept
from tuckfold.torch._memory import flat

_unpack_then = torch.ops.tuckfold.unpack_then.default
_normalize_into = torch.ops.tuckfold.normalize_into.default
_normalize_rows_into = torch.ops.tuckfold.normalize_rows_into.default
_unpack_rows = torch.ops.tuckfold.unpack_rows.default
_unpack_gelu = torch.ops.tuckfold.unpack_gelu.default
Node = Any
PRODUCTS = (("addmm",), ("mm",))  # operators that take long


class Way(enum.IntEnum):
    """How a batch normalization is made again, the fastest first."""

    FUSED = 2  # with the stored statistics, by our kernel
    STORED = 1  # with the stored statistics, by torch's
    SAME = 0  # by the operator of forward


class Recipe:
    """An operator with its arguments: stored values, other recipes, constants."""

    __slots__ = (
        "arguments",
        "chain",
        "count",
        "make",
        "node",
        "op",
        "owns",
        "place",
        "rehearse",
        "text",
    )

    def __init__(
        self,
        text: str,
        make: Callable[..., Tensor],
        arguments: list[Recipe | Handle | Kept],
        op: tuple[Any, ...] = (),
    ) -> None:
        self.text, self.make, self.arguments = text, make, arguments
        self.op = op  # its name and its constants, for hooks in C++
        self.node: Node = None  # where it was found, and as which argument, while it is described
        self.place = 0
        self.owns = True  # whether what it makes is new memory, which may be overwritten
        # Where another operator than forward's is called: both on hostile values like the arguments.
        self.rehearse: Callable[[list[Tensor]], tuple[Tensor, Tensor]] | None = None
        self.count = 1 + sum(a.count for a in arguments if isinstance(a, Recipe))
        self.chain = _chain_of(self)

    def leaves(self) -> list[Handle | Kept]:
        """What it is made of, in the order of `template`."""
        found: list[Handle | Kept] = []
        for a in self.arguments:
            found += a.leaves() if isinstance(a, Recipe) else [a]
        return found

    def template(self) -> Recipe:
        """The same operators and constants, without values; see `Replayed`."""
        arguments = [a.template() if isinstance(a, Recipe) else None for a in self.arguments]
        other = Recipe(self.text, self.make, arguments, self.op)  # type: ignore[arg-type]
        other.count, other.owns = self.count, self.owns
        return other

    def filled(self, leaves: Iterator[Handle | Kept]) -> Recipe:
        """A template with values."""
        arguments = [
            a.filled(leaves) if isinstance(a, Recipe) else next(leaves) for a in self.arguments
        ]
        other = Recipe(self.text, self.make, arguments, self.op)
        other.count, other.owns = self.count, self.owns
        return other

    def run(self, rehearsed: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """Made anew; `make` receives which arguments it may overwrite.

        rehearsed: gets the pairs that must be equal for the recipe to hold for any values.
        """
        found = lambda a: a.run(rehearsed) if isinstance(a, Recipe) else a  # noqa: E731
        if self.chain is not None:
            return self.chain.run(found, rehearsed)
        fresh = [isinstance(argument, Recipe) and argument.owns for argument in self.arguments]
        values = [tensor_of(found(a)) for a in self.arguments]
        if rehearsed is not None and self.rehearse is not None:
            rehearsed.append(self.rehearse(values))
        return self.make(values, fresh)

    def again(self, leaves: Iterator[Handle | Kept], gate: gates.Gate | None = None) -> Tensor:
        """Run with the leaves of a template. gate: for what it makes, if a kernel takes it."""
        arguments = self.arguments
        found = lambda a: a.again(leaves) if isinstance(a, Recipe) else next(leaves)  # noqa: E731
        if self.chain is not None:
            return self.chain.run(found, gate=gate)
        fresh = [isinstance(argument, Recipe) and argument.owns for argument in arguments]
        values = [tensor_of(found(a)) for a in arguments]
        return self.make(values, fresh)

    def sources(self) -> list[Handle]:
        found: list[Handle] = []
        for a in self.arguments:
            found += a.sources() if isinstance(a, Recipe) else [a] if isinstance(a, Handle) else []
        return found

    def signature(self) -> tuple[object, ...]:
        """All that the kernels which run depend on, but for the values."""

        def of(a: Recipe | Handle | Kept) -> tuple[object, ...]:
            if isinstance(a, Recipe):
                return a.signature()
            if isinstance(a, Handle):
                return (a.dtype, a.shape, a.strides, a.device)
            return (a.tensor.dtype, a.tensor.shape, a.tensor.stride(), a.tensor.device)

        return (self.text, *map(of, self.arguments))


class Chain:
    """A normalization and what follows it, which one kernel does together.

    Args:
        normalize: of channels, or of rows.
        other: what is added after one of channels, or nothing.
        relu: whether a ReLU follows.
        dtype: that autocast asks of rows, or None.
    """

    __slots__ = ("dtype", "normalize", "other", "relu")

    def __init__(
        self,
        normalize: Recipe,
        other: tuple[Any, ...] = (),
        relu: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.normalize, self.other, self.relu, self.dtype = normalize, other, relu, dtype

    def run(
        self,
        found: Callable[[Any], Tensor | Handle | Kept],
        rehearsed: list[tuple[Tensor, Tensor]] | None = None,
        gate: gates.Gate | None = None,
    ) -> Tensor:
        """found: an argument that is made, or a leaf that is not read yet; in the order of leaves."""
        x, *factors = [found(a) for a in self.normalize.arguments]
        is_run = rehearsed is None and self.dtype is None
        others = [_scaled(a, found) if is_run else found(a) for a in self.other]
        numbers = list(map(tensor_of, factors))
        out = None
        if is_run:
            out = fused_unpack(x, numbers, others, self.relu, gate)
        elif rehearsed is None:
            out = fused_unpack_rows(x, numbers, self.dtype)
        if out is not None:
            return out
        values = [tensor_of(x), *numbers]
        if rehearsed is not None and self.normalize.rehearse is not None:
            rehearsed.append(self.normalize.rehearse(values))
        if self.dtype is not None:
            return fused_rows(values, self.dtype)
        return fused(values, list(map(tensor_of, others)), self.relu)


class Gelu:
    """A GELU of what is stored, which one kernel unpacks and applies it to."""

    __slots__ = ("arguments", "make")
    relu, dtype = False, torch.float32  # so that no other chain follows it

    def __init__(self, recipe: Recipe) -> None:
        # Not the recipe, which holds this: a cycle would keep packed bytes until Python looks for such.
        self.arguments, self.make = recipe.arguments, recipe.make

    def run(
        self,
        found: Callable[[Any], Tensor | Handle | Kept],
        rehearsed: list[tuple[Tensor, Tensor]] | None = None,
        gate: gates.Gate | None = None,
    ) -> Tensor:
        x = found(self.arguments[0])
        form = _packed_row(x) if rehearsed is None else None
        if form is None or not isinstance(x, Handle):
            return self.make([tensor_of(x)], [False])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            out = _unpack_gelu(form.bytes, form.label, [form.shape.numel()], x.dtype)
        return out.as_strided(x.shape, x.strides)


def _chain_of(recipe: Recipe) -> Chain | Gelu | None:
    """By the operators' names; only the first argument of a sum is looked into."""
    name = recipe.op[0] if recipe.op else ""
    first = recipe.arguments[0] if recipe.arguments else None
    if recipe.op == ("gelu", "none") and not isinstance(first, Recipe):
        return Gelu(recipe)
    if name not in ("add", "relu", "to") or not isinstance(first, Recipe):
        return None
    if name == "to":
        is_rows = bool(first.op) and first.op[0] == "normalize_rows"
        return Chain(first, dtype=recipe.op[1]) if is_rows else None
    is_ours = bool(first.op) and first.op[0] == "normalize" and first.op[2]
    before = Chain(first) if is_ours else first.chain
    if before is None or before.relu or before.dtype is not None:
        return None
    if name == "add":
        return None if before.other else Chain(before.normalize, (recipe.arguments[1],))
    return Chain(before.normalize, before.other, relu=True)


def fused(v: list[Tensor], others: list[Tensor], relu: bool) -> Tensor:
    """Normalized, with the sum and ReLU: by our kernel where it takes the tensors. Whether it does
    depends on what `signature` has, so that a comparison holds for all passes."""
    x, weight, bias, mean, invstd = v
    inner = 1
    if x.is_contiguous():
        inner = math.prod(x.shape[2:])
    is_dense = x.is_contiguous() or _is_channels_last(x)
    numbers = [mean, invstd, weight, bias]
    alike = all((a.dtype, a.shape, a.stride()) == (x.dtype, x.shape, x.stride()) for a in others)
    if not (is_dense and alike and all(a.dtype == torch.float32 and a.is_contiguous() for a in numbers)):  # fmt: skip
        out = torch.batch_norm_elemt(x, weight, bias, mean, invstd, 0.0)
        out = torch.add(out, others[0]) if others else out
        return torch.relu_(out) if relu else out
    out = torch.empty_like(x)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _normalize_into(flat(x), list(map(flat, others)), numbers, inner, "relu" if relu else "none", flat(out))  # fmt: skip
    return out


def fused_unpack(
    leaf: Tensor | Handle | Kept,
    numbers: list[Tensor],
    others: list[Any],
    relu: bool,
    gate: gates.Gate | None = None,
) -> Tensor | None:
    """What `fused` makes of values that block_quant stored, while they are unpacked; up to roundings, since
    mean and deviation become one factor and one sum. None where the kernel does not take them."""
    form = _packed_row(leaf)
    if form is None or not isinstance(leaf, Handle):
        return None
    like = torch.empty_strided(leaf.shape, leaf.strides, dtype=leaf.dtype, device="meta")
    if not (like.is_contiguous() or _is_channels_last(like)):
        return None
    if any(a.dtype != torch.float32 or not a.is_contiguous() for a in numbers):
        return None
    alike = (leaf.dtype, leaf.shape, leaf.strides)
    packed, factors = None, [None, None]
    if others:
        of = others[0].leaf if isinstance(others[0], Scaled) else others[0]
        other = _packed_row(of)
        is_alike = other is not None and (of.dtype, of.shape, of.strides) == alike
        is_alike = is_alike and leaf.shape.numel() % 16 == 0
        if other is not None and is_alike and adds_packed(form.label, other.label):
            packed = other.bytes
            factors = others[0].factors() if isinstance(others[0], Scaled) else factors
    added = list(map(tensor_of, others)) if packed is None else []
    if any((a.dtype, a.shape, a.stride()) != alike for a in added):
        others[:] = added  # they are made once
        return None
    inner = math.prod(leaf.shape[2:]) if like.is_contiguous() else 1
    scale, shift = _factors(numbers)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        bits = gate.bits if gate is not None and relu else None
        out = _unpack_then(form.bytes, form.label, [form.shape.numel()], leaf.dtype, scale, shift, inner, "relu" if relu else "none", flat(added[0]) if added else None, packed, *factors, bits)  # fmt: skip
    if gate is not None and relu:
        gate.is_used = True
    return out.as_strided(leaf.shape, leaf.strides)


def _factors(numbers: list[Tensor]) -> tuple[Tensor, Tensor]:
    """One factor and one sum for each channel."""
    weight, bias, mean, invstd = numbers
    scale = torch.mul(weight, invstd)
    return scale, torch.addcmul(bias, mean, scale, value=-1)


class Scaled:
    """What is normalized and then added, not made yet."""

    __slots__ = ("leaf", "numbers")

    def __init__(self, leaf: Handle, numbers: list[Tensor]) -> None:
        self.leaf, self.numbers = leaf, numbers

    def factors(self) -> list[Tensor]:
        return list(_factors(self.numbers))

    def value(self) -> Tensor:
        return fused([read(self.leaf), *self.numbers], [], False)


def _scaled(argument: Any, found: Callable[[Any], Any]) -> Any:
    """An argument that is made, or a leaf, or a normalization of a leaf that one kernel unpacks and adds."""
    if not isinstance(argument, Recipe) or argument.op[:1] != ("normalize",) or not argument.op[2]:
        return found(argument)
    x, *factors = [found(a) for a in argument.arguments]
    numbers = list(map(tensor_of, factors))
    is_known = all(a.dtype == torch.float32 and a.is_contiguous() for a in numbers)
    if isinstance(x, Handle) and is_known:
        return Scaled(x, numbers)
    return fused([tensor_of(x), *numbers], [], False)


def _packed_row(leaf: Tensor | Handle | Kept) -> Lossy | None:
    """What block_quant stored of a whole storage, unless it is decoded already."""
    form = leaf.form if isinstance(leaf, Handle) else None
    if not isinstance(leaf, Handle) or type(form) is not Lossy or not is_fused(form, leaf.dtype):
        return None
    is_whole = form.shape.numel() == leaf.shape.numel() and leaf.offset == 0
    return form if is_whole and leaf.record.cache is None else None


def fused_unpack_rows(
    leaf: Tensor | Handle | Kept, numbers: list[Tensor], dtype: torch.dtype | None
) -> Tensor | None:
    """What `fused_rows` makes of values that block_quant stored, while they are unpacked: the same bits."""
    form = _packed_row(leaf)
    if form is None or not isinstance(leaf, Handle) or dtype is None:
        return None
    weight, bias, mean, invstd = (number.reshape(-1) for number in numbers)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        out = _unpack_rows(form.bytes, form.label, [form.shape.numel()], leaf.dtype, [mean, invstd, weight, bias], dtype)  # fmt: skip
    return out.view(leaf.shape)


def fused_rows(v: list[Tensor], dtype: torch.dtype) -> Tensor:
    """A layer normalization with known statistics, in the dtype."""
    x, weight, bias, mean, invstd = v
    out = torch.empty_like(x, dtype=dtype)
    factors = [mean.reshape(-1), invstd.reshape(-1), weight.reshape(-1), bias.reshape(-1)]
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _normalize_rows_into(x, factors, out)
    return out


def takes_rows(x: Handle | Kept, *factors: Handle | Kept) -> bool:
    """Whether `fused_rows` takes such tensors; in later passes they are of the same kind."""

    def meta(leaf: Any) -> Any:
        leaf = getattr(leaf, "leaf", leaf)  # of a place
        return leaf if isinstance(leaf, Handle) else leaf.tensor

    of = meta(x)
    strides = of.strides if isinstance(of, Handle) else of.stride()
    is_contiguous = tuple(strides) == torch.empty(of.shape, device="meta").stride()
    return (
        of.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and is_contiguous
        and all(meta(each).dtype == torch.float32 for each in factors)
    )


def _is_channels_last(x: Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()])


def tensor_of(found: Tensor | Handle | Kept | Scaled) -> Tensor:
    if isinstance(found, Handle) and isinstance(found.form, Recomputed):
        return found.form.ahead(found)
    if isinstance(found, Scaled):
        return found.value()
    return found if isinstance(found, Tensor) else read(found)


def read(leaf: Handle | Kept) -> Tensor:
    """Without keeping what a codec decodes."""
    if isinstance(leaf, Handle) and isinstance(leaf.form, Lossy):
        return leaf.form.once(leaf)
    return leaf.value()


class Recomputed:
    """A storage that is dropped; its views look into what the recipe makes.

    Python's garbage collector walks all objects that live until backward, so there are few: the template
    is the same for every pass, and only what it is made of belongs to this one.
    """

    __slots__ = ("gate", "leaves", "template", "threads", "whole")
    label = "recompute"
    nbytes = 0

    def __init__(self, recipe: Recipe, template: Recipe | None = None) -> None:
        self.template = recipe.template() if template is None else template
        self.leaves = tuple(recipe.leaves())
        # It always is, but the recipes of others should name its own sources, unless that takes long.
        self.whole = self.template.op[:1] in PRODUCTS
        self.threads = torch.get_num_threads()
        self.gate: Bits | None = None  # the bits of all values, where a ReLU made them

    @property
    def recipe(self) -> Recipe:
        return self.template.filled(iter(self.leaves))

    def ahead(self, handle: Handle) -> Tensor:
        """For a recipe, and then for the nodes that saved it."""
        base = gates.base_of(handle.record, self, None, self._evaluate)
        handle.record.cache = base
        return base.as_strided(handle.shape, handle.strides, handle.offset)

    def decode(self, handle: Handle) -> Tensor:
        # The next reader follows soon, as a convolution's and a ReLU's backward do.
        return gates.decoded(handle, self, self.gate, self._evaluate)

    def _evaluate(self, gate: gates.Gate | None) -> Tensor:
        """With as many threads as in the forward pass: on the CPU the last bits of some operators,
        such as SiLU, depend on where a thread's part ends."""
        threads = torch.get_num_threads()
        if threads == self.threads:
            return self._made(gate)
        torch.set_num_threads(self.threads)
        try:
            return self._made(gate)
        finally:
            torch.set_num_threads(threads)

    def _made(self, gate: gates.Gate | None) -> Tensor:
        return outside(lambda: self.template.again(iter(self.leaves), gate))


def outside(call: Callable[[], Tensor]) -> Tensor:
    """Of autograd and autocast, which had their say when a recipe was recorded."""
    with torch.no_grad():
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                with torch.autocast(device, enabled=False):
                    return call()
        return call()


def evaluate(recipe: Recipe, rehearsed: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
    return outside(lambda: recipe.run(rehearsed))
