"""Measures codecs and budgets for what eager passes save: peak, time of a step, and gradients.

python -m bench.experiments.activations.lossy --out X.json     on a GPU; under four minutes
python -m bench.experiments.activations.lossy --only vit_b,gpt --parts steps
python -m bench.experiments.activations.lossy --dry-run        tiny, on the CPU: no figures
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
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
    "against exact ones; cosine: the least of any parameter with 1 % of the gradient's norm. Largest batch: of ten steps "
    "from the first on in 16 GiB, by bisection over multiples of 32. "
    "Networks of `trained`: a ResNet-18 and a ViT of six blocks on CIFAR-10, a GPT of six blocks on the text of these "
    "pages, trained with AdamW and bf16 for the steps that are given; then gradients of eight other batches. "
    "With tt.cross_entropy steps have that loss in place of torch's; ratios are to the plain step with torch's."
)
FOUR = "block_quant(bits=4, group=256, round=stochastic)"
NEAREST = "block_quant(bits=4, group=256)"
TWO = "block_quant(bits=2, group=64, round=stochastic)"
PLAIN_LOSS, OUR_LOSS = "plain, tt.cross_entropy", "4 bits, tt.cross_entropy"
CAP = 16 << 30  # bytes, for the largest batch
# Times less peak that should be reached, and how much longer a step may take.
FLOORS = {
    "resnet50_bf16": (3.6, 0.14),
    "vit_b": (3.6, 0.12),
    "vit_s": (4.5, 0.12),
    "gpt": (3.8, 0.12),
    "resnet50_tf32": (3.8, 0.11),
}
BUDGETS = {"resnet50_bf16": (6.0, 4.0), "vit_b": (6.0, 4.0)}  # GiB


def variants(work: Work, tiny: bool) -> dict[str, dict[str, object] | None]:
    small = {"least": 4096} if tiny else {}
    found: dict[str, dict[str, object] | None] = {"plain": None, "wrap": {}}
    found["4 bits"] = {"codec": FOUR} | small
    if work.words:
        found[PLAIN_LOSS] = {"loss": tt.cross_entropy}
        found[OUR_LOSS] = {"codec": FOUR, "loss": tt.cross_entropy} | small
    if work.name not in BUDGETS:
        return found
    for name, codec in (("4 bits, nearest", NEAREST), ("2 bits", TWO)):
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

    asked = {} if options is None else dict(options)
    loss = asked.pop("loss", loss_of)

    def change(model: nn.Module) -> object:
        if options is not None and name != PLAIN_LOSS:
            tt.wrap(model, **asked)
        return nullcontext()

    step = Step(work, device, not on_gpu, change)
    step.loss = loss
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
    if act is not None and work.name in BUDGETS:  # of others `trained` tells
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


def fits(work: Work, options: dict | None, batch: int) -> bool:
    """Whether steps of so many images run, the first ones with them."""

    def change(model: nn.Module) -> object:
        if options is not None:
            tt.wrap(model, **options)
        return nullcontext()

    gc.collect()
    torch.cuda.empty_cache()
    try:
        step = Step(replace(work, shape=(batch, *work.shape[1:])), "cuda", False, change)
        for _ in range(10):
            step()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return False
    return True


def largest_batch(work: Work) -> list[dict]:
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, CAP / whole))
    rows: list[dict] = []
    try:
        for name, options in (("plain", None), ("4 bits", {"codec": FOUR})):
            low, high = 4, 8  # times 32
            while high <= 128 and fits(work, options, 32 * high):
                low, high = high, 2 * high
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits(work, options, 32 * middle) else (low, middle)
            row = {"work": f"{work.name}, largest batch in 16 GiB", "variant": name}
            rows.append(row | {"batch": 32 * low})
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        gc.collect()
        torch.cuda.empty_cache()
    rows[1]["batch_over_plain"] = rows[1]["batch"] / rows[0]["batch"]
    return rows


def show(rows: list[dict]) -> None:
    titles = ("work", "variant", "ms", "host_ms", "time_over_plain", "peak", "peak_ratio", "cosine", "relative_error", "bias", "variance", "predicted", "tried", "repeats", "batch")  # fmt: skip

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
        if row["variant"] in ("4 bits", OUR_LOSS) and "peak_ratio" in row:
            found.append(Figure(of, "peak_ratio", row["peak_ratio"], ratio))
            found.append(Figure(of, "time_over_plain", row["time_over_plain"], ceiling=1 + longer))
            if "cosine" in row:
                found.append(Figure(of, "cosine", row["cosine"], 0.98))
        if row["variant"].startswith("budget") and "peak" in row:
            budget = float(row["variant"].split()[1]) * 2**30
            found.append(Figure(of, "peak_of_budget", row["peak"] / budget, ceiling=1.0))
    return found


def qualities(row: dict) -> list[Figure]:
    of = {key: row[key] for key in ("work", "variant")}
    return [
        Figure(of, "cosine", row["cosine"], 0.98),
        Figure(of, "bias", row["bias"], ceiling=0.02),
        Figure(of, "variance", row["variance"], ceiling=0.10),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default=",".join(FLOORS))
    parser.add_argument("--parts", default="steps,trained,batch")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    record = Record("activations_lossy", options.dry_run, ROOT / "build/release", METHOD)
    record.commands.append("python -m bench.experiments.activations.lossy")
    record.extra = {"torch": torch.__version__}
    if device == "cuda":
        record.extra |= {"gpu": torch.cuda.get_device_name()}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    parts = options.parts.split(",")

    def keep(rows: list[dict], found: list[Figure]) -> None:
        show(rows)
        record.rows += rows
        record.figures += found
        if options.out is not None:
            options.out.write_text(record.text(tuckfold.__version__))

    for name in options.only.split(",") if "steps" in parts else ():
        work = next(w for w in WORKS if w.name == name)
        rows = run(work, device, 1 if options.dry_run else options.steps)
        keep(rows, figures(work, rows))
    if "batch" in parts and device == "cuda":
        rows = largest_batch(next(w for w in WORKS if w.name == "resnet50_bf16"))
        of = {key: rows[1][key] for key in ("work", "variant")}
        keep(rows, [Figure(of, "batch_over_plain", rows[1]["batch_over_plain"], 3.0)])
    if "trained" in parts:
        try:  # pictures, and what reads them, are not on every machine
            from bench.experiments.activations import trained
        except ImportError as error:
            sys.exit(f"no trained networks: {error}")
        rows = trained.rows({"4 bits": FOUR, "4 bits, nearest": NEAREST}, device, options.dry_run)
        keep(rows, [figure for row in rows for figure in qualities(row)])


if __name__ == "__main__":
    main()
