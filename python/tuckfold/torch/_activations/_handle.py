"""The handle of a wrapped model: what `wrap` returns and `activations` yields."""

from __future__ import annotations

import hashlib
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from tuckfold.torch._activations import _attention as attention
from tuckfold.torch._activations import _graph_ops
from tuckfold.torch._activations._budget import Fit
from tuckfold.torch._activations._finite import Answers
from tuckfold.torch._activations._goal import Goal
from tuckfold.torch._activations._learning import Learning, NormEnd
from tuckfold.torch._activations._lossy import Usual, for_scores, mixed
from tuckfold.torch._activations._marked import Marks
from tuckfold.torch._activations._native import Native, library
from tuckfold.torch._activations._offload import CPU
from tuckfold.torch._activations._peak import Peak, peak_of
from tuckfold.torch._activations._plan import Plan, compiled_plan, make_plan, split
from tuckfold.torch._activations._policy import Policy
from tuckfold.torch._activations._probe import Probe, probe
from tuckfold.torch._activations._report import write_report
from tuckfold.torch._activations._run import Run
from tuckfold.torch._activations._saved import Handle, ModifiedError, stream_of
from tuckfold.torch._activations._steady import Steady
from tuckfold.torch._activations._trace import Row, Scope, Trace

_log = logging.getLogger("tuckfold.activations")
_wrapped: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Activations]] = (
    weakref.WeakKeyDictionary()
)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@torch.compiler.assume_constant_result
def _install() -> bool:
    """Called while a model is compiled, by what traces it."""
    try:
        from tuckfold.torch._activations import _compiled  # imports torch's compiler: takes long
    except (ImportError, AttributeError) as error:  # another torch
        _log.warning("compiled models run as if they were not wrapped: %s", error)
        return False
    for ref in list(_wrapped.values()):
        if (act := ref()) is not None:
            _compiled.install(act)
    return True


