"""Measures what wrapping a model saves and costs, beside checkpointing and hooks that do nothing.

  python -m bench.experiments.activations --out X.json       on a GPU; four minutes
  python -m bench.experiments.activations --only vit_b,gpt
  python -m bench.experiments.activations --dry-run          tiny, on the CPU: no figures

Needs torch and the tuckfold package with its CUDA library (TUCKFOLD_LIBRARIES).
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations import models
from bench.experiments.activations.timing import beside_itself, in_turn, warmed
from bench.gpu.networks import ResNet50, ViT
from bench.record import ROOT, Figure, Record, floor_table, table, worst_first
from tuckfold.torch._activations import _proof
from tuckfold.torch._activations._handle import handle_of

METHOD = (
    "One step: forward, cross entropy, backward, SGD with momentum. Five steps of each variant first, eight of those that wrap, then two for its peak: torch.cuda.max_memory_allocated, less "
    "what was allocated before the model; held: bytes allocated between forward and backward, above those before. Then the variants take turns, and the order changes between rounds: two steps "
    "that are not measured, then a block of steps that follow each other without waiting. ms: the median over rounds of the median of CUDA events between steps; host_ms: of a step before the block, from an idle GPU until its last call returned; "
    'time_over_plain: the median over rounds of the ratio to the plain block of the round; "plain, again" is a second plain '
    "model. Where the host limits steps, models that are alike differ, so that those with nothing to gain are compared with themselves: wrapped, and not, in turn. identical: gradients of every parameter, bit by bit, with cudnn.deterministic, and for language models "
    "torch.use_deterministic_algorithms, without which attention does not repeat itself. predicted: by Activations.peak before the first "
    "step. Ratios are plain over variant. floors: worst first."
)
WRAP, CHEAP, KEEP = "wrap", "wrap, recompute=2", "wrap, nothing to gain"
AGAIN = "plain, again"
LARGE = "wrap, recompute=2, least=100 MiB"  # where time counts most


@dataclass
class Work:
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    bf16: bool = False
    channels_last: bool = False
    words: int = 0  # of a language model
    rounds: int = 3  # more where the host limits steps, and times vary
    stored: float | None = None  # times fewer bytes that it should hold
    # By variant: times less that its peak should be, and how much longer a step may take.
    floors: dict[str, tuple[float, float]] = field(default_factory=dict)

    def batch(self, device: str, tiny: bool) -> tuple[Tensor, Tensor]:
        shape = (2, *self.shape[1:]) if tiny else self.shape
        if self.words:
            tokens = torch.randint(self.words, (shape[0], shape[1] + 1), device=device)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        x = torch.randn(shape, device=device)
        if self.channels_last:
            x = x.to(memory_format=torch.channels_last)
        return x, torch.randint(10, (shape[0],), device=device)


_NONE = (1 / 1.01, 0.03)  # of a model with nothing to gain
_CNN = {WRAP: (1.45, 0.10), CHEAP: (1.25, 0.04)}
_TRANSFORMER = {WRAP: (1.4, 0.06)}
_SMALL = 6

WORKS = [
    Work("alexnet_cifar", models.alexnet_cifar, (1024, 3, 32, 32), stored=2.5, rounds=_SMALL),
    Work("vgg16_f32", models.vgg16, (64, 3, 224, 224), stored=1.9),
    Work("vgg16_bf16", models.vgg16, (64, 3, 224, 224), bf16=True, stored=2.1),
    Work("resnet50_tf32", ResNet50, (256, 3, 256, 256), floors=_CNN),
    Work("resnet50_bf16", ResNet50, (256, 3, 224, 224), True, True, floors=_CNN),
    Work("unet_bf16", models.UNet, (32, 3, 256, 256), True, True, floors={WRAP: (1.45, 0.10), LARGE: (1.25, 0.04)}),
    Work("vit_s", lambda: ViT(384, 6), (512, 3, 224, 224), True, floors=_TRANSFORMER),
    Work("vit_b", lambda: ViT(768, 12), (128, 3, 224, 224), True, floors=_TRANSFORMER),
    Work("gpt", models.GPT, (32, 1024), True, words=8192, floors=_TRANSFORMER),
    Work("gpt_lora", lambda: models.lora(models.GPT()), (32, 1024), True, words=8192, stored=1.5),
    Work("resnet50_frozen", lambda: models.frozen(ResNet50()), (256, 3, 224, 224), True, True, stored=3),
    Work("resnet50_small", ResNet50, (8, 3, 224, 224), True, True, rounds=_SMALL),
    Work("gpt_small", models.GPT, (1, 128), True, words=8192, rounds=_SMALL, floors={WRAP: _NONE}),
]  # fmt: skip


class Checkpointed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


def variants(work: Work) -> dict[str, Callable[[nn.Module], object]]:
    """What is done to a model, by name; a context that its steps run in is returned."""

    def checkpointed(model: nn.Module) -> object:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = Checkpointed(block)
        return nullcontext()

    def wrapped(**options: int) -> Callable[[nn.Module], object]:
        def change(model: nn.Module) -> object:
            tt.wrap(model, **options)
            return nullcontext()

        return change

    found: dict[str, Callable[[nn.Module], object]] = {
        "plain": lambda model: nullcontext(),
        WRAP: wrapped(),
        CHEAP: wrapped(recompute=2),
        KEEP: wrapped(least=1 << 50),
    }
    if LARGE in work.floors:
        found[LARGE] = wrapped(recompute=2, least=100 << 20)
    if not work.name.startswith("unet") and "frozen" not in work.name and "lora" not in work.name:
        found["checkpoint"] = checkpointed
    if work.rounds == _SMALL:
        found[AGAIN] = lambda model: nullcontext()
        found["identity hooks"] = lambda model: saved_tensors_hooks(
            lambda x: x.detach(), lambda x: x
        )
    return found


def prime() -> None:
    """Products allocate workspaces that stay: not memory of the first network."""
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(256, 256, device="cuda", dtype=dtype, requires_grad=True)
        nn.functional.linear(x, x, x[0]).sum().backward()


def loss_of(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out.flatten(0, -2), y.flatten())


class Step:
    """One training step of a model."""

    def __init__(self, work: Work, device: str, tiny: bool, change: Callable) -> None:
        torch.manual_seed(0)
        with torch.device(device):  # a CPU takes seconds for the weights of some
            self.model = work.make()
        if work.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.context = change(self.model)
        self.x, self.y = work.batch(device, tiny)
        self.cast = torch.autocast(device, torch.bfloat16, enabled=work.bf16)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        self.held = 0
        self.loss = loss_of

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        before = torch.cuda.memory_allocated() if self.x.is_cuda else 0
        with self.cast, self.context:
            out = self.model(self.x)
            loss = self.loss(out, self.y)
        if self.x.is_cuda:
            self.held = torch.cuda.memory_allocated() - before
        loss.backward()
        self.optimizer.step()


def measure(work: Work, name: str, change: Callable, device: str, tiny: bool) -> tuple[dict, Step]:
    """The peak of a variant, and its step, ready to be timed."""
    on_gpu = device == "cuda"
    row: dict[str, object] = {"work": work.name, "variant": name}
    gc.collect()  # what another variant left would count as memory of this one
    if on_gpu:
        torch.cuda.empty_cache()
        row["allocated_before"] = torch.cuda.memory_allocated()
    step = Step(work, device, tiny, change)
    act = handle_of(step.model)
    if act is not None and on_gpu:
        with step.cast:
            peak = act.peak((step.x, step.y), loss=loss_of, optimizer=step.optimizer)
        row["predicted"] = peak.total
        act.remove()
        change(step.model)
    warmed(step, on_gpu, warm=1 if not on_gpu else 8 if act is not None else 5)
    if on_gpu:
        for _ in range(2):
            step()
        row["peak"] = torch.cuda.max_memory_allocated() - row["allocated_before"]
        row["held"] = step.held
        if "predicted" in row:
            row["predicted_over_peak"] = row["predicted"] / row["peak"]
    return row, step


def timed(rows: list[dict], steps: dict[str, Step], rounds: int, count: int, on_gpu: bool) -> None:  # fmt: skip
    found = in_turn(steps, rounds, count, on_gpu)
    for row in rows:
        pairs = found.get(row["variant"])
        if not pairs:
            continue
        row["ms"] = statistics.median(ms for ms, _ in pairs)
        if on_gpu:
            row["host_ms"] = statistics.median(host for _, host in pairs)
        ratios = [ms / plain for (ms, _), (plain, _) in zip(pairs, found["plain"], strict=True)]
        row["time_over_plain"] = statistics.median(ratios)


def against_itself(work: Work, rows: list[dict], step: Step, count: int) -> None:
    """The times of a model with nothing to gain."""
    for row in rows:
        name = row["variant"]
        if name == KEEP or (name == WRAP and work.floors.get(WRAP) == _NONE):
            options = {"least": 1 << 50} if name == KEEP else {}
            wrap = lambda options=options: tt.wrap(step.model, **options).remove  # noqa: E731
            row["time_of_variants"] = row["time_over_plain"]
            row["time_over_plain"] = beside_itself(step, wrap, 8, count, on_gpu=step.x.is_cuda)


def identical(work: Work, device: str, tiny: bool) -> dict[str, object]:
    """Whether a step's gradients keep every bit, and what was stored, from the plan."""
    step = Step(work, device, tiny, lambda model: nullcontext())
    deterministic = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(work.words > 0 and device == "cuda")
    try:
        with step.cast:
            # Two images have small tensors, which count as those of a batch.
            least = 4096 if tiny else None
            result = tt.check(step.model, (step.x, step.y), loss=loss_of, least=least)
    finally:
        torch.backends.cudnn.deterministic = deterministic
        torch.use_deterministic_algorithms(False)
    worst = max((p.relative_error for p in result.parameters), default=0.0)
    return {
        "identical": result.ok,
        "plain_repeats": result.repeatable,
        "worst_relative_error": worst,
        "saved": result.saved,
        "stored": result.stored,
        "stored_ratio": result.saved / max(result.stored, 1),
    }


