"""Measures structured layers beside torch.nn.Linear, forward and with backward, over the number of features.

  tuckfold study layers                     the CPU: every family at three sizes, one thread, a few minutes
  tuckfold study layers --sweep             over features and batch, with a roofline and the break-even
  tuckfold study layers --device cuda       a GPU: the butterfly, FP32, TF32 and bf16; also with --sweep
  tuckfold study layers --quick             small sizes: no figures

Every layer's output is compared with its matrix in double precision. Results: bench/results/.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import tuckfold
from bench.experiments.layers import sweep
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

CPU_METHOD = (
    "One thread. Seconds of processor time of the thread, which other programs on the machine do not count in; "
    "the least of several calls. forward: no gradients wanted; step: forward, and gradients of the input, the "
    "weights and the bias. linear: torch.nn.Linear in the same run. plain: the same butterfly in torch's operators."
)
GPU_METHOD = (
    "Calls over several inputs in one CUDA graph, replayed; the median replay for one call, by events. forward: no "
    "gradients wanted; step: forward, and gradients of the input, the weights and the bias. linear: torch.nn.Linear "
    "in the same run, with TF32 off (f32), on (tf32), and in bf16. copy: reading x and writing y, by copy_."
)


def families(n: int) -> list[str]:
    """Layers with a quarter of the dense weights at most."""
    return [
        "butterfly",
        "butterfly(tied=true)",
        "butterfly(form=orthogonal)",
        "monarch(blocks=8)",
        "block_diagonal(blocks=4)",
        f"low_rank(rank={n // 8})",
        "pixelfly(block=32, butterfly=32, rank=16)",
        "circulant",
        "fastfood",
    ]


# ---- the CPU


def on_cpu(record: Record, sizes: Sequence[int], batch: int, rounds: int, quick: bool) -> None:
    torch.set_num_threads(1)
    for n in sizes:
        x, g = torch.randn(batch, n, requires_grad=True), torch.randn(batch, n)

        about = {"features": n, "batch": batch}
        linear = measure_cpu(nn.Linear(n, n), x, g, rounds)
        record.rows.append(about | {"layer": "linear", "weights": n * n} | linear)
        for text in families(n):
            layer = tnn.Structured(text, n, n)
            check(layer, torch.float32)
            times = measure_cpu(layer, x, g, rounds)
            row = about | {"layer": text, "weights": layer.weight_count} | times
            record.rows.append(row)
            floor = 1.0 if n >= 1024 and not quick else None
            ratio = linear["step_ms"] / row["step_ms"]
            record.figures.append(Figure(about | {"layer": text}, "step_of_linear", ratio, floor))
        layer = tnn.Butterfly(n, n)
        weights = layer.structure_weights()

        def by_torch(
            layer: tnn.Structured = layer,
            x: Tensor = x,
            g: Tensor = g,
            weights: list[Tensor] = weights,
        ) -> object:
            y = plain(layer.structure, x, weights, layer.bias)
            return torch.autograd.grad(y, [x, *layer.parameters()], g)

        slow = cpu_seconds(by_torch, max(rounds // 4, 1)) * 1e3
        own = next(r for r in record.rows if r["features"] == n and r["layer"] == "butterfly")
        record.rows.append(
            about | {"layer": "plain butterfly", "weights": layer.weight_count, "step_ms": slow}
        )
        floor = 10.0 if n >= 1024 and not quick else None
        record.figures.append(
            Figure(about, "butterfly_step_of_plain", slow / own["step_ms"], floor)
        )


# ---- a GPU


def on_cuda(record: Record, sizes: Sequence[int], batches: Sequence[int]) -> None:
    for batch in batches:
        for n in sizes:
            by_kind: dict[str, dict[str, float]] = {}
            for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
                xs = inputs_of(batch, n, dtype)
                g = torch.randn(batch, n, device="cuda", dtype=dtype)
                about = {"features": n, "batch": batch, "dtype": kind}
                ys = [torch.empty_like(x) for x in xs]
                pairs = list(zip(xs, ys, strict=True))
                with torch.no_grad():
                    copy = graph_seconds([lambda x=x, y=y: y.copy_(x) for x, y in pairs]) * 1e3
                record.rows.append(about | {"layer": "copy", "forward_ms": copy})
                for tf32 in (False, True) if kind == "f32" else (False,):
                    torch.backends.cuda.matmul.allow_tf32 = tf32
                    name = "tf32" if tf32 else kind
                    linear = nn.Linear(n, n, device="cuda", dtype=dtype)
                    by_kind[name] = measure_cuda(linear, xs, g)
                    row = about | {"layer": "linear", "dtype": name} | by_kind[name]
                    record.rows.append(row)
                torch.backends.cuda.matmul.allow_tf32 = False
                for text in ("butterfly", "butterfly(tied=true)"):
                    layer = tnn.Structured(text, n, n, device="cuda", dtype=dtype)
                    check(layer, dtype)
                    times = measure_cuda(layer, xs, g)
                    record.rows.append(
                        about | {"layer": text, "weights": layer.weight_count} | times
                    )
                    rivals = ("f32", "tf32") if kind == "f32" else ("bf16",)
                    for rival in rivals:
                        of = {"features": n, "batch": batch, "layer": text, "linear": rival}
                        for what in ("forward", "step"):
                            ratio = by_kind[rival][f"{what}_ms"] / times[f"{what}_ms"]
                            record.figures.append(
                                Figure(
                                    of,
                                    f"{what}_of_linear",
                                    ratio,
                                    floor(n, batch, text, rival, what),
                                )
                            )
                    share = copy / times["forward_ms"]
                    record.figures.append(Figure(about | {"layer": text}, "forward_of_copy", share))


def floor(n: int, batch: int, text: str, rival: str, what: str) -> float | None:
    if text != "butterfly" or batch != 4096:
        return None
    if n == 4096 and rival in ("tf32", "bf16"):
        return {
            "forward": {"tf32": 6.0, "bf16": 5.0}[rival],
            "step": 3.0 if rival == "tf32" else None,
        }[what]
    if what == "forward" and (n, rival) in ((512, "tf32"), (1024, "bf16")):
        return 1.0
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--features", help="sizes like 1024,4096")
    parser.add_argument("--batch", help="sizes like 256,4096")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--sweep", action="store_true", help="over features and batch")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.sweep:
        sweep.run(arguments)
        return
    cuda = arguments.device == "cuda"
    record = Record(
        experiment=f"layers_{arguments.device}",
        quick=arguments.quick,
        build=ROOT / "build/release",
        method=GPU_METHOD if cuda else CPU_METHOD,
        commands=["tuckfold study layers" + (" --device cuda" if cuda else "")],
        extra={"torch": torch.__version__}
        | (
            {"gpu": torch.cuda.get_device_name()}
            if cuda
            else {"torch_cpu": torch.backends.cpu.get_cpu_capability()}
        ),
    )
    sizes = [int(n) for n in arguments.features.split(",")] if arguments.features else None
    batches = [int(n) for n in arguments.batch.split(",")] if arguments.batch else None
    if cuda:
        on_cuda(record, sizes or [2**k for k in range(7, 14)], batches or [256, 4096])
    else:
        sizes = sizes or ([128] if arguments.quick else [256, 1024, 2048])
        on_cpu(record, sizes, (batches or [256])[0], 2 if arguments.quick else 9, arguments.quick)
    titles = list(dict.fromkeys(key for row in record.rows for key in row))
    print(table(titles, [[row.get(title) for title in titles] for row in record.rows]))
    for figure in record.figures:
        if figure.limit is not None:
            print(
                figure.verdict, figure.of, figure.name, f"{figure.value:.2f} floor {figure.limit}"
            )
    print(record.write(arguments.out, tuckfold.version()))


if __name__ == "__main__":
    main()