class _Hook:
    """A module's hook that a copy of the module does not inherit."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> None:
        if self.call is not None:
            self.call(*arguments)

    def __deepcopy__(self, memo: object) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (None,)


class _Pass(threading.local):
    """The forward passes that a thread is in, the innermost last."""

    def __init__(self) -> None:
        # The frame of the module's call says whether it still runs.
        self.stack: list[
            tuple[FrameType, saved_tensors_hooks | None, Run | Steady | Native | None]
        ] = []


class _Charge(threading.local):
    """The wrapped models that are in charge of what a thread saves, without hooks that show it."""

    def __init__(self) -> None:
        self.handles: list[Activations] = []


_charge = _Charge()


class Activations:
    """A wrapped model's handle; :func:`wrap` and :func:`activations` make it."""

    def __init__(
        self,
        model: nn.Module,
        least: tuple[int, int],
        recompute: int,
        policy: Policy,
        codec: str | None = None,
        goal: Goal | None = None,
        offloads: bool = False,
        gentle: int = 0,
    ) -> None:
        # Weak: the model's hooks hold this handle, and a cycle would keep its memory after a del.
        self._model = weakref.ref(model)
        self.least = least  # on the CPU, on a GPU
        self.recompute: int = recompute
        self.codec: str | None = codec
        self.goal = goal
        self.offloads = offloads
        self.gentle = gentle  # passes of training that are left, in which codecs have 8 bits
        self.is_lossy = codec is not None or policy.has_codecs or goal is not None or offloads
        self.answers = Answers()
        # From earlier passes: how well codecs must store what recipes read, so that none waits to see.
        self.grades: dict[Any, list[str]] = {}
        self._passes = 0
        self._graphs: dict[str, int] = {}  # compiled ones with seeds, by what they save
        self._calls: dict[str, int] = {}  # of those that are not compiled yet, from a state
        self._seeds = (0, 0)  # torch's when a state was loaded, and the one that stands for it
        marked = list(model.modules()) if self.is_lossy else [model]
        self._marks = Marks(marked, f"{least} {recompute} {codec} {goal} {offloads} {policy.rules}")
        self.compiled: dict[object, list[Row]] = {}  # what graphs of torch.compile save
        self.is_looked_up = False  # in torch's cache of compiled graphs
        self.trace: Any = None  # a Trace while a plan is made
        self.scope: Scope | None = Scope(model) if policy.needs_names else None
        self.problems: list[str] = []
        self._policy = policy
        self._plan: Plan | None = None
        self._is_paused = self._has_seen = False
        self._pass = _Pass()
        self.library = library()  # of hooks in C++
        self._learning = Learning(self)
        self._removable = [
            model.register_forward_pre_hook(_Hook(self._begin), prepend=True, with_kwargs=True),
            model.register_forward_hook(_Hook(self._end), always_call=True),
        ]
        self._norms = [m for m in model.modules() if isinstance(m, _NORMS)]
        self._removable += [
            m.register_forward_hook(NormEnd(self._learning))
            for m in self._norms
            if m.weight is None
        ]
        _wrapped[model] = weakref.ref(self)
        if "torch._dynamo" in sys.modules:
            _install()

    @property
    def model(self) -> nn.Module:
        """The model that is wrapped."""
        model = self._model()
        if model is None:
            raise ValueError("[activations] the model of this handle is gone")
        return model

    @property
    def repeats(self) -> bool:
        """Whether passes are no longer watched in full, but repeat what was learnt of earlier ones."""
        return self._learning.repeats

    @property
    def is_on_gpu(self) -> bool:
        return any(p.is_cuda for p in self.model.parameters())

    @property
    def device(self) -> torch.device:
        """Of the model."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def stream(self) -> int:
        """The stream that the device of the model works in now."""
        return stream_of(self.device)

    def plan(self, *arguments: Any, **keywords: Any) -> Plan:
        """Runs the model once forward and once backward, and says what is saved, and how.

        Random numbers, buffers and gradients are left as they were. Without arguments, or where the
        model is compiled in place, it says what the graphs that torch.compile has made so far save.

        Args:
            arguments: what the model is called with.
            keywords: the same, by name.
        """
        if not arguments and not keywords and self.compiled:
            self._plan = compiled_plan(self.compiled)
            return self._plan
        if not arguments and not keywords and self.is_looked_up:
            raise ValueError(
                "[plan] the compiled graphs came from torch's cache, which does not say what they "
                "save; TORCHINDUCTOR_AUTOGRAD_CACHE=0 has them divided anew"
            )
        if not arguments and not keywords:
            try:
                inspect.signature(self.model.forward).bind()
            except TypeError:
                raise ValueError(
                    "[plan] give what the model is called with; no graph of it was compiled so far"
                ) from None
        with self.named():
            self._plan = make_plan(self, arguments, keywords)
        return self._plan

    def remember(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """The plan of what a fit has chosen, to be saved."""
        with self.named():
            self._plan = make_plan(self, arguments, keywords, is_asked=False)
        grades = dict(self.grades)  # so that codecs of the next pass need not wait for them
        self.forget()
        self.grades.update(grades)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Passes inside of it know the names of modules."""
        watch = self.scope is None
        if watch:
            self.scope = Scope(self.model)
        try:
            yield
        finally:
            if watch and self.scope is not None:
                self.scope.remove()
                self.scope = None

    def forget(self) -> None:
        """Passes are watched anew, as after a change of what may be done."""
        self._learning.remove()
        self.grades.clear()

    def peak(
        self,
        batch: Any,
        *,
        loss: Callable[..., Tensor] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Peak:
        """How much memory a training step will take at most, from its second one on.

        Runs the model some times forward and backward, and leaves it as it was. On a GPU it reads and
        resets the allocator's largest figure.

        Args:
            batch: what the model is called with; with loss a pair of that and a target.
            loss: a function of output and target; else the mean of the squared outputs.
            optimizer: whose state counts, too.

        Raises:
            ValueError: the optimizer has made no step, and how large its state will be is not known.
        """
        inputs, target, of = split(batch, loss)
        return peak_of(self, inputs, target, of, optimizer, {})

    def fit(
        self,
        batch: Any,
        *,
        loss: Callable[..., Tensor] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Fit:
        """Chooses how each tensor is stored, for the budget or the noise that wrap was given.

        The first pass does it by itself, but knows neither loss nor optimizer. Runs the model some times
        forward and backward, and leaves it as it was.

        Args:
            batch: what the model is called with; with loss a pair of that and a target.
            loss: a function of output and target; else the mean of the squared outputs.
            optimizer: whose state counts, too.

        Raises:
            PlanError: the budget cannot be kept; it says which peak can be, and what holds it.
        """
        if self.goal is None:
            raise ValueError("[fit] wrap was given neither budget nor noise")
        inputs, target, of = split(batch, loss)
        return self.goal.fit(self, inputs, {}, target, of, optimizer)

    def probe(
        self, step: Callable[[Any], object], batches: Sequence[Any], *, probes: int = 16
    ) -> Probe:
        """Measures how much noise the codec of each tensor adds to gradients; the next fit goes by that.

        Until then all tensors count alike. Gradients, buffers and random numbers are left as they were.

        Args:
            step: runs forward and backward for a batch, so that parameters have gradients; no optimizer.
            batches: with more than one, noise is a part of the variance between them.
            probes: passes in which a random half of the tensors is packed.
        """
        if self.goal is None:
            raise ValueError("[probe] wrap was given neither budget nor noise")
        if not batches or probes < 1:
            raise ValueError("[probe] needs a batch and a probe at least")
        return probe(self.goal, self, step, batches, probes)

    def replan(
        self,
        step: Callable[[Any], object],
        batches: Sequence[Any],
        *,
        probes: int = 16,
        loss: Callable[..., Tensor] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Fit:
        """Measures the noise anew, as :meth:`probe` does, and chooses anew, as :meth:`fit` does.

        How much a tensor matters changes in training: call it now and then. A tensor is stored otherwise only if
        that is a tenth better, so that choices do not swing; the result's ``changed`` counts those that are.

        Args:
            step: runs forward and backward for a batch, so that parameters have gradients; no optimizer.
            batches: what step is called with; fit gets the first one.
            probes: passes in which a random half of the tensors is packed.
            loss: a function of output and target, for fit.
            optimizer: whose state counts, too.

        Raises:
            PlanError: the budget cannot be kept any more.
        """
        self.probe(step, batches, probes=probes)
        return self.fit(batches[0], loss=loss, optimizer=optimizer)

    def save(self, path: str | Path) -> None:
        """Writes the plan for ``wrap(model, plan=path)``; call :meth:`plan` or :meth:`fit` first."""
        self._planned("save").save(path)

    def state_dict(self) -> dict[str, Any]:
        """What a run that is interrupted needs to go on as it would have: how many passes there were and
        torch's seed, from which seeds of codecs follow, what is left of gentle passes, and the choice of a fit.

        Numbers, texts and lists, which ``torch.save`` takes.
        """
        return {
            "passes": self._passes,
            "seed": self._seed(),
            "gentle": self.gentle,
            "kept": [
                (*names, tuple(shape)) for *names, shape in sorted(self.answers.kept, key=str)
            ],
            "graphs": self._calls | {k: _graph_ops.calls_of(g) for k, g in self._graphs.items()},
            "goal": None if self.goal is None else self.goal.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called, with the options of wrap that were given then.

        Raises:
            ValueError: it is no such state, or wrap was given a budget or noise, and had none then, or the reverse.
        """
        names = {"passes", "seed", "gentle", "kept", "graphs", "goal"}
        if not isinstance(state, dict) or set(state) != names:
            raise ValueError(
                f"[load_state_dict] needs {', '.join(sorted(names))}; use what state_dict() returned"
            )
        for name in ("passes", "gentle"):
            if not isinstance(state[name], int) or state[name] < 0:
                raise ValueError(
                    f"[load_state_dict] {name} must be 0 or more, got {state[name]!r}; use what state_dict() returned"
                )
        if (state["goal"] is None) != (self.goal is None):
            raise ValueError(
                "[load_state_dict] it was saved with a budget or noise, and there is none now, or the reverse: give wrap the options "
                "that it had"
            )
        self._passes, self.gentle = state["passes"], state["gentle"]
        self._seeds = torch.initial_seed(), state["seed"]
        self.answers.kept = {(*names, torch.Size(shape)) for *names, shape in state["kept"]}
        self._calls = dict(state["graphs"])
        for key, graph in self._graphs.items():
            _graph_ops.begin(graph, self._calls.pop(key, 0), self._seed)
        if self.goal is not None:
            self.goal.load_state_dict(self, state["goal"])
        self.forget()

    def report(self, path: str | Path) -> None:
        """Writes one HTML file with the bytes over time and by module; call :meth:`plan` first."""
        write_report(self._planned("report"), type(self.model).__name__, path)

    def _planned(self, what: str) -> Plan:
        if self._plan is None and self.compiled:
            self._plan = compiled_plan(self.compiled)
        if self._plan is None:
            raise ValueError(
                f"[{what}] there is no plan yet: call plan(x) with an input, or fit, first"
            )
        return self._plan

    def remove(self) -> None:
        """Leaves the model as it was. Graphs that are alive stay valid."""
        for removable in self._removable:
            removable.remove()
        self._removable = []
        if self.scope is not None:
            self.scope.remove()
        while self._pass.stack:  # inside of a forward pass, or one was interrupted
            self._leave(self._pass.stack.pop(), None)
        self._learning.remove()
        model = self._model()
        if model is not None and handle_of(model) is self:
            del _wrapped[model]
            self._marks.take()
        if (compiled := sys.modules.get("tuckfold.torch._activations._compiled")) is not None:
            compiled.uninstall(self)

    @contextmanager
    def traced(self, trace: Trace) -> Iterator[Trace]:
        """Records what passes inside of it save."""
        self.trace = trace
        try:
            yield trace
        finally:
            self.trace = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Passes inside of it are plain."""
        self._is_paused = True
        self._marks.take()  # so that torch.compile makes graphs of its own
        try:
            yield
        finally:
            self._is_paused = False
            self._marks.put()

    def norms(self) -> dict[object, nn.Module]:
        """Normalizations by the identity of their weight."""
        return {id(m.weight): m for m in self._norms if m.weight is not None}

    def note(self, error: Exception) -> None:
        """Something went wrong in a hook: the tensor is kept, and training goes on. What the model itself
        does wrong, backward will say."""
        if isinstance(error, ModifiedError):
            return
        text = f"{type(error).__name__}: {error}"
        if text not in self.problems and len(self.problems) < 100:
            self.problems.append(text)
            _log.warning("a tensor was kept as it is, since storing it failed: %s", text)

    def saw(self, operators: set[str]) -> None:
        """What a pass had, once: rules that fit none of it are said to."""
        if not self._has_seen and operators:
            self._has_seen = True
            self._policy.warn_of_operators(operators)

    def policy(self, handles: list[Handle]) -> tuple[bool, str | None] | None:
        """What may be done with these views of one storage: whether it may be recomputed, and which
        codec may store it; None: it is kept."""
        asked = self._asked(handles)
        if asked is None or asked[1] in (None, CPU) or not self.gentle:
            return asked
        return asked[0], for_scores(asked[1])

    def _asked(self, handles: list[Handle]) -> tuple[bool, str | None] | None:
        store = self._policy.of(handles)
        if store == "keep":
            return None
        usual = None if self.codec is None else Usual(self.codec)
        if usual is None and self.offloads:
            usual = CPU
        # Attention takes long; its output is made again where its q and k have few bits.
        is_attention = attention.is_output(handles)
        may_recompute = self.recompute > 0 and not is_attention
        if store == "auto" and self.goal is not None:
            return self.goal.choice(handles, may_recompute)
        if store == "auto":
            return may_recompute, usual
        if store == "pack":
            return False, usual
        return self.recompute > 0 and is_attention and attention.is_few(store), store

    def elsewhere(self, codec: str) -> str | None:
        """Where a tensor goes that no codec may store."""
        return CPU if codec == CPU or (self.goal is not None and self.offloads) else None

    def next_seed(self) -> int:
        """Of a pass: it follows from torch's seed and from how many there were, and takes nothing from
        torch's random numbers."""
        self._passes += 1
        return mixed(self._seed(), self._passes - 1)

    def _seed(self) -> int:
        now, (before, loaded) = torch.initial_seed(), self._seeds
        return loaded if now == before else now

    def add_graph(self, graph: int, rows: list[Row]) -> None:
        """A compiled graph that has seeds for codecs."""
        text = " ".join(f"{row.module} {row.op} {row.shape} {row.dtype}" for row in rows)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._graphs[key] = graph
        _graph_ops.begin(graph, self._calls.pop(key, 0), self._seed)

    def policy_of_row(self, row: Row) -> str:
        """The same for a value that a compiled graph saves."""
        return self._policy.of_row(row)

    def _begin(self, module: nn.Module, arguments: tuple[Any, ...], keywords: Any) -> None:
        if torch.compiler.is_compiling():
            _install()
            return
        stack = self._pass.stack
        frame = sys._getframe(2)
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        run = getattr(top[0], "__self__", None) if top is not None else None
        if isinstance(run, Run):  # of an interrupted pass, or of a wrapped model around this one
            run.owner._drop_interrupted()
        for owner in reversed(_charge.handles):
            owner._drop_interrupted()
        if not self._applies():
            stack.append((frame, None, None))
            return
        if self.goal is not None:
            self.goal.before(self, arguments, keywords)
        if self.gentle and module.training and not (self.goal and self.goal.is_fitting):
            self.gentle -= 1
            if not self.gentle:
                self.forget()
        run = self._learning.begin(module, arguments, keywords)
        if isinstance(run, (Steady, Native)):
            _charge.handles.append(self)
            stack.append((frame, None, run))
            return
        hooks = saved_tensors_hooks(run.pack, run.unpack)
        hooks.__enter__()
        stack.append((frame, hooks, run))

    def _end(self, module: nn.Module, arguments: object, result: object) -> None:
        if torch.compiler.is_compiling():
            return
        stack = self._pass.stack
        if stack:
            self._leave(stack.pop(), result)

    def _leave(
        self, entry: tuple[FrameType, Any, Run | Steady | Native | None], result: object
    ) -> None:
        _, hooks, run = entry
        if run is None:
            return
        if hooks is None:
            _charge.handles.remove(self)
            self._learning.end(run, result)
            return
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if top is not None and getattr(top[0], "__self__", None) is run:
            hooks.__exit__(None, None, None)
        else:
            self.note(RuntimeError("hooks of somebody else were left on the stack"))
        self._learning.end(run, result)

    def _applies(self) -> bool:
        """Whether this pass saves tensors, and nobody else has taken charge of them."""
        autograd = torch._C._autograd
        return (
            torch.is_grad_enabled()
            and not self._is_paused
            and not torch.jit.is_tracing()
            and autograd._saved_tensors_hooks_is_enabled()
            # A checkpoint around the model, or a wrapped model around this one.
            and autograd._top_saved_tensors_default_hooks(True) is None
            and not _charge.handles
        )

    def _drop_interrupted(self) -> None:
        """KeyboardInterrupt passes by hooks that are always called."""
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        stack = self._pass.stack
        while stack and not any(stack[-1][0] is running for running in frames):
            self._leave(stack.pop(), None)


def handle_of(model: nn.Module) -> Activations | None:
    """Of a wrapped model."""
    ref = _wrapped.get(model)
    return None if ref is None else ref()
