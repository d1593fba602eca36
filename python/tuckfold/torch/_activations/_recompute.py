"""Values that are made again in backward, by the operator that made them, from what is stored anyway.

A recipe follows autograd's graph from the node that made a storage to values that stay: inputs of
normalizations, of GELU, masks of dropout. Whether the operator gives the same bits again is not
assumed: `_proof.py` compares them on the device before a recipe is used.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations import _attention as attention
from tuckfold.torch._activations._graph import VIEWS, Prober, kind
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._saved import Copied, Handle, Kept
from tuckfold.torch._memory import flat

aten = torch.ops.aten
_normalize_into = torch.ops.tuckfold.normalize_into.default
_normalize_rows_into = torch.ops.tuckfold.normalize_rows_into.default
Node = Any
MOST_OPERATORS = 4  # of one recipe, unless the user says otherwise
MOST_COPIED = {True: 1 << 20, False: 1 << 16}  # bytes of a parameter, and of a buffer or an input


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
        value = lambda a: a.run(rehearsed) if isinstance(a, Recipe) else read(a)  # noqa: E731
        if self.chain is not None:
            return self.chain.run(value, rehearsed)
        fresh = [isinstance(argument, Recipe) and argument.owns for argument in self.arguments]
        values = [value(a) for a in self.arguments]
        if rehearsed is not None and self.rehearse is not None:
            rehearsed.append(self.rehearse(values))
        return self.make(values, fresh)

    def again(self, leaves: Iterator[Handle | Kept]) -> Tensor:
        """Run with the leaves of a template."""
        arguments = self.arguments
        value = lambda a: a.again(leaves) if isinstance(a, Recipe) else read(next(leaves))  # noqa: E731
        if self.chain is not None:
            return self.chain.run(value)
        fresh = [isinstance(argument, Recipe) and argument.owns for argument in arguments]
        values = [value(a) for a in arguments]
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
    """A normalization, and the sum and the ReLU that follow it, which one kernel does together."""

    __slots__ = ("normalize", "other", "relu")

    def __init__(self, normalize: Recipe, other: tuple[Any, ...], relu: bool) -> None:
        self.normalize, self.relu = normalize, relu
        self.other = other  # what is added, or nothing

    def run(
        self,
        value: Callable[[Any], Tensor],
        rehearsed: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """value: makes an argument; in the order of leaves."""
        values = [value(a) for a in self.normalize.arguments]
        if rehearsed is not None and self.normalize.rehearse is not None:
            rehearsed.append(self.normalize.rehearse(values))
        others = [value(a) for a in self.other]
        return fused(values, others, self.relu)


class Cast:
    """A layer normalization, and the change of dtype that autocast puts after it."""

    __slots__ = ("dtype", "normalize")

    def __init__(self, normalize: Recipe, dtype: torch.dtype) -> None:
        self.normalize, self.dtype = normalize, dtype

    def run(
        self,
        value: Callable[[Any], Tensor],
        rehearsed: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        values = [value(a) for a in self.normalize.arguments]
        if rehearsed is not None and self.normalize.rehearse is not None:
            rehearsed.append(self.normalize.rehearse(values))
        return fused_rows(values, self.dtype)


def _chain_of(recipe: Recipe) -> Chain | Cast | None:
    """By the operators' names; only the first argument of a sum is looked into."""
    name = recipe.op[0] if recipe.op else ""
    first = recipe.arguments[0] if recipe.arguments else None
    if name not in ("add", "relu", "to") or not isinstance(first, Recipe):
        return None
    if name == "to":
        return Cast(first, recipe.op[1]) if first.op and first.op[0] == "normalize_rows" else None
    is_ours = bool(first.op) and first.op[0] == "normalize" and first.op[2]
    before = Chain(first, (), False) if is_ours else first.chain
    if not isinstance(before, Chain) or before.relu:
        return None
    if name == "add" and not before.other:
        return Chain(before.normalize, (recipe.arguments[1],), False)
    return None if name == "add" else Chain(before.normalize, before.other, True)


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


