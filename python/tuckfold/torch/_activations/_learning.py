"""Which passes are watched in full, which is surveyed, and which repeat it."""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuckfold.torch._activations._graph import VIEWS, kind
from tuckfold.torch._activations._native import Native
from tuckfold.torch._activations._program import Program, Survey
from tuckfold.torch._activations._record import Recorder
from tuckfold.torch._activations._run import Run
from tuckfold.torch._activations._steady import MOST_TRIES, Steady

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_log = logging.getLogger("tuckfold.activations")
_WATCHED = 2  # passes before the one that is surveyed; a GPU has answered its comparisons by then
_SURVEYS = 6  # in vain, until passes are watched in full for good
_FAILURES = 3  # passes that differed from the program, likewise
_REFUSALS = 2  # of programs by C++, until passes stay in Python
_KINDS = 16  # of inputs that are remembered separately
Repeating = (Steady, Native)


@dataclass
class _State:
    """What is known of passes with inputs of the same sizes and types."""

    passes: int = 0
    surveys: int = 0
    failures: int = 0
    flops: int = 0  # of products
    nbytes: int = 0  # that were saved
    program: Program | None = None
    refusals: int = 0  # programs that C++ did not repeat once


class _End:
    """The hook at the end of a module. It holds nothing, and a copy of the module does not inherit it."""

    def __init__(self, learning: Learning | None, number: int = 0) -> None:
        self.learning = None if learning is None else weakref.ref(learning)
        self.number = number

    def __call__(self, module: nn.Module, arguments: object, output: object) -> None:
        if torch.compiler.is_compiling() or self.learning is None:
            return
        learning = self.learning()
        if learning is not None:
            passes = getattr(learning._local, "passes", None)
            if passes and type(passes[-1][0]) is Native:  # the shortest way
                passes[-1][0].ended(self.number, output)
            else:
                self.ended(learning, module, output)

    def ended(self, learning: Learning, module: nn.Module, output: object) -> None:
        learning.ended(self.number, output)

    def __deepcopy__(self, memo: object) -> _End:
        return type(self)(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None,)


class NormEnd(_End):
    """Of a normalization without weight: says which node is its own, since the node has no epsilon."""

    def ended(self, learning: Learning, module: nn.Module, output: object) -> None:
        run = learning.current()
        node = output.grad_fn if isinstance(output, Tensor) else None
        while node is not None and kind(node) in VIEWS:
            node = node.next_functions[0][0]
        if isinstance(run, (Run, Steady)) and node is not None:
            run.builder.modules["node", node._sequence_nr()] = module


