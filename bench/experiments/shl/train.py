"""Training that goes on where it was stopped: after each epoch all that it needs is in a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.experiments.shl.data import Data

RATE, MOMENTUM = 0.001, 0.9  # table 3


@torch.no_grad()
def accuracy(model: torch.nn.Module, x: Tensor, labels: Tensor) -> float:
    """In per cent."""
    right = sum(
        int((model(some).argmax(1) == of).sum())
        for some, of in zip(x.split(1000), labels.split(1000), strict=True)
    )
    return 100 * right / len(labels)


@dataclass
class Curve:
    """What each epoch gave; seconds of its training loop, and of the processor in it."""

    loss: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """The test accuracy of the epoch that validation chooses, and times of an epoch."""
        best = max(range(len(self.validation)), key=self.validation.__getitem__)
        middle = len(self.seconds) // 2
        return {
            "epochs": len(self.test),
            "best_epoch": best + 1,
            "validation": self.validation[best],
            "test": self.test[best],
            "last_test": self.test[-1],
            "epoch_seconds": sorted(self.seconds)[middle],
            "epoch_cpu_seconds": sorted(self.cpu_seconds)[middle],
        }


class Steps:
    """Training steps over samples that stay on their device.

    On a GPU all but the first few are one CUDA graph that is replayed: of such small networks a step would
    else take as long as its launches, whatever the layer.
    """

    FIRST = 3  # that run before the graph is made: momenta and workspaces are there then

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, labels: Tensor
    ) -> None:
        self._model, self._optimizer, self._x, self._labels = model, optimizer, x, labels
        self._total = torch.zeros((), device=x.device)
        self._stream = torch.cuda.Stream() if x.is_cuda else None  # of the graph and all before it
        self._graph: torch.cuda.CUDAGraph | None = None
        self._some: Tensor | None = None  # the samples that the graph takes
        self._done = 0
        self.loss = 0.0  # the mean of an epoch's

    def _step(self, some: Tensor) -> None:
        self._optimizer.zero_grad()
        loss = F.cross_entropy(self._model(self._x[some]), self._labels[some])
        loss.backward()
        self._optimizer.step()
        self._total += loss.detach() * len(some)

    def _capture(self, some: Tensor) -> None:
        self._some = some.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._step(self._some)
        self._graph = graph

    def _next(self, some: Tensor) -> None:
        if self._x.is_cuda and self._graph is None and self._done >= self.FIRST:
            self._capture(some)
        if self._graph is not None and len(some) == len(self._some):
            self._some.copy_(some)
            self._graph.replay()
        else:
            self._step(some)
        self._done += 1

    def epoch(self, batch: int, seed: int) -> Iterator[None]:
        """Stops after each step of one pass over the samples, whose order follows from the seed."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._x), generator=generator).to(self._x.device)
        beside = contextlib.nullcontext()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            beside = torch.cuda.stream(self._stream)
        with beside:
            self._total.zero_()
        for some in order.split(batch):
            with beside:  # left before others go on
                self._next(some)
            yield
        with beside:
            self.loss = float(self._total) / len(self._x)  # the device is done


def kept(file: Path) -> Curve:
    """The epochs that a run has had so far, which may be none."""
    if not file.exists():
        return Curve()
    return Curve(**torch.load(file, map_location="cpu")["curve"])


def training(
    model: torch.nn.Module,
    data: Data,
    epochs: int,
    batch: int,
    file: Path,
    seed: int = 0,
    say=lambda text: None,
) -> Generator[None, None, Curve]:
    """Trains until there are so many epochs, and stops after each step; `file` has those of a run that was stopped."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    curve = Curve()
    if file.exists():
        state = torch.load(file, map_location=data.train[0].device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        curve = Curve(**state["curve"])
    steps = Steps(model, optimizer, *data.train)
    for number in range(len(curve.test), epochs):
        wall, cpu = time.perf_counter(), time.thread_time()
        yield from steps.epoch(batch, seed * 1000 + number)
        curve.loss.append(steps.loss)
        curve.seconds.append(time.perf_counter() - wall)
        curve.cpu_seconds.append(time.thread_time() - cpu)
        curve.validation.append(accuracy(model, *data.validation))
        curve.test.append(accuracy(model, *data.test))
        file.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "curve": vars(curve),
        }
        torch.save(state, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)
        say(
            f"epoch {number + 1}: loss {steps.loss:.3f}, validation {curve.validation[-1]:.2f} %, test {curve.test[-1]:.2f} %"
        )
    return curve


def together(runs: Sequence[Generator[None, None, Curve]]) -> list[Curve]:
    """A step of each in turn, until all are done: on a GPU they run side by side, since each has its own stream."""
    curves = [Curve()] * len(runs)
    left = dict(enumerate(runs))
    while left:
        for number, run in list(left.items()):
            try:
                next(run)
            except StopIteration as end:
                curves[number] = end.value
                del left[number]
    return curves


def train(*given, **named) -> Curve:
    """training() to its end."""
    return together([training(*given, **named)])[0]