def fused_rows(v: list[Tensor], dtype: torch.dtype) -> Tensor:
    """A layer normalization with known statistics, in the dtype."""
    x, weight, bias, mean, invstd = v
    out = torch.empty_like(x, dtype=dtype)
    factors = [mean.reshape(-1), invstd.reshape(-1), weight.reshape(-1), bias.reshape(-1)]
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _normalize_rows_into(x, factors, out)
    return out


def _takes_rows(x: Handle | Kept, *factors: Handle | Kept) -> bool:
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

    __slots__ = ("leaves", "template", "threads")
    label = "recompute"
    nbytes = 0
    whole = False  # it is, but the recipes of others should name its own sources

    def __init__(self, recipe: Recipe, template: Recipe | None = None) -> None:
        self.template = recipe.template() if template is None else template
        self.leaves = tuple(recipe.leaves())
        self.threads = torch.get_num_threads()

    @property
    def recipe(self) -> Recipe:
        return self.template.filled(iter(self.leaves))

    def decode(self, handle: Handle) -> Tensor:
        record = handle.record
        base = record.cache
        if base is None:
            base = self._evaluate()
            record.unread = {id(other) for other in record.live() if other.form is self}
        # The next reader follows soon, as a convolution's and a ReLU's backward do.
        record.unread.discard(id(handle))
        record.cache = base if record.unread else None
        return base.as_strided(handle.shape, handle.strides, handle.offset)

    def _evaluate(self) -> Tensor:
        """With as many threads as in the forward pass: on the CPU the last bits of some operators,
        such as SiLU, depend on where a thread's part ends."""
        threads = torch.get_num_threads()
        if threads == self.threads:
            return self._made()
        torch.set_num_threads(self.threads)
        try:
            return self._made()
        finally:
            torch.set_num_threads(threads)

    def _made(self) -> Tensor:
        return outside(lambda: self.template.again(iter(self.leaves)))


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


def _hostile(like: Tensor, seed: int, offset: float = 0.0) -> Tensor:
    """Random values of the same type, sizes and strides, without the random state of the user."""
    generator = torch.Generator(like.device).manual_seed(seed)
    return torch.empty_like(like).normal_(offset, 2, generator=generator)