class Learning:
    """Of one wrapped model."""

    def __init__(self, owner: Activations) -> None:
        self.owner = weakref.ref(owner)
        self._states: dict[tuple[object, ...], _State] = {}
        self._parameters: list[weakref.ref[Tensor]] = []
        self._local = threading.local()
        self._hooks: dict[int, Any] = {}  # by the module's number, for programs
        self._lock = threading.Lock()
        self._is_surveying = False
        self.stored = 0  # tensors, by the last pass that repeated an earlier one

    def begin(
        self, model: nn.Module, arguments: tuple[Any, ...], keywords: Any
    ) -> Run | Steady | Native:
        """The pass that is to come."""
        owner = self.owner()
        assert owner is not None
        trained = self._trained(model)
        key = (trained, model.training, *map(_kind, arguments), *map(_kind, keywords.values()))
        with self._lock:
            state = self._states.get(key)
            known = (0, 0) if state is None else (state.flops, state.nbytes)
            if owner.trace is not None:
                return self._enter(Run(owner, *known), None, [])
            if state is None:
                state = _State()
                if len(self._states) == _KINDS:  # what was frozen otherwise comes back seldom
                    self._states = {k: v for k, v in self._states.items() if k[0] == trained}
                if len(self._states) < _KINDS:
                    self._states[key] = state
            if state.program is not None:
                return self._enter(_repeating(owner, state), state, [])
            self._parameters = []  # looked for anew, until passes repeat
            run = Run(owner, *known)
            state.passes += 1
            hooks: list[Any] = []
            may = state.surveys < _SURVEYS and state.failures < _FAILURES
            if state.passes > _WATCHED and may and not self._is_surveying:
                self._is_surveying = True
                state.surveys += 1
                run.survey = Survey(run.first, owner.stream, owner.is_lossy, _parents(model))
                for number, module in enumerate(model.modules()):
                    if module is not model and number not in self._hooks:
                        hooks.append(module.register_forward_hook(_End(self, number)))
        return self._enter(run, state, hooks)

    def _trained(self, model: nn.Module) -> bytes:
        """Which parameters require a gradient: with others, other tensors are saved."""
        if self._parameters:
            try:
                return bytes([p().requires_grad for p in self._parameters])  # type: ignore[union-attr]
            except AttributeError:  # one of them is gone
                pass
        self._parameters = [weakref.ref(p) for p in model.parameters()]
        return bytes([p.requires_grad for p in model.parameters()])

    def _enter(
        self, run: Run | Steady | Native, state: _State | None, hooks: list[Any]
    ) -> Run | Steady | Native:
        if not hasattr(self._local, "passes"):
            self._local.passes = []
        self._local.passes.append((run, state, hooks))
        return run

    @property
    def repeats(self) -> bool:
        """Whether passes repeat a program, and none differed from it."""
        return any(s.program is not None and not s.failures for s in self._states.values())

    def current(self) -> Run | Steady | Native | None:
        """The pass that this thread is in."""
        passes = getattr(self._local, "passes", None)
        return passes[-1][0] if passes else None

    def ended(self, number: int, output: object) -> None:
        """A module has returned."""
        run = self.current()
        if run is None:
            return
        if isinstance(run, Repeating):
            run.ended(number, output)
        elif run.survey is not None:
            try:
                run.survey.ended(number, output)
            except Exception as error:
                run.owner.note(error)
                run.survey = None

    def end(self, run: Run | Steady | Native, result: object) -> None:
        """The pass is over, or was interrupted."""
        passes = getattr(self._local, "passes", [])
        while passes:
            other, state, hooks = passes.pop()
            for hook in hooks:
                hook.remove()
            if hooks:
                self._is_surveying = False
            if other is run:
                self._learn(run, state, result)
                return

    def _learn(self, run: Run | Steady | Native, state: _State | None, result: object) -> None:
        if isinstance(run, Repeating):
            went = run.finish(result)
            self.stored = run.stored
            if not went and state is not None:
                _log.debug("a pass differed from the one before: %s", run.differs)
                if isinstance(run, Native) and run.compiled.passes == 0:
                    state.refusals += 1
                state.program, state.passes = None, 0
                state.failures += 1
            return
        survey = run.survey
        if survey is not None and result is not None:
            survey.ended(0, result)
        run.finish(result)
        run.survey = None  # it has nodes and handles, which would live as long as the run
        if state is not None:
            state.flops, state.nbytes = run.flops, run.nbytes
        if survey is None or state is None or result is None or run.builder.waits:
            return
        try:
            state.program = survey.program(run.probe, survey.bytes)
        except Exception as error:
            run.owner.note(error)
        model = run.owner.model
        if state.program is not None:
            for number, module in enumerate(model.modules()):
                if number in state.program.modules and number not in self._hooks:
                    self._hooks[number] = module.register_forward_hook(_End(self, number))

    def remove(self) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
        self._states.clear()


def _repeating(owner: Activations, state: _State) -> Steady | Native:
    """A pass in C++ where there is a program for it, else one in Python, recorded if need be."""
    program = state.program
    assert program is not None
    if program.native is not None and program.native.fits():
        return Native(owner, program.native)
    recorder = None
    is_possible = owner.library is not None and bool(program.groups)
    if is_possible and state.refusals < _REFUSALS and program.tries < MOST_TRIES:
        program.native, program.tries = None, program.tries + 1
        recorder = Recorder()
    return Steady(owner, program, recorder)


def _parents(model: nn.Module) -> dict[int, int]:
    """Which module each is in, by their numbers; none for those that several have."""
    numbers = {id(module): number for number, module in enumerate(model.modules())}
    found: dict[int, int] = {}
    for module in model.modules():
        for child in module.children():
            own = numbers[id(child)]
            found[own] = numbers[id(module)] if own not in found else -1
    return found


def _kind(value: object) -> object:
    """Of an argument: what a program may depend on."""
    if isinstance(value, Tensor):
        return (value.shape, value.dtype, value.requires_grad)
    return value if isinstance(value, (int, bool, str, type(None))) else type(value)
