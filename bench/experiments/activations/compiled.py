"""Measures what wrapping saves and costs where the model is compiled, beside what torch.compile offers.

python -m bench.experiments.activations.compiled --out X.json       on a GPU with 16 cores; two minutes and a half
python -m bench.experiments.activations.compiled --only vit_b,gpt --variants plain,wrap
python -m bench.experiments.activations.compiled --dry-run          tiny, on the CPU: no figures
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, nn
from torch._inductor.compile_fx import compile_fx

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations.__main__ import WORKS, Work
from bench.experiments.activations.timing import block, warmed
from bench.record import ROOT, Figure, Record, floor_table, table, worst_first

METHOD = (
    "One step: forward, cross entropy, backward, SGD with momentum; the model is compiled by inductor, the loss "
    "is not. All cells are compiled at once, each in a process; then one after the other is measured, twice. Five steps first, then a block of steps that follow each other without waiting: ms is the median of CUDA events between them, "
    "time_over_plain the mean of both ratios to the plain cell of the round, peak torch.cuda.max_memory_allocated from the second round on. identical: "
    "gradients of every parameter against those of the plain compiled model, bit by bit, with "
    "cudnn.deterministic; repeats: the same for two passes of the plain one. cosine: the smallest of a "
    "parameter with more than 1 % of the gradient's norm. Inductor chooses kernels of reductions by their times, so that two compilations of one model may differ; "
    "cells that are deterministic are compiled with torch._inductor.config.deterministic and torch.use_deterministic_algorithms, compared with each other, and not timed; "
    '"plain again" is the plain model once more, in another process. floors: worst first.'
)
CODEC = "block_quant(bits=4, group=256, round=stochastic)"
# The most GiB and milliseconds that a codec should need, and what exact storage should save.
LIMITS = {"resnet50_bf16": (3.6, 47.5), "vit_b": (3.8, 46.0)}
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "budget 0.5": {},
    "wrap": {},
    "codec": {"codec": CODEC},
    "plain, deterministic": {},
    "plain again, deterministic": {},
    "wrap, deterministic": {},
}
DETERMINISTIC = ", deterministic"
ROUNDS = 2
AT_ONCE = 3  # cells that run while others are compiled: more would not fit into the memory of a GPU

BY_NAME = {work.name: work for work in WORKS}


@dataclass(frozen=True)
class Options:
    device: str
    tiny: bool
    steps: int


@dataclass(frozen=True)
class Shared:
    """What the processes of cells share."""

    ready: Any  # a barrier: all are compiled
    turn: Any  # whose it is to be measured
    gate: Any  # a semaphore
    rows: Any  # a queue
    began: float  # of the wall

    def say(self, row: dict, what: str) -> None:
        """How far a cell is: most of the time is that of compilers."""
        print(
            f"{time.time() - self.began:4.0f} s  {row['work']}, {row['variant']} {what}", flush=True
        )


class Gate:
    """Lets few cells run while all are compiled: what forward saves would not fit otherwise."""

    def __init__(self, most: Any) -> None:
        self.most, self.is_open = most, False

    def backend(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        compiled = compile_fx(gm, inputs)  # forward and backward

        def call(*arguments: Any) -> Any:
            self.enter()
            return compiled(*arguments)

        return call

    def enter(self) -> None:
        if not self.is_open:
            self.most.acquire()
            self.is_open = True

    def leave(self) -> None:
        """Until the next barrier; what is measured after it has no need to ask."""
        if self.is_open:
            self.most.release()
        self.is_open = True


class Step:
    """One training step of a compiled model."""

    def __init__(self, work: Work, device: str, tiny: bool, variant: str, gate: Gate) -> None:
        torch.manual_seed(0)
        with torch.device(device):  # a CPU takes seconds for the weights of some
            self.model = work.make()
        if work.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.act = None
        if variant.startswith(("wrap", "codec")):
            self.act = tt.wrap(self.model, **VARIANTS[variant])
        self.compiled = torch.compile(self.model, fullgraph=True, backend=gate.backend)
        self.x, self.y = work.batch(device, tiny)
        self.cast = torch.autocast(device, torch.bfloat16, enabled=work.bf16)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def loss(self) -> Tensor:
        with self.cast:
            out = self.compiled(self.x)
            return nn.functional.cross_entropy(out.flatten(0, -2), self.y.flatten())

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimizer.step()

    def gradients(self) -> list[Tensor]:
        """Of the weights and the batch that seed 0 makes."""
        torch.backends.cudnn.deterministic = True
        torch.manual_seed(1)
        buffers = [b.clone() for b in self.model.buffers()]
        try:
            found = torch.autograd.grad(
                self.loss(), [p for p in self.model.parameters() if p.requires_grad]
            )
        finally:
            torch.backends.cudnn.deterministic = False
            for buffer, value in zip(self.model.buffers(), buffers, strict=True):
                buffer.data.copy_(value)
        return [g.detach() for g in found]


def compare(plain: list[Tensor], other: list[Tensor]) -> dict[str, object]:
    same = [torch.equal(a, b) for a, b in zip(plain, other, strict=True)]
    norms = [a.double().norm() for a in plain]
    whole = torch.stack(norms).norm()
    errors = [(a - b).double().norm() for a, b in zip(plain, other, strict=True)]
    cosines = [
        torch.cosine_similarity(a.double().flatten(), b.double().flatten(), dim=0).item()
        for a, b, n in zip(plain, other, norms, strict=True)
        if n > 0.01 * whole
    ]
    return {
        "identical": all(same),
        "same_parameters": f"{sum(same)} of {len(same)}",
        "relative_error": (torch.stack(errors).norm() / whole).item(),
        "cosine": min(cosines),
    }


def prepare(work: Work, variant: str, options: Options, folder: Path, gate: Gate) -> tuple[Step, dict]:  # fmt: skip
    """Compiles a cell, and writes its gradients."""
    row: dict[str, object] = {"work": work.name, "variant": variant}
    budget = 0.5 if variant == "budget 0.5" else 1.0
    with torch._functorch.config.patch(activation_memory_budget=budget):
        step = Step(work, options.device, options.tiny, variant, gate)
        began = time.perf_counter()
        found = step.gradients()
        row["compile_s"] = time.perf_counter() - began
    if variant.startswith("plain"):
        row["repeats"] = all(map(torch.equal, found, step.gradients()))
    torch.save([g.cpu() for g in found], folder / f"{work.name} {variant}.pt")
    if step.act is not None:
        plan = step.act.plan()
        row |= {"saved": plan.before, "stored": plan.after, "problems": step.act.problems}
    return step, row


def measure(step: Step, row: dict, options: Options) -> None:
    """Times steps, while nothing else runs."""
    on_gpu = options.device == "cuda"
    warmed(step, on_gpu, warm=3)
    row.setdefault("rounds_ms", []).append(block(step, options.steps, on_gpu)[0])
    if on_gpu:
        row["peak"] = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()


def compare_with_plain(row: dict, options: Options, folder: Path) -> None:
    variant = str(row["variant"])
    plain = "plain" + (DETERMINISTIC if variant.endswith(DETERMINISTIC) else "")
    if variant != plain and (exact := folder / f"{row['work']} {plain}.pt").exists():
        paths = (exact, folder / f"{row['work']} {variant}.pt")
        row |= compare(*(torch.load(path, map_location=options.device) for path in paths))


def cell(number: int, work: str, variant: str, options: Options, folder: Path, shared: Shared) -> None:  # fmt: skip
    """A process of its own: compiling takes long, and is done by all at once."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    # Graphs are divided here, so that their plans are known, also where their kernels are cached.
    torch._functorch.config.enable_autograd_cache = False
    # Backward is compiled before forward runs, and waits for memory after that.
    torch._functorch.config.force_non_lazy_backward_lowering = True
    if variant.endswith(DETERMINISTIC):
        torch._inductor.config.deterministic = True
        torch.use_deterministic_algorithms(options.device == "cuda")
    gate = Gate(shared.gate)
    row: dict[str, Any] = {"work": work, "variant": variant}
    step: Step | None = None

    def tried(call: Callable[[], object]) -> None:
        try:
            if "error" not in row:
                call()
        except Exception as error:
            traceback.print_exc()
            row["error"] = repr(error)[:500]

    def compile_() -> None:
        nonlocal step
        step, found = prepare(BY_NAME[work], variant, options, folder, gate)
        row.update(found)

    shared.say(row, "starts")
    tried(compile_)
    shared.say(row, "is compiled")
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    gate.leave()
    shared.ready.wait()
    for turn in range(ROUNDS):
        while shared.turn.value != turn * shared.ready.parties + number:
            time.sleep(0.005)
        if step is not None and not variant.endswith(DETERMINISTIC):
            tried(lambda: measure(step, row, options))
        shared.turn.value += 1
    while shared.turn.value < ROUNDS * shared.ready.parties:
        time.sleep(0.05)
    step = None  # its memory is for those that compare
    gc.collect()
    tried(lambda: compare_with_plain(row, options, folder))
    shared.say(row, "ends")
    shared.rows.put(row)


