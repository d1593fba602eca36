"""Records what a pass in Python did, and makes a program of it that C++ can repeat.

What C++ does not know, such as a node that is not in its table, a form that looks at values, or a
part in another stream, has the passes stay in Python.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations import _forms as forms
from tuckfold.torch._activations import _products as products
from tuckfold.torch._activations._attention import KINDS
from tuckfold.torch._activations._finite import group_of, key_of
from tuckfold.torch._activations._graph import kind
from tuckfold.torch._activations._lossy import Lossy, is_exact
from tuckfold.torch._activations._native import Compiled, Norm
from tuckfold.torch._activations._program import Slot
from tuckfold.torch._activations._recipe import PRODUCTS, Recipe, Recomputed
from tuckfold.torch._activations._recompute import MOST_COPIED
from tuckfold.torch._activations._saved import Form, Handle, Kept, Record
from tuckfold.torch._memory import is_dense

if TYPE_CHECKING:
    from tuckfold.torch._activations._steady import Describer, Steady

Node = Any
# In the order of src/torch/hooks/program.h.
_FORMS = ("nothing", "bits", "above", "regions", "narrow", "codec", "lossy", "recompute", "mask")
_CODES = (
    "relu", "gelu", "silu", "hardswish", "mish", "hardtanh", "leaky_relu", "add", "mul", "dropout",
    "to", "view", "layer_norm", "rms_norm", "group_norm", "native_batch_norm", "cudnn_batch_norm",
    "normalize", "normalize_rows", "addmm", "mm",
)  # fmt: skip
_PLACES = ("child", "saved", "input", "nested", "parameter")
# In the order of src/torch/hooks/kinds.cc.
CONSTANTS: dict[str, tuple[str, ...]] = {
    "NativeLayerNormBackward0": ("normalized_shape",),
    "FusedRmsNormBackward0": ("normalized_shape",),
    "NativeGroupNormBackward0": ("N", "C", "HxW", "group", "eps"),
    "NativeBatchNormBackward0": ("eps", "training"),
    "CudnnBatchNormBackward0": ("epsilon", "training"),
    "GeluBackward0": ("approximate",),
    "HardtanhBackward0": ("min_val", "max_val"),
    "LeakyReluBackward0": ("negative_slope",),
    "LeakyReluBackward1": ("negative_slope",),
    "NativeDropoutBackward0": ("p",),
    "PowBackward0": ("exponent",),
    "AddBackward0": ("alpha",),
    "AddmmBackward0": ("alpha", "beta"),
    "MaxPool2DWithIndicesBackward0": ("kernel_size", "stride", "padding", "dilation"),
    "EmbeddingBackward0": ("weight_sym_argsize_0",),
}


CONSTANTS |= dict.fromkeys(KINDS, ("is_causal", "scale", "dropout_p"))
_NONE = -1e300  # as kinds.cc has it


class Unknown(Exception):
    """C++ cannot do this."""


def numbers_of(value: object) -> list[float]:
    if isinstance(value, str):
        return [{"none": 0.0, "tanh": 1.0}.get(value, -1.0)]
    if isinstance(value, (tuple, list)):
        return [float(len(value)), *(n for each in value for n in numbers_of(each))]
    if value is None:
        return [math.nan]
    if isinstance(value, complex):
        raise Unknown("a complex constant")
    return [float(value)]  # type: ignore[arg-type]


def signature_of(node: Node) -> list[float]:
    """As `signature_of` of kinds.cc: which inputs have gradients, and constants."""
    edges = 1
    for edge in node.next_functions:
        edges = 2 * edges + (edge[0] is not None)
    names = CONSTANTS.get(kind(node), ())
    numbers = [n for name in names for n in numbers_of(getattr(node, f"_saved_{name}"))]
    return [float(edges), *(_NONE if math.isnan(n) else n for n in numbers)]


def _like(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(0, dtype=dtype, device=device)


class Place(Kept):
    """A leaf of a recipe, and where it was found."""

    __slots__ = ("leaf", "tag")

    def __init__(self, leaf: Handle | Kept | None, *tag: Any) -> None:
        tensor = getattr(leaf, "tensor", None)
        super().__init__(tensor, 0, getattr(leaf, "origin", None))
        self.leaf, self.tag = leaf, tag


class Recorder:
    """Of one pass."""

    def __init__(self) -> None:
        self.slots: dict[int, list[Slot]] = {}  # of groups, as they were hooked
        self.found: dict[int, tuple[Record, list[Handle], list[Form]]] = {}
        self.recipes: dict[int, Recipe] = {}

    def hooked(self, slot: Slot) -> None:
        self.slots.setdefault(slot.group, []).append(slot)

    def stored(self, group: int, record: Record, handles: list[Handle], found: list[Form]) -> None:
        self.found[group] = record, handles, found

    def described(self, group: int, describer: Describer, node: Node, how: Any) -> None:
        recipe = describer.replay(node, how)
        if recipe is not None:
            self.recipes[group] = recipe

    def compiled(self, run: Steady) -> Compiled | None:
        """The program in C++; None where something was not stored this time."""
        if len(self.found) != len(run.program.groups):
            return None
        return _Compiler(self, run).done()


class _Compiler:
    def __init__(self, recorder: Recorder, run: Steady) -> None:
        self.recorder, self.run, self.program = recorder, run, run.program
        parameters = run.owner.model.parameters()
        self.device = next((p.device for p in parameters), torch.device("cpu"))
        self.native = torch.classes.tuckfold_hooks.Program(
            len(self.program.groups), self.program.is_lossy, torch.empty(0, device=self.device)
        )
        self.targets: dict[int, int] = {}  # numbers by key
        self.parameters: dict[int, int] = {}
        self.norms: dict[int, Norm] = {}

    def done(self) -> Compiled:
        program = self.program
        all_targets = [t for _, targets in program.sequence for t in targets] + program.last
        for t in all_targets:
            node = self.run.nodes[t.key]
            number = self.native.add_target(t.kind, t.output, list(t.path), signature_of(node))
            if number < 0:
                raise Unknown(t.kind)
            self.targets[t.key] = number
        forms_of_slots = [self._group(number) for number in range(len(program.groups))]
        for t in all_targets:
            for slot in t.slots:
                self._slot(self.targets[t.key], slot, *forms_of_slots[slot.group][id(slot)])
            if self.run.may_change_sums(t):
                self.native.make_sums(self.targets[t.key])
        for number in self.recorder.recipes:
            self._recipe(number)
        for module, targets in program.sequence:
            self.native.add_step(module, [self.targets[t.key] for t in targets])
        self.native.set_last([self.targets[t.key] for t in program.last])
        handles = [self.recorder.found[n][1] for n in range(len(program.groups))]
        has_products = any(r.op[:1] in PRODUCTS for r in self.recorder.recipes.values())
        settings = products.settings() if has_products else None
        return Compiled(
            self.native,
            self.native.address(),
            program.modules,
            program.is_lossy,
            [key_of(each) for each in handles],
            [n for n, each in enumerate(handles) if each[0].device.type != "cpu"],
            self.device,
            list(self.norms.values()),
            settings,
        )

    def _group(self, number: int) -> dict[int, tuple[int, Handle, Record]]:
        """Adds a group and its forms; which of them each slot has."""
        group = self.program.groups[number]
        record, handles, found = self.recorder.found[number]
        if group.stream is not None:
            raise Unknown("another stream")
        self.native.set_group(number, record.nbytes, group.first, group.tensor)
        distinct: list[Form] = []
        result = {}
        for slot, h, form in zip(self.recorder.slots[number], handles, found, strict=True):
            if not any(form is other for other in distinct):
                distinct.append(form)
            place = next(i for i, other in enumerate(distinct) if other is form)
            result[id(slot)] = place, h, record
        for form in distinct:
            h = next(h for h, f in zip(handles, found, strict=True) if f is form)
            self._form(number, form, h, distinct, record, handles)
        return result

    def _form(
        self,
        number: int,
        form: Form,
        h: Handle,
        distinct: list[Form],
        record: Record,
        handles: list[Handle],
    ) -> None:
        name, codec, limits, dtype = "", "", [], torch.uint8
        is_row, mask, group, changes = False, -1, 0, False
        if isinstance(form, forms.Nothing):
            name = "nothing"
        elif isinstance(form, forms.Bits) and form.label == "1 bit":
            name = "bits" if (form.low, form.high) == (0, 1) else "above"
        elif isinstance(form, forms.Bits) and form.label == "mask":
            name = "mask"
        elif isinstance(form, forms.Regions):
            name, limits = "regions", [float(n) for n in h.limits]
        elif isinstance(form, forms.Narrow) and h.need == "below":
            name, dtype = "narrow", form.values.dtype
        elif isinstance(form, forms.Codec):
            name, codec = "codec", form.spec
        elif isinstance(form, Recomputed):
            name = "recompute"
        elif isinstance(form, Lossy):
            if not form.changes:
                raise Unknown("the CPU's memory")
            name, codec, is_row = "lossy", form.label, len(form.shape) == 1
            group, changes = group_of(form.label), not is_exact(form.label)
            if form.mask is not None:
                mask = next(i for i, other in enumerate(distinct) if other is form.mask)
            first = next((h for h in handles if _fills(h, record)), None)
            if not is_row and (first is None or first.shape != form.shape):
                raise Unknown("a part of a storage")
        if not name:
            raise Unknown(f"{type(form).__name__} of {h.role}")
        if name == "recompute" and number not in self.recorder.recipes:
            raise Unknown("a recipe")
        like = _like(dtype, torch.device("cpu"))
        self.native.add_form(
            number, _FORMS.index(name), codec, limits, like, is_row, mask, group, changes
        )

    def _slot(self, target: int, slot: Slot, form: int, h: Handle, record: Record) -> None:
        like = slot.like
        is_value, fills = h.need == "value", _fills(h, record)
        flags = 0
        for bit, flag in enumerate(
            (like.is_direct, like.is_reshaped, like.is_output, like.is_copy, is_value, fills)
        ):
            flags |= bool(flag) << bit
        name, output = like.origin or ("", 0)
        if not self.native.add_slot(
            target, slot.role, slot.group, form, list(like.shape), list(like.strides), like.offset,
            _like(like.dtype, like.device), flags, name, output,
        ):  # fmt: skip
            raise Unknown(slot.role)

    def _recipe(self, number: int) -> None:
        how = self.program.groups[number].recomputation
        assert how is not None
        # The last operator first; those that make its arguments follow.
        order = [self.recorder.recipes[number]]
        for recipe in order:
            order += [a for a in recipe.arguments if isinstance(a, Recipe)]
        for recipe in order:
            self._operator(number, self.targets[how.node], recipe)
        for i, recipe in enumerate(order):
            for argument in recipe.arguments:
                self._argument(number, i, recipe, argument, order)

    def _operator(self, number: int, target: int, recipe: Recipe) -> None:
        if not recipe.op or recipe.op[0] not in _CODES:
            raise Unknown(recipe.text)
        weights = [a for a in recipe.arguments if isinstance(a, Place) and a.tag[-1] == "weight"]
        if recipe.op[0] in ("layer_norm", "rms_norm") and not weights:
            raise Unknown("a normalization without a weight")  # whose epsilon may have changed
        out = recipe.node._input_metadata[0]
        values = [v for v in recipe.op[1:] if not isinstance(v, torch.dtype)]
        constants = [n for value in values for n in numbers_of(value)]
        if not self.native.add_operator(
            number, target, _CODES.index(recipe.op[0]), constants, kind(recipe.node),
            signature_of(recipe.node), list(out.shape), _like(out.dtype, torch.device("cpu")),
        ):  # fmt: skip
            raise Unknown(kind(recipe.node))

    def _argument(
        self, number: int, i: int, recipe: Recipe, argument: Any, order: list[Recipe]
    ) -> None:
        place, child, position, target, role = "parameter", 0, 0, -1, ""
        is_output, parameter, leaf = False, -1, argument
        if isinstance(argument, Recipe):
            place, position = "child", argument.place
            child = next(n for n, other in enumerate(order) if other is argument)
        elif isinstance(argument, Place):
            leaf, place = argument.leaf, argument.tag[0]
            if place == "saved":
                role = argument.tag[1]
                if role == "weight":
                    parameter = self._norm(leaf)
            else:
                _, position, key, role, is_output = argument.tag
                target = self.targets[key]
        else:
            parameter = self._parameter(argument.tensor)
        has_leaf = place in ("saved", "input", "parameter")
        is_leaf = has_leaf and leaf.is_leaf
        meta = _meta(leaf) if has_leaf else ((), (), torch.float32, torch.device("cpu"))
        is_shared = recipe.op[:1] in PRODUCTS
        is_own = role in ("result1", "result2") and not isinstance(leaf, Handle)
        is_copied = is_leaf and not is_own and _is_copied(leaf.tensor)
        flags = is_output | is_leaf << 1 | is_copied << 2
        flags |= is_shared << 3
        if not self.native.add_argument(
            number, i, _PLACES.index(place), child, position, target, role, int(flags), parameter,
            list(meta[0]), list(meta[1]), _like(*meta[2:]),
        ):  # fmt: skip
            raise Unknown(role)

    def _parameter(self, tensor: Tensor) -> int:
        if id(tensor) not in self.parameters:
            self.parameters[id(tensor)] = self.native.add_parameter(tensor)
        return self.parameters[id(tensor)]

    def _norm(self, weight: Handle | Kept) -> int:
        """The weight of a normalization, whose module has constants that no node has."""
        module = self.run.builder.modules.get(id(weight.tensor))
        if module is None:
            raise Unknown("a normalization without a module")
        own = module._parameters.get("weight")
        if own is not weight.tensor:
            raise Unknown("a weight that is no parameter")
        bias = module._parameters.get("bias")
        if bias is not getattr(module, "bias", None):
            raise Unknown("a bias that is no parameter")
        self.norms[id(module)] = Norm(module, module.eps, own, bias)
        return self._parameter(own)


def _meta(leaf: Handle | Kept) -> tuple[Any, ...]:
    if isinstance(leaf, Handle):
        return leaf.shape, leaf.strides, leaf.dtype, leaf.device
    x = leaf.tensor
    return x.shape, x.stride(), x.dtype, x.device


def _is_copied(x: Tensor) -> bool:
    return x.nbytes <= MOST_COPIED[isinstance(x, nn.Parameter)]


def _fills(h: Handle, record: Record) -> bool:
    if h.offset != 0 or h.shape.numel() * h.dtype.itemsize != record.nbytes:
        return False
    return is_dense(torch.empty_strided(h.shape, h.strides, device="meta"))
