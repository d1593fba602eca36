"""Trains one network on Fashion-MNIST, plain or wrapped by tuckfold.torch.wrap.

python -m demo.train [--wrapped] [--peak] prints one JSON object; demo/training.py runs it.
"""

import argparse
import gzip
import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import tuckfold.torch as tt
from bench.images import FASHION_MNIST
from demo import DemoError
from demo.training import Trained

# Training images, test images and a batch; the second set is for --quick.
SIZES = ((8_000, 5_000, 128), (384, 250, 64))
STEADY_STEP = 2  # from this one on a wrapped model has compared what it recomputes


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of bytes: a magic of the rank, the lengths of the axes, the values."""
    with gzip.open(path) as file:
        rank = file.read(4)[3]
        shape = np.frombuffer(file.read(4 * rank), ">u4").tolist()
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def fashion_mnist(part: str, count: int) -> tuple[Tensor, Tensor]:
    folder = FASHION_MNIST.parent
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:count]
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:count]
    return torch.tensor(images[:, None]).float() / 255, torch.tensor(labels).long()


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


class SmallCnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *block(1, 16),
            *block(16, 16),
            *block(16, 16),
            nn.MaxPool2d(2),
            *block(16, 32),
            *block(32, 32),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(1568, 10),
        )


def memory(field: str) -> int:
    """VmRSS, the bytes of this process now, or VmHWM, the most since reset_peak()."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise DemoError(f"/proc/self/status has no {field}; the demo needs Linux")


def reset_peak() -> None:
    with suppress(OSError):  # a container may forbid it: then the first steps count, too
        Path("/proc/self/clear_refs").write_text("5")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(some).argmax(1) == wanted).sum())
            for some, wanted in zip(x.split(500), y.split(500), strict=True)
        )
    return right / len(y)


def digest(model: nn.Module) -> str:
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()[:16]


def prepared(wrapped: bool) -> tuple[SmallCnn, torch.optim.Optimizer, tt.Activations | None]:
    torch.manual_seed(0)
    model = SmallCnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, tt.wrap(model) if wrapped else None


def train(wrapped: bool, quick: bool, report: Path | None) -> Trained:
    """Trains on every image once."""
    count, tests, batch = SIZES[quick]
    x, y = fashion_mnist("train", count)
    model, optimizer, act = prepared(wrapped)
    start = time.perf_counter()
    for images, labels in zip(x.split(batch), y.split(batch), strict=True):
        step(model, optimizer, images, labels)
    seconds = time.perf_counter() - start
    weights, correct = digest(model), accuracy(model, *fashion_mnist("t10k", tests))
    model.train()
    saved = stored = 0
    if act is not None:
        plan = act.plan(x[:batch])
        saved, stored = plan.before, plan.after
        if report is not None:
            act.report(report)
    parameters = sum(tensor.numel() for tensor in model.parameters())
    threads = torch.get_num_threads()
    return Trained(saved, stored, correct, seconds, weights, parameters, count, batch, threads)


def peak_of_a_step(wrapped: bool, quick: bool) -> int:
    """The most bytes that a steady step adds to those of the process."""
    batch = SIZES[quick][2]
    x, y = fashion_mnist("train", batch)
    model, optimizer, _ = prepared(wrapped)
    for _ in range(STEADY_STEP):
        step(model, optimizer, x, y)
    reset_peak()
    before = memory("VmRSS")
    step(model, optimizer, x, y)
    return memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrapped", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peak", action="store_true", help="measure memory alone")
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    if args.peak:
        print(json.dumps(peak_of_a_step(args.wrapped, args.quick)))
    else:
        print(json.dumps(asdict(train(args.wrapped, args.quick, args.report))))


if __name__ == "__main__":
    main()
