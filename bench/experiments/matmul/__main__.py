"""Dense, sparse and skewed products of matrices: the butterfly paper's table 2 and figure 4.

  tuckfold study matmul                    the CPU, one thread: a few minutes
  tuckfold study matmul --device cuda      a GPU, with CUDA kernels and cuBLAS and cuSPARSE through torch
  tuckfold study matmul --quick            small sizes: no figures

Kernels of our own, as first written and blocked, stand beside the vendor's. Every result is compared with one in
double precision. Results: bench/results/matmul.json and its figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

import tuckfold
from bench.chart import Chart, Line
from bench.experiments.matmul.products import Products, sparse_form
from bench.record import ROOT, Record, command_line, first_line, table

METHOD = (
    "f32. CPU: one thread, processor time of the thread, the least of several calls; peak: multiplications and additions "
    "in registers, in the same run. GPU: events around calls, the least; peak: see peak_is. vendor: torch, "
    "which calls oneDNN or MKL on a CPU, cuBLAS and cuSPARSE on a GPU. gflops of sparse products: of the numbers that are "
    "not zero; dense_gflops: as if all counted, which is how the paper's exceed its peak. skew m/n at equal operations: "
    "a of m x n, b of n x k, m n = side squared, k = side."
)


def least_seconds(call: Callable[[], object], device: str, rounds: int) -> float:
    call()
    times = []
    for _ in range(rounds):
        if device == "cpu":
            start = time.thread_time()
            call()
            times.append(time.thread_time() - start)
        else:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            call()
            events[1].record()
            torch.cuda.synchronize()
            times.append(events[0].elapsed_time(events[1]) / 1e3)
    return min(times)


def check(name: str, got: Tensor, a: Tensor, b: Tensor) -> None:
    some = slice(0, 64)
    want = a[some].double() @ b.double()
    error = float((got[some].double() - want).norm() / want.norm())
    limit = 2e-3 if torch.backends.cuda.matmul.allow_tf32 else 1e-5
    if not error < limit:
        sys.exit(f"matmul: {name} of {tuple(a.shape)} differs by {error}")


LANES = 128  # of f32 in a multiprocessor of compute capability 8.6, 8.9 and 9.0; 64 in 8.0


def gpu_peak(tf32: bool) -> tuple[float, str]:
    """Of this GPU, and where it is from: its file, or what follows from its processors and its clock."""
    properties = torch.cuda.get_device_properties(0)
    words = properties.name.lower().replace("nvidia ", "").split()
    numbers: dict[str, dict] = {}
    for path in sorted((ROOT / "devices").glob("*.json")):
        if path.stem in words:
            numbers = json.loads(path.read_text())["numbers"]
    name = "peak_tf32_flops" if tf32 else "peak_f32_flops"
    if name in numbers:
        return numbers[name]["value"] / 1e9, f"{name} of devices/"
    if tf32 and "peak_bf16_flops" in numbers:
        return numbers["peak_bf16_flops"]["value"] / 2e9, "half of peak_bf16_flops of devices/"
    clock = first_line("nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits")
    if tf32 or not clock.isdigit():
        sys.exit(f"matmul: no file of devices/ has {name} of {words}; add it")
    lanes = LANES // 2 if (properties.major, properties.minor) == (8, 0) else LANES
    peak = 2 * lanes * properties.multi_processor_count * int(clock) / 1e3
    return peak, f"{lanes} lanes of its multiprocessors at {clock} MHz, the most"


def peak_gflops(products: Products, device: str, rounds: int, tf32: bool) -> tuple[float, str]:
    if device != "cpu":
        return gpu_peak(tf32)
    function, sink = products.peak()
    turns = 2_000_000
    operations: list[float] = []
    seconds = least_seconds(
        lambda: operations.append(function(c_int64(turns), c_void_p(sink.data_ptr()))),
        "cpu",
        rounds,
    )
    return operations[0] / seconds / 1e9, "a loop in registers"


def dense_rows(products: Products, sides: list[int], rounds: int, naive_most: int) -> list[dict]:
    rows = []
    for side in sides:
        a, b, c = (torch.randn(side, side, device=products.device) for _ in range(3))
        for name, product in products.dense().items():
            if name == "naive" and side > naive_most:
                continue
            c.fill_(float("nan"))
            check(name, product(a, b, c), a, b)
            few = rounds if name != "naive" else 2
            seconds = least_seconds(lambda: product(a, b, c), products.device, few)  # noqa: B023
            rows.append(
                {"kind": "dense", "side": side, "kernel": name, "ms": seconds * 1e3}
                | {"gflops": 2 * side**3 / seconds / 1e9}
            )
    return rows


def sparse_rows(products: Products, sides: list[int], rounds: int) -> list[dict]:
    rows = []
    for side in sides:
        b = torch.randn(side, side, device=products.device)
        for zeros in (90, 99):
            dense = torch.randn(side, side, device=products.device)
            dense[torch.rand(side, side, device=products.device) < zeros / 100] = 0
            count = int((dense != 0).sum())
            for name, product in products.sparse().items():
                a = sparse_form(name, dense)
                check(name, product(a, b), dense, b)
                seconds = least_seconds(lambda: product(a, b), products.device, rounds)  # noqa: B023
                rows.append(
                    {"kind": "sparse", "side": side, "zeros": zeros, "kernel": name}
                    | {"ms": seconds * 1e3, "gflops": 2 * count * side / seconds / 1e9}
                    | {"dense_gflops": 2 * side**3 / seconds / 1e9}
                )
    return rows


def skew_rows(products: Products, side: int, most: int, rounds: int) -> list[dict]:
    rows = []
    for power in range(-most, most + 1):
        m, n = (int(side * 2**power), int(side * 2**-power))
        a = torch.randn(m, n, device=products.device)
        b = torch.randn(n, side, device=products.device)
        c = torch.empty(m, side, device=products.device)
        for name, product in products.dense().items():
            if name == "naive":
                continue
            c.fill_(float("nan"))
            check(name, product(a, b, c), a, b)
            seconds = least_seconds(lambda: product(a, b, c), products.device, rounds)  # noqa: B023
            rows.append(
                {"kind": "skew", "m": m, "n": n, "k": side, "skew": m / n, "kernel": name}
                | {"ms": seconds * 1e3, "gflops": 2 * m * n * side / seconds / 1e9}
            )
    return rows


COLOURS = {"naive": "#999999", "blocked": "#d62728", "shared": "#d62728", "vendor": "#1f77b4"}


def picture(rows: list[dict], peak: float) -> str:
    def lines(kind: str, x: str) -> list[Line]:
        some = [row for row in rows if row["kind"] == kind]
        names = dict.fromkeys(row["kernel"] for row in some)
        return [
            Line(
                name,
                [(row[x], row["gflops"] / peak * 100) for row in some if row["kernel"] == name],
                COLOURS[name],
            )
            for name in names
        ]

    return Chart.side_by_side(
        [
            Chart("square", "side", "% of peak", lines("dense", "side"), log=(True, False)),
            Chart("skewed, equal work", "m / n", "% of peak", lines("skew", "skew"), (True, False)),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tf32", action="store_true", help="let cuBLAS round its operands")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    cpu, quick = arguments.device == "cpu", arguments.quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    rounds = 2 if quick else 7
    products = Products(arguments.device)
    peak, source = peak_gflops(products, arguments.device, rounds, arguments.tf32)
    name = "matmul" + ("" if cpu else f"_{arguments.device}") + ("_tf32" if arguments.tf32 else "")
    record = Record(
        experiment=name,
        quick=quick,
        build=ROOT / "build/release",
        method=METHOD,
        commands=[command_line("tuckfold study matmul")],
        extra={"torch": torch.__version__, "threads": 1, "peak_gflops": peak, "peak_is": source}
        | ({} if cpu else {"gpu": torch.cuda.get_device_name()}),
    )
    sides = [128, 256] if quick else [256, 512, 1024, 2048] if cpu else [2**k for k in range(8, 14)]
    record.rows = dense_rows(products, sides, rounds, 512 if cpu else 1 << 13)
    record.rows += sparse_rows(products, sides[1:], rounds)
    skewed = 128 if quick else 1024 if cpu else 4096
    record.rows += skew_rows(products, skewed, 2 if quick else 4, rounds)
    for row in record.rows:
        row["percent_of_peak"] = row["gflops"] / peak * 100
    for kind in ("dense", "sparse", "skew"):
        some = [row for row in record.rows if row["kind"] == kind]
        titles = list(some[0])[1:]
        print(table(titles, [[row[title] for title in titles] for row in some]), "\n")
    print(f"peak {peak:.1f} GFLOP/s")
    print(record.write(arguments.out, tuckfold.version()))
    (arguments.out / f"{name}.svg").write_text(picture(record.rows, peak))


if __name__ == "__main__":
    main()
