"""Times over features and batch beside a roofline, and where a layer begins to be faster than torch.nn.Linear."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tuckfold
from bench.chart import Chart, Line
from bench.experiments.layers.timing import (
    check,
    cpu_seconds,
    graph_seconds,
    inputs_of,
    measure_cpu,
    measure_cuda,
)
from bench.record import ROOT, Figure, Record, table
from tuckfold.torch import nn as tnn
from tuckfold.torch.nn._plain import plain

METHOD = (
    "f32. CPU: one thread, processor time of the thread, the least of several calls. GPU: one call's share of a CUDA graph, TF32 "
    "off. forward: no gradients wanted; step: forward, and gradients of input, weights and bias. plain butterfly: the same "
    "in torch's operators. roofline: the larger of operations by the rate of a product of 1024 x 1024 matrices, and of "
    "bytes by the rate of a copy of the input, both of this run; a step counts backward as twice forward, and forward once "
    "more where it is computed again. break_even: the least number of features from which the layer took less time than "
    "torch.nn.Linear at every larger one measured; 0: at none."
)
LAYERS = {
    "butterfly": "butterfly",
    "pixelfly": "pixelfly(block=32, butterfly=16, rank=16)",
    "monarch": "monarch(blocks=8)",
    "fastfood": "fastfood",
}
# Figure 6 of the paper, in words: from so many features on faster than torch.nn.Linear.
PRINTED = {"A30": 2048, "GC200": 1024}


class PlainButterfly(nn.Module):
    """What the paper ran: every factor is operators of torch's."""

    def __init__(self, layer: tnn.Structured) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return plain(self.layer.structure, x, self.layer.structure_weights(), self.layer.bias)


class Machine:
    """Where layers run: times of them, of a product and of a copy."""

    def __init__(self, device: str, rounds: int) -> None:
        self.device, self.rounds = device, rounds
        a = torch.randn(1024, 1024, device=device)
        seconds = self.seconds(lambda: torch.mm(a, a))
        self.flops = 2 * 1024**3 / seconds

    def seconds(self, call: Callable[[], object]) -> float:
        with torch.no_grad():
            return cpu_seconds(call, self.rounds) if self.device == "cpu" else graph_seconds([call])

    def measure(self, layer: nn.Module, batch: int, n: int) -> dict[str, float]:
        if self.device == "cpu":
            x, g = torch.randn(batch, n, requires_grad=True), torch.randn(batch, n)
            return measure_cpu(layer, x, g, self.rounds)
        g = torch.randn(batch, n, device=self.device)
        return measure_cuda(layer, inputs_of(batch, n, torch.float32), g)

    def copy_seconds(self, batch: int, n: int) -> float:
        x, y = (torch.randn(batch, n, device=self.device) for _ in range(2))
        return self.seconds(lambda: y.copy_(x))

    def roofline(self, layer: nn.Module, batch: int, n: int) -> dict[str, float]:
        """Milliseconds below which neither arithmetic nor memory lets the layer come."""
        copy = self.copy_seconds(batch, n)
        rate = 2 * batch * n * 4 / copy
        dense = isinstance(layer, nn.Linear)
        flops = 2 * batch * n * n if dense else layer.flops(batch)
        weights = 4 * (n * n if dense else layer.weight_count)
        forward = max(flops / self.flops, copy + weights / rate)
        step = max((3 if dense else 4) * flops / self.flops, 2.5 * copy + 3 * weights / rate)
        return {"roofline_forward_ms": forward * 1e3, "roofline_step_ms": step * 1e3}


def break_even(rows: list[dict], name: str, batch: int, what: str) -> int:
    """The least size from which on it was faster at every one, 0 where the largest was not."""

    def time(layer: str, n: int) -> float | None:
        found = [
            r[what] for r in rows if (r["layer"], r["features"], r["batch"]) == (layer, n, batch)
        ]
        return found[0] if found else None

    sizes = sorted({row["features"] for row in rows if row["layer"] == name}, reverse=True)
    least = 0
    for n in sizes:
        if time(name, n) >= time("linear", n):
            break
        least = n
    return least


def picture(rows: list[dict], batches: list[int]) -> str:
    colours = {
        "linear": "#333333",
        "butterfly": "#d62728",
        "plain butterfly": "#e8a0a0",
        "pixelfly": "#ff7f0e",
        "monarch": "#2ca02c",
        "fastfood": "#1f77b4",
    }
    charts = []
    for batch in batches:
        lines = []
        for name, colour in colours.items():
            some = [r for r in rows if r["layer"] == name and r["batch"] == batch]
            if some:
                lines.append(Line(name, [(r["features"], r["step_ms"]) for r in some], colour))
            if name in ("linear", "butterfly"):
                points = [(r["features"], r["roofline_step_ms"]) for r in some]
                lines.append(Line(f"roofline of {name}", points, colour, dashed=True))
        charts.append(Chart(f"a step, {batch} samples", "features", "ms", lines, (True, True)))
    return Chart.side_by_side(charts)


def run(arguments: argparse.Namespace) -> None:
    cpu, quick = arguments.device == "cpu", arguments.quick
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    last = 8 if quick else 12 if cpu else 14
    sizes = [int(n) for n in (arguments.features or "").split(",") if n]
    sizes = sizes or [2**k for k in range(7, last + 1)]
    batches = [int(n) for n in (arguments.batch or "").split(",") if n]
    batches = batches or ([16, 256] if cpu else [256, 4096])
    machine = Machine(arguments.device, 2 if quick else 5)
    record = Record(
        experiment=f"layers_sweep_{arguments.device}",
        quick=quick,
        build=ROOT / "build/release",
        method=METHOD,
        commands=[
            "tuckfold study layers --sweep" + ("" if cpu else f" --device {arguments.device}")
        ],
        extra={"torch": torch.__version__, "product_gflops": machine.flops / 1e9}
        | ({} if cpu else {"gpu": torch.cuda.get_device_name()}),
    )
    for batch in batches:
        for n in sizes:
            layers: dict[str, nn.Module] = {"linear": nn.Linear(n, n, device=arguments.device)}
            for name, text in LAYERS.items():
                layers[name] = tnn.Structured(text, n, n, device=arguments.device)
                check(layers[name], torch.float32)
            layers["plain butterfly"] = PlainButterfly(layers["butterfly"])
            for name, layer in layers.items():
                row = {"features": n, "batch": batch, "layer": name}
                row |= machine.measure(layer, batch, n)
                if name != "plain butterfly":
                    row |= machine.roofline(layer, batch, n)
                record.rows.append(row)
            print(f"{batch} samples of {n} features", flush=True)
    for batch in batches:
        for name in (*LAYERS, "plain butterfly"):
            for what in ("forward", "step"):
                least = break_even(record.rows, name, batch, f"{what}_ms")
                of = {"layer": name, "batch": batch}
                more = {"printed": PRINTED} if "butterfly" in name else {}
                record.figures.append(Figure(of, f"{what}_break_even", least, more=more))
    titles = list(dict.fromkeys(key for row in record.rows for key in row))
    print(table(titles, [[row.get(title) for title in titles] for row in record.rows]), "\n")
    entries = [figure.to_json() for figure in record.figures]
    print(table(["layer", "batch", "figure", "value"], [list(e.values())[:4] for e in entries]))
    print(record.write(arguments.out, tuckfold.version()))
    (arguments.out / f"{record.experiment}.svg").write_text(picture(record.rows, batches))