def run(work: Work, device: str, tiny: bool, steps: int) -> list[dict]:
    rows: list[dict] = []
    ready: dict[str, Step] = {}
    for name, change in variants(work).items():
        try:
            row, ready[name] = measure(work, name, change, device, tiny)
            rows.append(row)
        except Exception as error:
            traceback.print_exc()
            rows.append({"work": work.name, "variant": name, "error": repr(error)[:300]})
        if device == "cuda":
            torch.cuda.empty_cache()
    plain = rows[0]
    for row in rows:
        if "peak" in row and "peak" in plain:
            row["peak_ratio"] = plain["peak"] / row["peak"]
            row["held_ratio"] = plain["held"] / max(row["held"], 1)
    if "plain" in ready:
        timed(rows, ready, 1 if tiny else work.rounds, steps, device == "cuda")
        if work.rounds == _SMALL and not tiny:
            against_itself(work, rows, ready["plain"], steps + 2)
    ready.clear()
    try:
        exact = identical(work, device, tiny)
        next(row for row in rows if row["variant"] == WRAP).update(exact)
    except Exception as error:
        traceback.print_exc()
        rows.append({"work": work.name, "variant": "check", "error": repr(error)[:300]})
    if device == "cuda":
        torch.cuda.empty_cache()
    return rows


