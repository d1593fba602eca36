"""Measures what wrapping saves and costs where the model is compiled, beside what torch.compile offers.

python -m bench.experiments.activations.compiled --out X.json       on a GPU; about four minutes
python -m bench.experiments.activations.compiled --only vit_b,gpt --variants plain,wrap
python -m bench.experiments.activations.compiled --dry-run          tiny, on the CPU: no figures
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, nn

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations.__main__ import WORKS, Work
from bench.experiments.activations.timing import step_times
from bench.record import ROOT, Figure, Record, table

METHOD = (
    "One step: forward, cross entropy, backward, SGD with momentum; the model is compiled by inductor, the loss "
    "is not. All cells are compiled at once, each in a process; then one after the other is measured. Five steps first, then the median of CUDA events around each of the others; peak: "
    "torch.cuda.max_memory_allocated from then on. identical: "
    "gradients of every parameter against those of the plain compiled model, bit by bit, with "
    "cudnn.deterministic; repeats: the same for two passes of the plain one. cosine: the smallest of a "
    "parameter with more than 1 % of the gradient's norm. Inductor chooses kernels of reductions by their times, so that two compilations of one model may differ; "
    "cells that are deterministic are compiled with torch._inductor.config.deterministic and torch.use_deterministic_algorithms, compared with each other, and not timed; "
    '"plain again" is the plain model once more, in another process.'
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


BY_NAME = {work.name: work for work in WORKS}


@dataclass(frozen=True)
class Options:
    device: str
    tiny: bool
    steps: int


class Step:
    """One training step of a compiled model."""

    def __init__(self, work: Work, device: str, tiny: bool, variant: str) -> None:
        torch.manual_seed(0)
        self.model = work.make().to(device)
        if work.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.act = None
        if variant.startswith(("wrap", "codec")):
            self.act = tt.wrap(self.model, **VARIANTS[variant])
        self.compiled = torch.compile(self.model, fullgraph=True)
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


def prepare(work: Work, variant: str, options: Options, folder: Path) -> tuple[Step, dict]:
    """Compiles a cell, and compares its gradients with those of the plain one later."""
    row: dict[str, object] = {"work": work.name, "variant": variant}
    budget = 0.5 if variant == "budget 0.5" else 1.0
    with torch._functorch.config.patch(activation_memory_budget=budget):
        step = Step(work, options.device, options.tiny, variant)
        began = time.perf_counter()
        found = step.gradients()
        row["compile_s"] = time.perf_counter() - began
    if variant.startswith("plain"):
        row["repeats"] = compare(found, step.gradients())["identical"]
    torch.save([g.cpu() for g in found], folder / f"{work.name} {variant}.pt")
    if step.act is not None:
        plan = step.act.plan()
        row |= {"saved": plan.before, "stored": plan.after, "problems": step.act.problems}
    return step, row


def measure(step: Step, row: dict, options: Options, folder: Path) -> None:
    """Times steps, while nothing else runs."""
    variant = str(row["variant"])
    suffix = DETERMINISTIC if variant.endswith(DETERMINISTIC) else ""
    exact = folder / f"{row['work']} plain{suffix}.pt"
    if variant != f"plain{suffix}" and exact.exists():
        row |= compare(torch.load(exact), torch.load(folder / f"{row['work']} {variant}.pt"))
    if suffix:
        return
    on_gpu = options.device == "cuda"
    times, _ = step_times(step, options.steps, on_gpu, warm=5)
    row["ms"] = statistics.median(times)
    if on_gpu:
        row["peak"] = torch.cuda.max_memory_allocated()


def cell(number: int, work: str, variant: str, options: Options, folder: Path, all_ready, turn, rows) -> None:  # fmt: skip
    """A process of its own: compiling takes long, and is done by all at once."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    # Graphs are divided here, so that their plans are known, also where their kernels are cached.
    torch._functorch.config.enable_autograd_cache = False
    if variant.endswith(DETERMINISTIC):
        torch._inductor.config.deterministic = True
        torch.use_deterministic_algorithms(options.device == "cuda")
    step, row = None, {"work": work, "variant": variant}
    try:
        step, row = prepare(BY_NAME[work], variant, options, folder)
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    except Exception as error:
        traceback.print_exc()
        row["error"] = repr(error)[:500]
    all_ready.wait()
    while turn.value != number:
        time.sleep(0.005)
    try:
        if step is not None:
            measure(step, row, options, folder)
            if options.device == "cuda":
                torch.cuda.empty_cache()
    except Exception as error:
        traceback.print_exc()
        row["error"] = repr(error)[:500]
    rows.put(row)
    turn.value = number + 1


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


def figures(work: str, rows: list[dict]) -> list[Figure]:
    found = []
    for row in rows:
        if row["variant"] == f"wrap{DETERMINISTIC}" and "identical" in row:
            of = {"work": work, "variant": row["variant"]}
            found.append(Figure(of, "identical", float(row["identical"]), 1.0))
        if "peak_ratio" not in row:
            continue
        of = {"work": work, "variant": row["variant"]}
        if row["variant"] == "wrap":
            found.append(Figure(of, "peak_ratio", row["peak_ratio"], 1.2))
            found.append(Figure(of, "time_over_plain", row["time_over_plain"], ceiling=1.05))
        if row["variant"] == "codec" and work in LIMITS:
            gib, ms = LIMITS[work]
            found.append(Figure(of, "peak_gib", row["peak"] / 2**30, ceiling=gib))
            found.append(Figure(of, "ms", row["ms"], ceiling=ms))
    return found


def run(cells: list[tuple[str, str]], options: Options) -> list[dict]:
    context = multiprocessing.get_context("spawn")
    all_ready, turn, queue = context.Barrier(len(cells)), context.Value("i", 0), context.Queue()
    with tempfile.TemporaryDirectory() as name:
        shared = (options, Path(name), all_ready, turn, queue)
        processes = [
            context.Process(target=cell, args=(i, *names, *shared), daemon=False)
            for i, names in enumerate(cells)
        ]
        for process in processes:
            process.start()
        rows = [queue.get(timeout=600) for _ in cells]
        for process in processes:
            process.join()
    plain = {row["work"]: row for row in rows if row["variant"] == "plain" and "ms" in row}
    for row in rows:
        if "ms" in row and row["work"] in plain:
            row["time_over_plain"] = row["ms"] / plain[row["work"]]["ms"]
            if "peak" in row:
                row["peak_ratio"] = plain[row["work"]]["peak"] / row["peak"]
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
    # One after the other: all at once would not fit into the memory of a GPU.
    fixed = [c for c in cells if c[1].endswith(DETERMINISTIC)]
    groups = [g for g in ([c for c in cells if c not in fixed], fixed) if g]
    threads = max(2, 2 * (os.cpu_count() or 2) // max(map(len, groups)))
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
    record.rows = [row for group in groups for row in run(group, options)]
    show(record.rows)
    for work in given.only.split(","):
        record.figures += figures(work, [row for row in record.rows if row["work"] == work])
    if given.out is not None:
        given.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
