"""Sums and outputs of attention in compiled graphs, made again where q or k is decoded; see `_attention.py`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tuckfold.torch._activations._lossy import is_exact
from tuckfold.torch._activations._split import Split, call

_aten = torch.ops.aten
_unpack = torch.ops.tuckfold.unpack.default
# By the operator of backward, that of forward, and the names of its arguments after q, k and v.
_FORWARD: dict[Any, tuple[Any, tuple[Any, ...], str]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
        (0.0, "is_causal"),
        "attn_mask",
    ),
    _aten._scaled_dot_product_flash_attention_backward.default: (
        _aten._scaled_dot_product_flash_attention.default,
        (0.0, "is_causal", False),
        "",
    ),
    _aten._scaled_dot_product_efficient_attention_backward.default: (
        _aten._scaled_dot_product_efficient_attention.default,
        ("attn_bias", True, 0.0, "is_causal"),
        "",
    ),
    _aten._scaled_dot_product_cudnn_attention_backward.default: (
        _aten._scaled_dot_product_cudnn_attention.default,
        ("attn_bias", True, 0.0, "is_causal", False),
        "",
    ),
}


def make_sums_again(split: Split) -> None:
    """Has backward's attention read the sums and the output of the q, k and v that it reads."""
    lossy = _decoded(split.backward.graph)
    for node in list(split.backward.graph.nodes):
        if node.op != "call_function" or node.target not in _FORWARD:
            continue
        forward, rest, mask = _FORWARD[node.target]
        names = [a.name for a in node.target._schema.arguments]
        given = {**dict.fromkeys(names), **dict(zip(names, node.args, strict=False)), **node.kwargs}
        if not lossy & {given["query"], given["key"]}:
            continue
        arguments = [given["query"], given["key"], given["value"]]
        arguments += [given[a] if isinstance(a, str) else a for a in rest]
        options = {"scale": given["scale"]} | ({mask: given[mask]} if mask else {})
        graph = split.backward.graph
        with graph.inserting_before(node):
            made = call(graph, split.mode, forward, *arguments, **options)
            sums = call(graph, split.mode, operator.getitem, made, 1)
            output = call(graph, split.mode, operator.getitem, made, 0)
        node.update_arg(names.index("logsumexp"), sums)
        if given["dropout_p"] == 0:
            node.update_arg(names.index("out"), output)


def _decoded(graph: fx.Graph) -> set[fx.Node]:
    """What follows from values that a codec has changed."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        is_changed = node.target is _unpack and not is_exact(node.args[1])
        if is_changed or any(n in found for n in node.all_input_nodes):
            found.add(node)
    return found
