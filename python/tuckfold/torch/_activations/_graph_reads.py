"""What the backward graph of a compiled model does with a value that a codec may change.

A product, or a smooth function, of a value with a small error has a small error, too. A comparison, a
quotient or a logarithm may have any. So a value that backward reads in another way than those listed
here is not packed with loss, as it is not in passes that are not compiled (`_lossy.py`).
"""

from __future__ import annotations

import torch
from torch import fx

from tuckfold.torch._activations._chains import is_repeatable, name_of
from tuckfold.torch._activations._split import Split, is_view, value_of

# Operators of backward that read values as factors, through smooth functions, or as sizes alone.
_BACKWARDS = {
    "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "_fused_rms_norm_backward",
    "_log_softmax_backward_data", "_softmax_backward_data", "avg_pool2d_backward", "avg_pool3d_backward",
    "batch_norm_backward", "convolution_backward", "cudnn_batch_norm_backward", "gelu_backward",
    "glu_backward", "hardswish_backward", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward", "miopen_batch_norm_backward", "mish_backward",
    "native_batch_norm_backward", "native_dropout_backward", "native_group_norm_backward",
    "native_layer_norm_backward", "reflection_pad1d_backward", "reflection_pad2d_backward",
    "replication_pad2d_backward", "sigmoid_backward", "silu_backward", "tanh_backward",
}  # fmt: skip
_CASTS = {"convert_element_type", "_to_copy", "clone"}
# Element-wise ones of which small errors make small errors.
_SMOOTH = _CASTS | {
    "abs", "add", "clamp", "clamp_max", "clamp_min", "copy", "cos", "elu", "erf", "fma", "gelu",
    "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "maximum", "minimum", "mish", "mul", "neg",
    "relu", "rsub", "sigmoid", "silu", "sin", "softplus", "square", "sub", "tanh",
}  # fmt: skip
_OTHERS = {
    "_fused_rms_norm", "_log_softmax", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_softmax", "_unsafe_index", "addbmm", "addmm", "addmv", "as_strided", "avg_pool2d", "baddbmm", "bmm",
    "cat", "constant_pad_nd", "convolution", "dot", "einsum", "empty_like", "gather", "getitem",
    "index", "index_select", "mean", "mm", "mv", "native_batch_norm", "native_dropout",
    "native_group_norm", "native_layer_norm", "new_empty", "new_zeros", "rand_like", "select_scatter",
    "settle_", "slice_scatter", "stack", "sum", "sym_size", "zeros_like", "ones_like", "full_like",
    "pack", "pack_seeded", "mask_to_bits",
}  # fmt: skip


def is_softmax(base: fx.Node) -> bool:
    """Whether it is what a softmax returned, as one operator or divided into exp, sum and div."""
    while base.op == "call_function" and (name_of(base) in _CASTS or is_view(base)):
        base = base.args[0]
    if base.op == "call_function" and name_of(base) == "div" and isinstance(base.args[0], fx.Node):
        base = base.args[0]
    if base.op == "call_function" and name_of(base) == "exp":
        return _is_less_largest(base.args[0])
    return name_of(base) in ("_softmax", "_log_softmax")


class Reads:
    """How backward reads one saved value.

    Args:
        split: the graphs.
        places: where backward gets the value, or views of it.
        gated: nodes of backward whose zeros are those of a ReLU, whatever a codec does.
    """

    def __init__(self, split: Split, places: list[fx.Node], gated: set[fx.Node]) -> None:
        self.is_smooth = True  # small errors of the value make small errors of gradients
        self.is_score = False  # backward takes exponentials of it, less a number that was saved
        self.is_gate = False  # backward asks whether it is above 0
        gradients = _after_gradients(split)
        values, seen = set(places), set(places)  # what is the value itself
        followed = list(places)
        for node in followed:
            for user in node.users:
                if is_gate_of(user, node) and (node in values or node in gated):
                    self.is_gate |= node in values
                    continue
                self._look(node, user)
                if user in seen or user in gradients or _is_of_sigmoid(user):
                    continue
                if is_view(user) or is_repeatable(user):
                    seen.add(user)
                    followed.append(user)
                    if is_view(user) and node in values:
                        values.add(user)

    def _look(self, node: fx.Node, user: fx.Node) -> None:
        name = name_of(user)
        if is_view(user) or user.op == "output" or _is_of_sigmoid(user):
            return
        if name == "exp":
            is_score = _is_less_largest(node)
            self.is_score |= is_score
            self.is_smooth &= is_score or _is_of_square(node)
        elif name in ("div", "where"):
            # As a dividend, or as what is chosen.
            self.is_smooth &= user.args[1 if name == "div" else 0] is not node
        elif name == "pow":
            self.is_smooth &= user.args[0] is node and user.args[1] in (1, 2, 3)
        elif "scaled_dot_product" not in name:
            self.is_smooth &= name in _SMOOTH or name in _OTHERS or name in _BACKWARDS


def is_gate_of(user: fx.Node, place: fx.Node) -> bool:
    """Whether it reads no more of a value than whether it is above 0."""
    if user.target is torch.ops.aten.le.Scalar:
        return user.args[1] == 0
    if user.target is torch.ops.aten.threshold_backward.default:
        return user.args[1] is place and user.args[0] is not place and user.args[2] == 0
    return False


def _is_of_sigmoid(node: fx.Node) -> bool:
    """Whether it is the exponential in 1 / (1 + exp(-x))."""
    return name_of(node) == "exp" and all(
        name_of(user) == "add" and user.args[1] == 1 for user in node.users
    )


def _after_gradients(split: Split) -> set[fx.Node]:
    """What follows from the gradients that backward is given: each is linear in them."""
    saved = {*split.saved.values(), *split.symbols.values()}
    graph = split.backward.graph
    found = {node for node in graph.find_nodes(op="placeholder") if node not in saved}
    for node in graph.nodes:
        if any(n in found for n in node.all_input_nodes):
            found.add(node)
    return found


def _is_less_largest(node: fx.Node) -> bool:
    """Whether it is a value less one that stands for many, as the scores of a softmax are."""
    while node.op == "call_function" and (name_of(node) in _CASTS or is_view(node)):
        node = node.args[0]
    if name_of(node) != "sub" or not isinstance(node.args[1], fx.Node):
        return False
    less, value = value_of(node.args[1]), value_of(node)
    return less is not None and value is not None and less.numel() < value.numel()


def _is_of_square(node: fx.Node) -> bool:
    """Whether it is a square, by a number: the exponential of GELU's derivative."""
    while name_of(node) in ("mul", "div", "neg") and node.op == "call_function":
        first, second = (*node.args, None)[:2]
        if name_of(node) == "mul" and first is second:
            return True
        if isinstance(second, fx.Node):
            return False
        node = first
    return name_of(node) == "pow" and node.args[1] == 2