def show(rows: list[dict]) -> None:
    titles = ("work", "variant", "ms", "time_over_plain", "peak", "peak_ratio", "identical", "same_parameters", "relative_error", "cosine", "compile_s")  # fmt: skip

    def cell(row: dict, key: str) -> str:
        value = row.get(key)
        if key == "peak" and value:
            return f"{value / 2**30:.2f} GiB"
        if key == "relative_error" and value is not None:
            return f"{value:.1e}"
        return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)

    print(table(titles, [[cell(row, key) for key in titles] for row in rows]), flush=True)
    for row in rows:
        if "error" in row or row.get("problems"):
            print(row["work"], row["variant"], row.get("error"), row.get("problems"), flush=True)


def figures(work: str, variants: list[str], rows: list[dict]) -> list[Figure]:
    """What is held to a floor or a ceiling; not a number where it was not measured."""
    found = []
    by_name = {row["variant"]: row for row in rows}

    def add(variant: str, name: str, floor: float | None = None, ceiling: float | None = None) -> None:  # fmt: skip
        if variant in variants:
            row = by_name.get(variant, {})
            value = row.get("peak", math.nan) / 2**30 if name == "peak_gib" else row.get(name, math.nan)  # fmt: skip
            of = {"work": work, "variant": variant}
            found.append(Figure(of, name, float(value), floor, ceiling=ceiling))

    add(f"wrap{DETERMINISTIC}", "identical", 1.0)
    add("wrap", "peak_ratio", 1.2)
    add("wrap", "time_over_plain", ceiling=1.05)
    if work in LIMITS:
        gib, ms = LIMITS[work]
        add("codec", "peak_gib", ceiling=gib)
        add("codec", "ms", ceiling=ms)
    return found


