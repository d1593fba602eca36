"""Values that are made again in backward, by the operator that made them, from what is stored anyway.

A recipe follows autograd's graph from the node that made a storage to values that stay: inputs of
normalizations, of GELU, masks of dropout. Whether the operator gives the same bits again is not
assumed: `_proof.py` compares them on the device before a recipe is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations import _attention as attention
from tuckfold.torch._activations import _products as products
from tuckfold.torch._activations._graph import VIEWS, Prober, kind
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._recipe import (
    Recipe,
    Recomputed,
    Way,
    fused,
    fused_rows,
    takes_rows,
)
from tuckfold.torch._activations._saved import Copied, Handle, Kept, Own

aten = torch.ops.aten
Node = Any
MOST_OPERATORS = 4  # of one recipe, unless the user says otherwise
MOST_COPIED = {True: 1 << 20, False: 1 << 16}  # bytes of a parameter, and of a buffer or an input


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
        self.flops = 0.0  # that products may still take, if they are made again
        self.waits = False  # whether an answer to a comparison was missing
        # What `_input` found for the recipe that was built last; True: it took the handle's recipe.
        self.found: list[tuple[Handle, bool] | None] = []

    def recipe(self, node: Node, fast: Way) -> Recipe | None:
        """How the node's first output is made again, or None."""
        self.fast, self.found = fast, []
        if kind(node) in products.KINDS:
            if not 0 < products.flops(node) <= self.flops:
                return None
            recipe = products.recipe(self, node)
            return None if recipe is None else self.settled(recipe)
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
            elif not isinstance(argument, (Copied, Own)) and argument.is_leaf:
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

    def _saved(self, node: Node, attribute: str, made_again: bool = False) -> Handle | Kept | None:
        """A stored value that the node saved."""
        if node._sequence_nr() not in self.ours:
            return None
        found = self.probe.any(node, attribute)
        return found if is_whole(found, made_again) else None

    def shared(self, node: Node, attribute: str) -> Handle | Kept | None:
        """The same, and what is made again where it is read: it stays until its own reader has come."""
        return self._saved(node, attribute, made_again=True)

    def statistics(self, node: Node) -> list[Handle | Kept | None]:
        """Mean and deviation, which a normalization made beside its output."""
        found = [self._saved(node, f"_saved_result{i}") for i in (1, 2)]
        return [Own(s.tensor, s.version, s.origin) if type(s) is Kept else s for s in found]

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
        is_recipe = isinstance(form, Recomputed) and not form.whole
        if handle is not None and self.is_lossy and not is_recipe and handle.need != "value":
            handle = _read_whole(handle)
            form = handle.form
            is_recipe = isinstance(form, Recomputed)
        is_there = form is None or isinstance(form, (Lossy, Recomputed))
        if handle is not None and is_as_made(handle) and is_there:
            self.found.append((handle, is_recipe))
            return form.recipe if is_recipe else handle  # type: ignore[union-attr]
        self.found.append(None)
        return self._build(source, left - 1) if output == 0 else None


def is_whole(found: Handle | Kept | None, made_again: bool) -> bool:
    """Whether its values can be read. What element-wise operators make again, recipes make for themselves, unless they say
    otherwise."""
    form = found.form if isinstance(found, Handle) else None
    return form is None or form.whole or (made_again and isinstance(form, Recomputed))


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
        means = self.statistics(node)
        if means[0] is not None and means[1] is not None and takes_rows(*given, *means):
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
    means = self.statistics(node)
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
    found = [self._saved(node, f"_saved_{name}") for name in attention.NAMES]
    if not may or attention.drops(node) or any(x is None for x in found):
        return None
    call = attention.call_of(node)
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
# Nodes whose output may be made again.
MAKERS = BUILDERS.keys() | products.KINDS.keys()