class Builder:
    """Makes recipes while the graph of one forward pass is at hand.

    Args:
        probe: finds the handle of a node's attribute.
        made: handles by the node, as its sequence number, and the output that they hold.
        modules: of the model, by the identity of their weight, or by their node; some constants are
            nowhere else.
        ours: sequence numbers of nodes that saved through our hooks.
        most: operators of one recipe.
        is_lossy: whether a codec may store what recipes read.
    """

    def __init__(
        self,
        probe: Prober,
        made: dict,
        modules: dict,
        ours: Any,
        most: int = MOST_OPERATORS,
        is_lossy: bool = False,
    ) -> None:
        self.probe, self.made, self.modules, self.ours = probe, made, modules, ours
        self.most, self.is_lossy = most, is_lossy
        self.fast = Way.SAME
        self.waits = False  # whether an answer to a comparison was missing
        # What `_input` found for the recipe that was built last; True: it took the handle's recipe.
        self.found: list[tuple[Handle, bool] | None] = []

    def recipe(self, node: Node, fast: Way) -> Recipe | None:
        """How the node's first output is made again, or None."""
        self.fast, self.found = fast, []
        recipe = self._build(node, self.most)
        if recipe is None or recipe.count > self.most:
            return None
        return self.settled(recipe)

    def settled(self, recipe: Recipe) -> Recipe | None:
        """With copies of the parameters and buffers that it reads. The value was made from what
        they are now; autograd does not notice changes through `.data` before backward."""
        for i, argument in enumerate(recipe.arguments):
            if isinstance(argument, Recipe):
                if self.settled(argument) is None:
                    return None
            elif not isinstance(argument, Copied) and argument.is_leaf:
                tensor = argument.tensor
                is_parameter = isinstance(tensor, nn.Parameter)
                if tensor.nbytes <= MOST_COPIED[is_parameter]:
                    recipe.arguments[i] = Copied(self.copied(tensor), 0, None)
                elif is_parameter:
                    return None  # a copy would take what the recipe spares
        return recipe

    def _build(self, node: Node, left: int) -> Recipe | None:
        build = BUILDERS.get(kind(node))
        return build(self, node, left) if build is not None and left > 0 else None

    def _saved(self, node: Node, attribute: str) -> Handle | Kept | None:
        """A stored value that the node saved."""
        if node._sequence_nr() not in self.ours:
            return None
        found = self.probe.any(node, attribute)
        if isinstance(found, Handle) and found.form is not None and not found.form.whole:
            return None
        return found

    def copied(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone()

    def overwrites(self, node: Node) -> bool:
        """Whether a node worked in place on what an operator had just made."""
        copy = self.probe.any(node, "_saved_self") if hasattr(node, "_raw_saved_self") else None
        source = node.next_functions[0][0]
        return isinstance(copy, Handle) and copy.is_copy and kind(source) in _MAKE_NEW

    def _input(self, node: Node, argument: int, left: int) -> Recipe | Handle | None:
        """What the node's argument was: a value that is stored, or one to make."""
        edges = node.next_functions
        if argument >= len(edges) or edges[argument][0] is None:
            return None
        source, output = edges[argument]
        stored = self.made.get((source._sequence_nr(), output))
        handle = stored() if stored is not None else None
        form = None if handle is None else handle.form
        is_recipe = isinstance(form, Recomputed)
        if handle is not None and self.is_lossy and not is_recipe and handle.need != "value":
            handle = _read_whole(handle)
            form = handle.form
            is_recipe = isinstance(form, Recomputed)
        is_whole = form is None or is_recipe or isinstance(form, Lossy)
        if handle is not None and is_as_made(handle) and is_whole:
            self.found.append((handle, is_recipe))
            return form.recipe if isinstance(form, Recomputed) else handle
        self.found.append(None)
        return self._build(source, left - 1) if output == 0 else None


def _read_whole(handle: Handle) -> Handle:
    """Of what the handle looks into, one that is read for its values: it will not become a mask."""
    for other in handle.record.live():
        same = (other.shape, other.strides, other.offset, other.version)
        if other.need == "value" and same == (
            handle.shape,
            handle.strides,
            handle.offset,
            handle.version,
        ):
            return other
    return handle


def is_as_made(handle: Handle) -> bool:
    """Whether nobody changed the values in place, out of autograd's sight, since they were made."""
    if handle.version == 0 or handle.is_output:
        return True
    others = handle.record.live()
    return any(other.is_output and other.version == handle.version for other in others)


def _relu(self: Builder, node: Node, left: int) -> Recipe | None:
    x = self._input(node, 0, left)
    make = lambda v, fresh: torch.relu_(v[0]) if fresh[0] else torch.relu(v[0])  # noqa: E731
    return None if x is None else Recipe("relu", make, [x], ("relu",))


def _pointwise(name: str, call: Callable[..., Tensor], *constants: str) -> Callable:
    """Operators that saved their input, or in place their output; or its input can be made again."""

    def build(self: Builder, node: Node, left: int) -> Recipe | None:
        x = self._saved(node, "_saved_self") if hasattr(node, "_raw_saved_self") else None
        x = x if x is not None else self._input(node, 0, left)
        if x is None:
            return None
        values = [getattr(node, f"_saved_{constant}") for constant in constants]
        make = lambda v, _: call(v[0], *values)  # noqa: E731
        return Recipe(f"{name}{values}", make, [x], (name, *values))

    return build


def _add(self: Builder, node: Node, left: int) -> Recipe | None:
    if node._saved_alpha != 1:
        return None
    a, b = self._input(node, 0, left), self._input(node, 1, left)
    if a is None or b is None:
        return None

    def make(v: list[Tensor], fresh: list[bool]) -> Tensor:
        a, b = v
        if fresh[0] and a.shape == b.shape and torch.result_type(a, b) == a.dtype:
            return a.add_(b)
        return torch.add(a, b)

    return Recipe("add", make, [a, b], ("add",))


def _mul(self: Builder, node: Node, left: int) -> Recipe | None:
    """Gates: both sides are saved where both have gradients; dropout's mask, on the CPU, alone."""
    a, b = self._saved(node, "_saved_self"), self._saved(node, "_saved_other")
    a = a if a is not None else self._input(node, 0, left)
    b = b if b is not None else self._input(node, 1, left)
    if a is None or b is None:
        return None
    return Recipe("mul", lambda v, _: torch.mul(*v), [a, b], ("mul",))


def _dropout(self: Builder, node: Node, left: int) -> Recipe | None:
    x, mask = self._input(node, 0, left), self._saved(node, "_saved_result1")
    if x is None or mask is None:
        return None
    p = node._saved_p
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    make = lambda v, _: aten.native_dropout_backward(v[0], v[1], scale)  # noqa: E731

    def rehearse(v: list[Tensor]) -> tuple[Tensor, Tensor]:
        x = _hostile(v[0], 1)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            out, mask = aten.native_dropout(x, p, True)
        return out, make([x, mask], [])

    recipe = Recipe(f"dropout[{p}]", make, [x, mask], ("dropout", scale))
    recipe.rehearse = rehearse
    return recipe


def _to_copy(self: Builder, node: Node, left: int) -> Recipe | None:
    x = self._input(node, 0, left)
    if x is None:
        return None
    dtype = node._input_metadata[0].dtype
    make = lambda v, _: aten._to_copy(v[0], dtype=dtype)  # noqa: E731
    return Recipe(f"to[{dtype}]", make, [x], ("to", dtype))


def _view(self: Builder, node: Node, left: int) -> Recipe | None:
    x = self._input(node, 0, left + 1)  # costs nothing
    if x is None:
        return None
    shape = tuple(node._input_metadata[0].shape)
    recipe = Recipe(f"view{shape}", lambda v, _: v[0].view(shape), [x], ("view",))
    recipe.count -= 1
    recipe.owns = isinstance(x, Recipe) and x.owns
    return recipe


def _module_of(self: Builder, node: Node, weight: Handle | Kept | None) -> nn.Module | None:
    """The module that a normalization belongs to: by its weight, or where it has none, by its end."""
    if isinstance(weight, Kept):
        return self.modules.get(id(weight.tensor))
    return self.modules.get(("node", node._sequence_nr())) if weight is None else None


def _current(bias: Tensor) -> Kept:
    """A bias that autograd does not save; see `Builder.settled`."""
    return Kept(bias, bias._version, None)


def _layer_norm(self: Builder, node: Node, left: int) -> Recipe | None:
    x, w, b = (self._saved(node, f"_saved_{a}") for a in ("input", "weight", "bias"))
    module = _module_of(self, node, w)
    if x is None or not isinstance(module, nn.LayerNorm):
        return None
    shape, eps = module.normalized_shape, module.eps
    if (w is None) != (module.weight is None) or (b is None) != (module.bias is None):
        return None

    def again(v: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias = v[1] if len(v) > 1 else None, v[2] if len(v) > 2 else None
        return aten.native_layer_norm(v[0], shape, weight, bias, eps)

    given = [a for a in (x, w, b) if a is not None]
    if self.fast is Way.FUSED and len(given) == 3:
        means = [self._saved(node, "_saved_result1"), self._saved(node, "_saved_result2")]
        if means[0] is not None and means[1] is not None and _takes_rows(*given, *means):
            return _normalized_rows([*given, *means], again)  # type: ignore[list-item]
    make = lambda v, _: again(v)[0]  # noqa: E731
    return Recipe(f"layer_norm[{eps}]", make, given, ("layer_norm", eps, *shape))


def _normalized_rows(
    given: list[Handle | Kept], again: Callable[[list[Tensor]], tuple[Tensor, Tensor, Tensor]]
) -> Recipe:
    """A layer normalization by our kernel, with the statistics that are stored."""

    def make(v: list[Tensor], _: object = None) -> Tensor:
        return fused_rows(v, v[0].dtype)

    def rehearse(v: list[Tensor]) -> tuple[Tensor, Tensor]:
        values = [_hostile(v[0], 1, 5.0), _hostile(v[1], 2), _hostile(v[2], 3)]
        out, mean, invstd = again(values)
        return out, make([*values, mean, invstd])

    recipe = Recipe("normalize_rows", make, given, ("normalize_rows",))
    recipe.rehearse = rehearse
    return recipe


def _rms_norm(self: Builder, node: Node, left: int) -> Recipe | None:
    x, w = self._saved(node, "_saved_input"), self._saved(node, "_saved_weight")
    module = _module_of(self, node, w)
    if x is None or w is None or not isinstance(module, nn.RMSNorm):
        return None
    shape, eps = list(module.normalized_shape), module.eps
    make = lambda v, _: aten._fused_rms_norm(v[0], shape, v[1], eps)[0]  # noqa: E731
    return Recipe(f"rms_norm[{eps}]", make, [x, w], ("rms_norm", eps, *shape))


def _group_norm(self: Builder, node: Node, left: int) -> Recipe | None:
    x, w = self._saved(node, "_saved_input"), self._saved(node, "_saved_weight")
    module = _module_of(self, node, w)
    if x is None or not isinstance(module, nn.GroupNorm):
        return None
    if (w is None) != (module.weight is None) or (w is None) != (module.bias is None):
        return None
    sizes = [getattr(node, f"_saved_{name}") for name in ("N", "C", "HxW", "group")]
    eps = module.eps
    make = lambda v, _: aten.native_group_norm(  # noqa: E731
        v[0], v[1] if len(v) > 1 else None, v[2] if len(v) > 2 else None, *sizes, eps
    )[0]
    rest = [] if w is None else [w, _current(module.bias)]
    op = ("group_norm", eps, *sizes)
    return Recipe(f"group_norm[{sizes[3]}, {eps}]", make, [x, *rest], op)


def _batch_norm(self: Builder, node: Node, left: int) -> Recipe | None:
    """Also of instance normalization, which is one over a view."""
    x, w = self._saved(node, "_saved_input"), self._saved(node, "_saved_weight")
    module = _module_of(self, node, w)
    if x is None or not isinstance(module, nn.modules.batchnorm._NormBase):
        return None
    if (w is None) != (module.weight is None) or (w is None) != (module.bias is None):
        return None
    cudnn = kind(node).startswith("Cudnn")
    eps = node._saved_epsilon if cudnn else node._saved_eps
    affine = [] if w is None else [w, _current(module.bias)]
    operator = aten.cudnn_batch_norm if cudnn else aten.native_batch_norm
    count = len(affine)
    name = "cudnn_batch_norm" if cudnn else "native_batch_norm"

    def again(v: list[Tensor], training: bool = True) -> tuple[Tensor, ...]:
        weight, bias = v[1:3] if count else (None, None)
        mean, variance = (None, None) if training else v[1 + count :]
        return operator(v[0], weight, bias, mean, variance, training, 0.0, eps)

    if not getattr(node, "_saved_training", True):
        running = [self._saved(node, f"_saved_running_{a}") for a in ("mean", "var")]
        if self.fast or running[0] is None or running[1] is None:
            return None
        text = f"{operator}[{eps}, running]"
        given = [x, *affine, *running]
        return Recipe(text, lambda v, _: again(v, False)[0], given, (name, eps, 0))
    if not self.fast:
        text = f"{operator}[{eps}]"
        return Recipe(text, lambda v, _: again(v)[0], [x, *affine], (name, eps, 1))
    means = [self._saved(node, "_saved_result1"), self._saved(node, "_saved_result2")]
    if means[0] is None or means[1] is None or not count:
        return None

    is_ours = self.fast is Way.FUSED
    make = lambda v, _: fused(v, [], False) if is_ours else _normalized(v, eps)  # noqa: E731

    def rehearse(v: list[Tensor]) -> tuple[Tensor, Tensor]:
        """A new layer has weight 1 and bias 0, where roundings hardly differ."""
        values = [_hostile(v[0], 1, 5.0), _hostile(v[1], 2), _hostile(v[2], 3)]
        out, mean, deviation = again(values)[:3]
        return out, make([*values, mean, deviation], [])

    given = [x, *affine, *means]
    name = "normalize" if is_ours else "batch_norm_elemt"
    recipe = Recipe(f"{name}[{eps}]", make, given, ("normalize", eps, is_ours))
    recipe.rehearse = rehearse
    return recipe


def _attention(self: Builder, node: Node, left: int) -> Recipe | None:
    """With a codec alone, and not where only cheap operators may be run again."""
    may = self.is_lossy and self.most >= MOST_OPERATORS
    call = attention.call_of(node) if may else None
    found = [self._saved(node, f"_saved_{name}") for name in attention.NAMES]
    if call is None or any(x is None for x in found):
        return None
    name = attention.KINDS[kind(node)][1]
    mask = self._saved(node, f"_saved_{name}") if name else None
    text = f"attention[{node._saved_is_causal}, {node._saved_scale}]"
    make = lambda v, _: call(v[:3], v[3] if len(v) > 3 else None)[0]  # noqa: E731
    recipe = Recipe(text, make, [*found, *([] if mask is None else [mask])])
    recipe.count = self.most  # never a part of another
    return recipe


def _normalized(v: list[Tensor], eps: float) -> Tensor:
    """With statistics that are known."""
    return torch.batch_norm_elemt(v[0], v[1], v[2], v[3], v[4], eps)


_MAKE_NEW = {"NativeBatchNormBackward0", "CudnnBatchNormBackward0", "NativeGroupNormBackward0"}

BUILDERS: dict[str, Callable[[Builder, Node, int], Recipe | None]] = {
    "ReluBackward0": _relu,
    "GeluBackward0": _pointwise(
        "gelu", lambda x, how: nn.functional.gelu(x, approximate=how), "approximate"
    ),
    "SiluBackward0": _pointwise("silu", nn.functional.silu),
    "HardswishBackward0": _pointwise("hardswish", nn.functional.hardswish),
    "MishBackward0": _pointwise("mish", nn.functional.mish),
    "HardtanhBackward0": _pointwise("hardtanh", nn.functional.hardtanh, "min_val", "max_val"),
    "LeakyReluBackward0": _pointwise("leaky_relu", nn.functional.leaky_relu, "negative_slope"),
    "LeakyReluBackward1": _pointwise("leaky_relu", nn.functional.leaky_relu, "negative_slope"),
    "AddBackward0": _add,
    "MulBackward0": _mul,
    "NativeDropoutBackward0": _dropout,
    "ToCopyBackward0": _to_copy,
    "NativeLayerNormBackward0": _layer_norm,
    "FusedRmsNormBackward0": _rms_norm,
    "NativeGroupNormBackward0": _group_norm,
    "NativeBatchNormBackward0": _batch_norm,
    "CudnnBatchNormBackward0": _batch_norm,
} | dict.fromkeys(attention.KINDS, _attention)
BUILDERS |= dict.fromkeys(
    VIEWS & {"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"}, _view
)
