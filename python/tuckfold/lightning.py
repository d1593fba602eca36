"""A callback for Lightning's Trainer: the model is wrapped while it is fitted.

>>> import lightning, tuckfold.lightning
>>> callback = tuckfold.lightning.Activations(budget="4GiB")
>>> trainer = lightning.Trainer(callbacks=[callback], max_epochs=1)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib.util
from typing import Any

if importlib.util.find_spec("lightning") is None:
    raise ModuleNotFoundError(
        "tuckfold.lightning needs Lightning; install it (pip install lightning)", name="lightning"
    )

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from tuckfold.torch import _activations
from tuckfold.torch._training import Wrapping

__all__ = ["Activations"]


class Activations(Callback):
    """Wraps the model when fit begins, and leaves it as it was when fit ends; checkpoints do not change.

    With a budget, or noise, the first batch of training is fitted, and the state of the optimizer counts, if there is
    one optimizer.

    Args:
        module: the path of the part that training_step calls, such as ``"net"``, where it does not call the module itself.
        options: those of :func:`tuckfold.torch.wrap`.
    """

    def __init__(self, *, module: str = "", **options: Any) -> None:
        self._wrapping = Wrapping("lightning.Activations", module, options)

    @property
    def handle(self) -> _activations.Activations | None:
        """That of the wrapped model, while it is fitted."""
        return self._wrapping.handle

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning calls it."""
        self._wrapping.begin(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning calls it."""
        self._wrapping.know(trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Lightning calls it."""
        self._wrapping.step_ended()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning calls it."""
        self._wrapping.end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Lightning calls it."""
        self._wrapping.end()
