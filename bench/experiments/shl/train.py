"""Training that goes on where it was stopped: after each epoch all that it needs is in a file."""

from __future__ import annotations

import time
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


def epoch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    labels: Tensor,
    batch: int,
    seed: int,
) -> float:
    """One pass over the samples in an order that follows from the seed; the mean loss."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator).to(x.device)
    total = torch.zeros((), device=x.device)
    for some in order.split(batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[some]), labels[some])
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(some)
    return float(total) / len(x)


def kept(file: Path) -> Curve:
    """The epochs that a run has had so far, which may be none."""
    if not file.exists():
        return Curve()
    return Curve(**torch.load(file, map_location="cpu")["curve"])


def train(
    model: torch.nn.Module,
    data: Data,
    epochs: int,
    batch: int,
    file: Path,
    seed: int = 0,
    say=lambda text: None,
) -> Curve:
    """Trains until there are so many epochs; `file` has those of a run that was stopped."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    curve = Curve()
    if file.exists():
        state = torch.load(file, map_location=data.train[0].device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        curve = Curve(**state["curve"])
    for number in range(len(curve.test), epochs):
        wall, cpu = time.perf_counter(), time.thread_time()
        loss = epoch(model, optimizer, *data.train, batch, seed * 1000 + number)
        curve.loss.append(loss)  # a number of the host's: the device is done
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
            f"epoch {number + 1}: loss {loss:.3f}, validation {curve.validation[-1]:.2f} %, test {curve.test[-1]:.2f} %"
        )
    return curve
