"""What a wrapped model should reach, a budget of bytes or of noise, and what was chosen for that."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tuckfold.torch._activations import _budget, _peak
from tuckfold.torch._activations._lossy import Usual
from tuckfold.torch._activations._peak import bytes_of
from tuckfold.torch._activations._plan import scalar_of
from tuckfold.torch._activations._saved import Handle

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

# On a GPU, steps of training are compared with the budget. The first passes are watched and hold more
# than those after them, so they do not count, unless passes never repeat.
_STEPS = 4
_WATCHED = 8
_REFITS = 3


class Goal:
    """Of one wrapped model.

    Args:
        budget: bytes; or None.
        noise: where there is no budget, the variance that codecs may add.
        codec: the only one to be used, or None for a choice of several.
        link: bytes a second that go to the CPU's memory and back, 0 to measure it; None: nothing goes there.
    """

    def __init__(
        self, budget: int | None, noise: float, codec: str | None, link: float | None = None
    ) -> None:
        self.budget, self.noise, self.codec, self.link = budget, noise, codec, link
        self.weights: dict[Any, float] = {}  # parts of the noise, where they were measured
        self.unit = 1.0  # of noise, over the gradient's square
        self.margin = 0  # bytes that steps took beyond what was expected
        self.fitted: _budget.Fit | None = None
        self._smallest = _budget.smallest(_budget.menu_of(codec))
        self.chosen: dict[Any, str] = {}
        self.is_open = False  # whether all else is stored as small as it goes, to be watched
        self.is_fitting = False
        self._inputs = 0  # bytes that were fitted
        self._optimizer: Callable[[], torch.optim.Optimizer | None] = lambda: None
        self._passes = self._steps = self._refits = 0

    def __str__(self) -> str:
        return f"{self.budget} {self.noise} {self.link}"

    def choice(self, handles: list[Handle], may_recompute: bool) -> tuple[bool, str | None] | None:
        """As `Activations.policy`."""
        h = handles[0]
        how = self.chosen.get((h.number, h.op, len(handles)))
        if how == "keep":
            return None
        if how is None or how == "recompute":
            # What nobody has chosen a codec for keeps every bit.
            return may_recompute, Usual(self._smallest) if self.is_open else None
        return False, how

    def decide(self, act: Activations, chosen: dict[Any, str], is_open: bool = False) -> None:
        self.chosen, self.is_open = chosen, is_open
        act.forget()

    def fit(
        self,
        act: Activations,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        target: Any,
        loss: Callable[..., Any],
        optimizer: torch.optim.Optimizer | None,
    ) -> _budget.Fit:
        self.is_fitting = True
        before = self.chosen
        try:
            self.fitted = _budget.fit(self, act, inputs, keywords, target, loss, optimizer)
            self._inputs = bytes_of(torch.utils._pytree.tree_leaves((inputs, keywords)))
            self._passes = self._steps = 0
            act.remember(inputs, keywords)
        except BaseException:
            self.decide(act, before)
            raise
        finally:
            self.is_fitting = False
        return self.fitted

    def state_dict(self) -> dict[str, Any]:
        """As `Activations.state_dict`."""
        return {
            "chosen": dict(self.chosen),
            "weights": dict(self.weights),
            "unit": self.unit,
            "margin": self.margin,
            "inputs": self._inputs,
            "fitted": None if self.fitted is None else dataclasses.asdict(self.fitted),
        }

    def load_state_dict(self, act: Activations, state: dict[str, Any]) -> None:
        fitted = state["fitted"]
        if fitted is not None:
            fitted = _budget.Fit(**fitted | {"peak": _peak.Peak(**fitted["peak"])})
        self.weights, self.unit, self.margin = state["weights"], state["unit"], state["margin"]
        self._inputs, self.fitted = state["inputs"], fitted
        self.decide(act, state["chosen"])

    def expect(self, optimizer: torch.optim.Optimizer) -> None:
        """Whose state counts in the first pass, if its size is known before a step of it."""
        if optimizer.state or type(optimizer) in _peak.KNOWN_STATES:
            self._optimizer = weakref.ref(optimizer)

    def before(self, act: Activations, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A pass is about to begin: the first, or one with larger inputs, or after steps that took more
        than the budget."""
        if self.is_fitting or not act.model.training:
            return
        is_new = self.fitted is None
        if not is_new and self.budget is not None and act.is_on_gpu:
            is_new = self._is_exceeded(act, self.budget)
        if not is_new:
            given = bytes_of(torch.utils._pytree.tree_leaves((inputs, keywords)))
            is_new = given > self._inputs
        if is_new:
            self.fit(act, inputs, keywords, (), scalar_of, self._optimizer())

    def _is_exceeded(self, act: Activations, budget: int) -> bool:
        """Whether steps that repeat took more than the budget: then the margin has what they took more."""
        self._passes += 1
        if self._steps > _STEPS or not (act.repeats or self._passes > _WATCHED):
            return False
        self._steps += 1
        if self._steps == 1:
            torch.cuda.reset_peak_memory_stats()
            return False
        over = torch.cuda.max_memory_allocated() - budget
        if over <= 0 or self._refits == _REFITS:
            return False
        self._refits += 1
        self.margin += over
        return True
