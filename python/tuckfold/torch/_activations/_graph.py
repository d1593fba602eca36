"""Reading autograd's graph: which node saved what, and which made a tensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tuckfold.torch._activations._saved import Handle, Kept

Node = Any

# Nodes whose output looks into the storage of their input.
VIEWS = frozenset(
    f"{name}Backward{n}"
    for name, n in (
        ("View", 0),
        ("UnsafeView", 0),
        ("ReshapeAlias", 0),
        ("Alias", 0),
        ("T", 0),
        ("Transpose", 0),
        ("Permute", 0),
        ("Unsqueeze", 0),
        ("Squeeze", 0),
        ("Squeeze", 1),
        ("Squeeze", 2),
        ("Expand", 0),
        ("Select", 0),
        ("Slice", 0),
        ("Split", 0),
        ("SplitWithSizes", 0),
        ("Unbind", 0),
        ("Narrow", 0),
        ("AsStrided", 0),
    )
)


def kind(node: Node) -> str:
    return type(node).__name__


def producer(x: Tensor) -> tuple[Node, int] | None:
    """The node that made the storage of x, through views of it, and which of its outputs that is."""
    node, output = x.grad_fn, x.output_nr
    while node is not None and kind(node) in VIEWS:
        edges = node.next_functions
        node, output = edges[0] if edges else (None, 0)
    return None if node is None else (node, output)


_RESHAPES = {"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"}


def is_reshaped(x: Tensor) -> bool:
    """Whether x is what a node made, with other sizes, but no other order of axes."""
    node = x.grad_fn
    while node is not None and kind(node) in _RESHAPES:
        node = node.next_functions[0][0]
    return node is not None and kind(node) not in VIEWS


def is_cast_leaf(node: Node) -> bool:
    """Whether a node made a leaf's copy in another type, as autocast does of parameters."""
    if kind(node) != "ToCopyBackward0":
        return False
    source = node.next_functions[0][0]
    return source is not None and kind(source) == "AccumulateGrad"


class Prober:
    """Finds what holds a node's attribute: reading the attribute calls our unpack hook."""

    def __init__(self) -> None:
        self.found: Handle | Kept | None = None
        self.asking = False

    def any(self, node: Node, attribute: str) -> Handle | Kept | None:
        self.found, self.asking = None, True
        try:
            getattr(node, attribute)
        except (AttributeError, RuntimeError):  # not of this torch; already freed
            return None
        finally:
            self.asking = False
        found, self.found = self.found, None
        return found

    def one(self, node: Node, attribute: str) -> Handle | None:
        """Of an attribute that is one tensor, not a list of them."""
        self.found, self.asking = None, True
        try:
            value = getattr(node, attribute)
        except (AttributeError, RuntimeError):
            return None
        finally:
            self.asking = False
        found, self.found = self.found, None
        return found if isinstance(found, Handle) and isinstance(value, Tensor) else None

    def __call__(self, node: Node, attribute: str) -> Handle | None:
        found = self.any(node, attribute)
        if not isinstance(found, Handle):
            return None
        found.op, found.role = kind(node), attribute.removeprefix("_saved_")
        return found