def figures(work: Work, rows: list[dict]) -> list[Figure]:
    """What is held to a floor or a ceiling; not a number where it was not measured."""
    found = []
    by_name = {row["variant"]: row for row in rows}

    def add(variant: str, name: str, floor: float | None = None, ceiling: float | None = None) -> None:  # fmt: skip
        value = float(by_name.get(variant, {}).get(name, math.nan))
        of = {"work": work.name, "variant": variant}
        if name == "predicted_over_peak":
            name, value = "predicted_peak", 1 - abs(value - 1)
        found.append(Figure(of, name, value, floor, ceiling=ceiling))

    add(WRAP, "identical", 1.0)
    if work.stored is not None:
        add(WRAP, "stored_ratio", work.stored)
    for variant, (peak, longer) in (work.floors | {KEEP: _NONE}).items():
        add(variant, "peak_ratio", peak)
        add(variant, "time_over_plain", ceiling=1 + longer)
    for variant in dict.fromkeys((WRAP, CHEAP, KEEP, *work.floors)):
        add(variant, "predicted_over_peak", 0.97)
    return found


def show(rows: list[dict]) -> None:
    titles = ("work", "variant", "ms", "host_ms", "time_over_plain", "peak", "peak_ratio", "predicted_over_peak", "held_ratio", "stored_ratio", "identical")  # fmt: skip

    def cell(row: dict, key: str) -> object:
        value = row.get(key)
        if key == "peak" and value:
            return f"{value / 2**30:.2f} GiB"
        return str(value) if isinstance(value, bool) else value if value is not None else ""

    cells = [[cell(row, key) for key in titles] for row in rows]
    print(
        table(titles, [[f"{c:.2f}" if isinstance(c, float) else str(c) for c in r] for r in cells])
    )
    for row in rows:
        if "error" in row:
            print(row["work"], row["variant"], row["error"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=4, help="of a block")
    parser.add_argument("--seconds", type=float, default=260, help="start nothing new after these")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    # What deterministic algorithms need; as large as a GPU of this kind has it otherwise.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    chosen = set(options.only.split(",")) - {""}
    unknown = chosen - {work.name for work in WORKS}
    if unknown:
        parser.error(
            f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(w.name for w in WORKS)}"
        )
    record = Record("activations", options.dry_run, ROOT / "build/release", METHOD)
    record.commands.append(
        "python -m bench.experiments.activations" + (f" --only {options.only}" if chosen else "")
    )
    record.extra = {"torch": torch.__version__}
    if device == "cuda":
        record.extra |= {
            "gpu": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
        }
        prime()
    began = time.monotonic()
    order = {name: i for i, name in enumerate(options.only.split(","))}
    for work in sorted(WORKS, key=lambda w: order.get(w.name, 0)):
        if chosen and work.name not in chosen:
            continue
        if time.monotonic() - began > options.seconds:
            print(f"{work.name}: no time left")
            record.figures += figures(work, [])
            continue
        rows = run(work, device, options.dry_run, 1 if options.dry_run else options.steps)
        show(rows)
        record.rows += rows
        record.figures += figures(work, rows)
        record.floors = worst_first(record.figures)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
        if options.out is not None:  # also what came before an end by force
            record.extra["recipes"] = [{"recipe": t, "same_bits": a} for t, a in _proof.answers()]
            options.out.write_text(record.text(tuckfold.__version__))
    record.floors = worst_first(record.figures)
    if options.out is not None:
        options.out.write_text(record.text(tuckfold.__version__))
    print(floor_table(record.floors))
    for text, same in sorted(set(_proof.answers()), key=str):
        if same is not True:
            print("not the same bits:" if same is False else "no answer:", text)


if __name__ == "__main__":
    main()
