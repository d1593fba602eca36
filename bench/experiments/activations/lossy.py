"""Measures codecs and budgets for what eager passes save: peak, time of a step, and gradients.

python -m bench.experiments.activations.lossy --out X.json     on a GPU; under two minutes
python -m bench.experiments.activations.lossy --dry-run        tiny, on the CPU: no figures
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import traceback
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations.__main__ import WORKS, Step, Work, loss_of
from bench.experiments.activations.timing import step_times
from bench.record import ROOT, Figure, Record, table
from tuckfold.torch._activations._handle import handle_of

METHOD = (
    "One step: forward, cross entropy, backward, SGD with momentum. Eight steps first, then the median of "
    "CUDA events around each of the others; peak: torch.cuda.max_memory_allocated from then on, less what was "
    "allocated before the model. Gradients: after those steps, on random images, eight passes over one batch "
    "against exact ones; cosine: the least of any parameter with 1 % of the gradient's norm."
)
FOUR = "block_quant(bits=4, group=256, round=stochastic)"
NEAREST = "block_quant(bits=4, group=256)"
TWO = "block_quant(bits=2, group=64, round=stochastic)"
# Times less peak that should be reached, and how much longer a step may take.
FLOORS = {"resnet50_bf16": (3.6, 0.14), "vit_b": (3.6, 0.12)}
BUDGETS = {"resnet50_bf16": (6.0, 4.0), "vit_b": (6.0, 4.0)}  # GiB


def variants(work: Work, tiny: bool) -> dict[str, dict[str, object] | None]:
    small = {"least": 4096} if tiny else {}
    found: dict[str, dict[str, object] | None] = {"plain": None, "wrap": {}}
    for name, codec in (("4 bits", FOUR), ("4 bits, nearest", NEAREST), ("2 bits", TWO)):
        found[name] = {"codec": codec} | small
    for size in BUDGETS[work.name]:
        budget = f"{size}GiB" if not tiny else "16GiB"
        found[f"budget {size:g} GiB"] = {"budget": budget} | small
    return found


def measure(work: Work, name: str, options: dict | None, device: str, steps: int) -> dict:
    on_gpu = device == "cuda"
    row: dict[str, object] = {"work": work.name, "variant": name}
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated() if on_gpu else 0

    def change(model: nn.Module) -> object:
        if options is not None:
            tt.wrap(model, **options)
        return nullcontext()

    step = Step(work, device, not on_gpu, change)
    act = handle_of(step.model)
    if act is not None and act.goal is not None:
        began = time.perf_counter()
        with step.cast:
            fit = act.fit((step.x, step.y), loss=loss_of, optimizer=step.optimizer)
        row |= {"fit_s": time.perf_counter() - began, "predicted": fit.predicted}
        row |= {"tried": fit.peak.total, "noise": fit.noise, "items": fit.items}
    times, host = step_times(step, steps, on_gpu)
    row["ms"], row["host_ms"] = statistics.median(times), statistics.median(host)
    if on_gpu:
        row["peak"] = torch.cuda.max_memory_allocated() - before
    if act is not None:
        row["problems"] = act.problems
        row["repeats"] = act.repeats
        with step.cast:
            result = tt.check(step.model, (step.x, step.y), loss=loss_of)
        row |= {"saved": result.saved, "stored": result.stored}
        if result.quality is not None:
            q = result.quality
            row |= {"cosine": q.cosine, "parameter": q.parameter, "bias": q.bias}
            row |= {"relative_error": q.relative_error, "not_finite": act.answers.count}
    return row


def run(work: Work, device: str, steps: int) -> list[dict]:
    rows: list[dict] = []
    for name, options in variants(work, device == "cpu").items():
        try:
            rows.append(measure(work, name, options, device, steps))
        except Exception as error:
            traceback.print_exc()
            rows.append({"work": work.name, "variant": name, "error": repr(error)[:500]})
    plain = rows[0]
    for row in rows:
        if "ms" in row and "ms" in plain:
            row["time_over_plain"] = row["ms"] / plain["ms"]
        if "peak" in row and "peak" in plain:
            row["peak_ratio"] = plain["peak"] / row["peak"]
    return rows


def show(rows: list[dict]) -> None:
    titles = ("work", "variant", "ms", "host_ms", "time_over_plain", "peak", "peak_ratio", "cosine", "relative_error", "bias", "predicted", "tried", "repeats")  # fmt: skip

    def cell(row: dict, key: str) -> str:
        value = row.get(key, "")
        if key in ("peak", "predicted", "tried") and value:
            return f"{value / 2**30:.2f} GiB"
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    print(table(titles, [[cell(row, key) for key in titles] for row in rows]))
    for row in rows:
        if row.get("error") or row.get("problems"):
            print(row["work"], row["variant"], row.get("error"), row.get("problems"))


def figures(work: Work, rows: list[dict]) -> list[Figure]:
    found = []
    ratio, longer = FLOORS[work.name]
    for row in rows:
        of = {"work": work.name, "variant": row["variant"]}
        if row["variant"] == "4 bits" and "peak_ratio" in row:
            found.append(Figure(of, "peak_ratio", row["peak_ratio"], ratio))
            found.append(Figure(of, "time_over_plain", row["time_over_plain"], ceiling=1 + longer))
            found.append(Figure(of, "cosine", row["cosine"], 0.98))
        if row["variant"].startswith("budget") and "peak" in row:
            budget = float(row["variant"].split()[1]) * 2**30
            found.append(Figure(of, "peak_of_budget", row["peak"] / budget, ceiling=1.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default="resnet50_bf16,vit_b")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    record = Record("activations_lossy", options.dry_run, ROOT / "build/release", METHOD)
    record.commands.append("python -m bench.experiments.activations.lossy")
    record.extra = {"torch": torch.__version__}
    if device == "cuda":
        record.extra |= {"gpu": torch.cuda.get_device_name()}
    for name in options.only.split(","):
        work = next(w for w in WORKS if w.name == name)
        rows = run(work, device, 1 if options.dry_run else options.steps)
        show(rows)
        record.rows += rows
        record.figures += figures(work, rows)
        if options.out is not None:
            options.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
