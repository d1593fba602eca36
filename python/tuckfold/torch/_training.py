"""What the callbacks for training frameworks share: a model is wrapped while it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tuckfold.torch._activations import Activations, wrap
from tuckfold.torch._activations._warn import warn


class Wrapping:
    """From the begin of a training to its end.

    Args:
        name: of the callback, for messages.
        module: the path of the part that training steps call; empty for the whole model.
        options: those of wrap.
    """

    def __init__(self, name: str, module: str, options: dict[str, Any]) -> None:
        self.name, self.module, self.options = name, module, options
        self.handle: Activations | None = None
        self._is_called = False
        self._hook: Any = None

    def begin(self, model: nn.Module) -> Activations:
        """Wraps it; a training that ended in an error may have left its own wrapping."""
        self.end()
        try:
            part = model.get_submodule(self.module)
        except AttributeError:
            names = ", ".join(name for name, _ in model.named_children())
            raise ValueError(
                f"[{self.name}] module must be the path of a part of {type(model).__name__}, which has "
                f"{names}; got {self.module!r}"
            ) from None
        self.handle = wrap(part, **self.options)
        self._is_called = False
        self._hook = part.register_forward_pre_hook(self._called)
        return self.handle

    def know(self, optimizers: Sequence[Any]) -> None:
        """The optimizer, whose state counts within a budget; of several, none does."""
        if self.handle is not None and self.handle.goal is not None and len(optimizers) == 1:
            # accelerate has a class around it.
            self.handle.goal.expect(getattr(optimizers[0], "optimizer", optimizers[0]))

    def step_ended(self) -> None:
        """Once: whether the step has called what is wrapped."""
        if self._hook is None:
            return
        self._hook.remove()
        self._hook = None
        if not self._is_called:
            warn(
                f"[{self.name}] the training step did not call {self.module or 'the model itself'}, so nothing "
                "is stored differently; give module= the path of the part that it calls"
            )

    def end(self) -> None:
        """Leaves the model as it was."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def _called(self, *_: object) -> None:
        self._is_called = self._is_called or torch.is_grad_enabled()
