"""A callback for the Trainer of Hugging Face's transformers: the model is wrapped while it is trained.

>>> import transformers, tuckfold.transformers
>>> callback = tuckfold.transformers.Activations(budget="4GiB")
>>> trainer = transformers.Trainer(model, callbacks=[callback])  # doctest: +SKIP
"""

from __future__ import annotations

import importlib.util
from typing import Any

if importlib.util.find_spec("transformers") is None:
    raise ModuleNotFoundError(
        "tuckfold.transformers needs Hugging Face's transformers; install it (pip install transformers)",
        name="transformers",
    )

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tuckfold.torch import _activations
from tuckfold.torch._training import Wrapping

__all__ = ["Activations"]


class Activations(TrainerCallback):
    """Wraps the model when train begins, and leaves it as it was when train ends; checkpoints do not change.

    With a budget, or noise, the first batch is fitted, with the loss that the model returns, and the state of the optimizer
    counts.

    Args:
        module: the path of the part that is called, where it is not the model itself.
        options: those of :func:`tuckfold.torch.wrap`.
    """

    def __init__(self, *, module: str = "", **options: Any) -> None:
        self._wrapping = Wrapping("transformers.Activations", module, options)

    @property
    def handle(self) -> _activations.Activations | None:
        """That of the wrapped model, while it is trained."""
        return self._wrapping.handle

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer calls it."""
        self._wrapping.begin(kwargs["model"])
        if kwargs.get("optimizer") is not None:
            self._wrapping.know([kwargs["optimizer"]])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer calls it."""
        self._wrapping.step_ended()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer calls it."""
        self._wrapping.end()