def run(cells: list[tuple[str, str]], options: Options) -> list[dict]:
    context = multiprocessing.get_context("spawn")
    shared = Shared(
        context.Barrier(len(cells)),
        context.Value("i", 0),
        context.Semaphore(AT_ONCE),
        context.Queue(),
        time.time(),
    )
    with tempfile.TemporaryDirectory() as name:
        processes = [
            context.Process(target=cell, args=(i, *names, options, Path(name), shared))
            for i, names in enumerate(cells)
        ]
        for process in processes:
            process.start()
        found = [shared.rows.get(timeout=600) for _ in cells]
        for process in processes:
            process.join()
    rows = sorted(found, key=lambda row: cells.index((row["work"], row["variant"])))
    plain = {row["work"]: row for row in rows if row["variant"] == "plain" and "rounds_ms" in row}
    for row in rows:
        if "rounds_ms" not in row:
            continue
        row["ms"] = statistics.median(row["rounds_ms"])
        if row["work"] in plain:
            of = plain[row["work"]]
            pairs = zip(row["rounds_ms"], of["rounds_ms"], strict=True)
            row["time_over_plain"] = statistics.mean(ms / other for ms, other in pairs)
            if "peak" in row:
                row["peak_ratio"] = of["peak"] / row["peak"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="resnet50_bf16,vit_b,gpt")
    parser.add_argument("--variants", default=";".join(VARIANTS), help="with ; between")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    works, variants = given.only.split(","), given.variants.split(";")
    for names, known in ((works, BY_NAME), (variants, VARIANTS)):
        for name in names:
            if name not in known:
                parser.error(f"unknown {name}; there are {', '.join(known)}")
    options = Options("cpu" if given.dry_run else "cuda", given.dry_run, given.steps)
    cells = [(work, v) for work in works for v in variants]
    threads = max(2, 2 * (os.cpu_count() or 2) // len(cells))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic algorithms
    record = Record("activations_compiled", given.dry_run, ROOT / "build/release", METHOD)
    record.commands.append(
        f"python -m bench.experiments.activations.compiled --only {given.only} "
        f"--variants {given.variants!r}"
    )
    record.extra = {"torch": torch.__version__, "codec": CODEC}
    if not given.dry_run:
        record.extra |= {
            "gpu": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
        }
    began = time.monotonic()
    record.rows = run(cells, options)
    record.extra["seconds"] = time.monotonic() - began
    show(record.rows)
    for work in given.only.split(","):
        record.figures += figures(work, variants, [r for r in record.rows if r["work"] == work])
    record.floors = worst_first(record.figures)
    print(floor_table(record.floors))
    print(f"{record.extra['seconds']:.0f} s")
    if given.out is not None:
        given.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
