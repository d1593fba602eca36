"""What of a compiled graph belongs to calls of a wrapped model: the graph may be that of more.

As in passes that are not compiled, a codec may store what these calls alone save for backward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import fx, nn


def _frame() -> Any:
    """The function that torch.compile works on; None if it is not told."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return InstructionTranslator.current_tx().output.root_tx
    except AttributeError:  # another torch, or another caller
        return None


def _is_of(model: nn.Module, frame: Any) -> bool:
    """Whether a function that does not call the model is part of its call: a method of it or of its parts."""
    own = set(model.modules())
    modules = [v for v in frame.f_locals.values() if isinstance(v, nn.Module)]
    return bool(modules) and all(m in own for m in modules)


def places_in(model: nn.Module) -> str:
    """A digest of which modules call the operators of the graph that is being compiled, for torch's caches:
    these know graphs by their operators alone."""
    frame = _frame()
    if frame is None:
        return ""
    names = {str(id(m)): f"{name}:{type(m).__name__}" for name, m in model.named_modules()}
    lines = [str(_is_of(model, frame))]
    for node in frame.output.graph.nodes:
        stack = node.meta.get("nn_module_stack") or ()
        lines.append(" ".join(names.get(key.partition("@")[0], "?") for key in stack))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Inside:
    """Of one graph.

    Args:
        model: the wrapped one.
        forward: the graph.
    """

    def __init__(self, model: nn.Module, forward: fx.GraphModule) -> None:
        self._key = str(id(model))
        stacks = (node.meta.get("nn_module_stack") for node in forward.graph.nodes)
        frame = _frame()
        # Where the function is the model's own, its call is not in the graph.
        self._is_all = not any(map(self._has_call, stacks)) and (
            frame is None or _is_of(model, frame)
        )

    def _has_call(self, stack: Any) -> bool:
        return any(key.partition("@")[0] == self._key for key in stack or ())

    def reads(self, places: Iterable[fx.Node]) -> bool:
        """Whether the model's calls alone read these values in backward, also through what is made of them."""
        if self._is_all:
            return True
        looked, seen = list(places), set()
        for node in looked:
            for user in node.users:
                if user in seen:
                    continue
                seen.add(user)
                if user.op == "output":
                    return False
                stack = user.meta.get("fwd_nn_module_stack")
                if stack or "backward" in str(user.meta.get("partitioner_tag")):
                    if not self._has_call(stack):
                        return False
                else:  # an operator of forward that runs again
                    looked.append(user)
        return True
