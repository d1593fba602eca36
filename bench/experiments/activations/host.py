"""Measures what wrapping a model costs on the host: networks so small that kernels take hardly any time.

  python -m bench.experiments.activations.host --out bench/results/activations_host.json    two minutes
  python -m bench.experiments.activations.host --only resnet50 --profile "wrap, python"

Needs no GPU. The graphs are those of the networks that are measured on one, and the same tensors are
stored differently, since `least` is 0. Variants take turns, with a block of steps each.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations import models
from bench.gpu.networks import Bottleneck, ResNet50, ViT
from bench.record import ROOT, Record, table
from tuckfold.torch._activations._native import library

METHOD = (
    "One step: forward, mean of squares, backward, on one thread of a CPU, with tensors of a few KiB. Six steps first; then variants take turns, "
    "two steps that do not count and a block of others each, and figures are medians of the time of the processor. added_us: the step less the plain one; per_tensor_us: that by the tensors that are "
    "stored differently; forward_us and backward_us: the parts of added_us."
)
CODEC = "block_quant(bits=4, group=256, round=stochastic)"
BLOCK = 5  # steps of a turn
WARM = 6  # steps until passes repeat each other, and hooks in C++ have taken over
VARIANTS: dict[str, dict[str, object]] = {
    "nothing to gain": {"least": 1 << 50},
    "wrap": {"least": 0},
    "wrap, recompute=2": {"least": 0, "recompute": 2},
    "codec, 4 bits": {"least": 0, "codec": CODEC},
}


class NarrowResNet50(ResNet50):
    """All layers of ResNet-50, with a sixteenth of their channels."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        stem = [nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)]
        self.stem = nn.Sequential(*stem, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], 4
        for width, count in ((4, 3), (8, 4), (16, 6), (32, 3)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if i == 0 and width > 4 else 1))
                inputs = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, 10)


def _small() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16), nn.GELU()]
    return nn.Sequential(*layers)


WORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "resnet50": (NarrowResNet50, lambda: torch.randn(2, 3, 32, 32)),
    "vit_b": (lambda: ViT(48, 12, image=32), lambda: torch.randn(2, 3, 32, 32)),
    "gpt": (lambda: models.GPT(64, 64), lambda: torch.randint(64, (2, 8))),
    "small": (_small, lambda: torch.randn(4, 16)),
}


class Step:
    def __init__(self, work: str, options: dict | None, way: str) -> None:
        os.environ["TUCKFOLD_HOOKS"] = way
        make, batch = WORKS[work]
        torch.manual_seed(0)
        self.model, self.x = make(), batch()
        self.act = None if options is None else tt.wrap(self.model, **options)

    def __call__(self) -> tuple[float, float]:
        """Seconds of the processor, in forward and in backward: others on the machine hardly change them."""
        self.model.zero_grad(set_to_none=True)
        began = time.process_time()
        loss = self.model(self.x).square().mean()
        between = time.process_time()
        loss.backward()
        return between - began, time.process_time() - between


def profile(step: Step, steps: int) -> None:
    for _ in range(WARM):
        step()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(steps):
        step()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def measure(work: str, ways: list[str], steps: int) -> list[dict]:
    names = [("plain", None, "")] + [
        (f"{name}, {way}", options, way) for name, options in VARIANTS.items() for way in ways
    ]
    all_steps = [Step(work, options, way) for _, options, way in names]
    for step in all_steps:
        for _ in range(WARM):
            step()
    gc.collect()
    times: list[list[tuple[float, float]]] = [[] for _ in names]
    for _ in range(steps // BLOCK):
        for step, row in zip(all_steps, times, strict=True):
            row += [step() for _ in range(2 + BLOCK)][2:]  # the first find another's caches
    medians = [[1e6 * statistics.median(t[i] for t in row) for i in (0, 1)] for row in times]
    rows = []
    for (name, _, _), step, (forward, backward) in zip(names, all_steps, medians, strict=True):
        added = forward + backward - sum(medians[0])
        row: dict[str, object] = {"work": work, "variant": name, "us": forward + backward}
        if step.act is not None:
            stored = step.act._learning.stored
            row |= {"added_us": added, "over_plain": 1 + added / sum(medians[0]), "stored": stored}
            row |= {"forward_us": forward - medians[0][0], "backward_us": backward - medians[0][1]}
            row["per_tensor_us"] = added / stored if stored else None
            row["problems"] = step.act.problems
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--profile", help="a variant, such as 'wrap, python'")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = options.only.split(",") if options.only else list(WORKS)
    unknown = set(chosen) - set(WORKS)
    if unknown:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    os.environ["TUCKFOLD_HOOKS"] = ""
    ways = ["python"] if library() is None else ["python", "cpp"]
    if options.profile is not None:
        name, _, way = options.profile.rpartition(", ")
        profile(Step(chosen[0], VARIANTS[name], way), options.steps)
        return
    record = Record("activations_host", False, ROOT / "build/release", METHOD)
    only = f" --only {options.only}" if options.only else ""
    record.commands.append(f"python -m bench.experiments.activations.host{only}")
    record.extra = {"torch": torch.__version__}
    for work in chosen:
        rows = measure(work, ways, options.steps)
        record.rows += rows
        titles = ("work", "variant", "us", "added_us", "over_plain", "forward_us", "backward_us", "stored", "per_tensor_us")  # fmt: skip
        print(table(titles, [[row.get(title) for title in titles] for row in rows]))
    if options.out is not None:
        options.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
