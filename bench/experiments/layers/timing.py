"""Times of layers on a CPU and on a GPU, and that their outputs are right."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tuckfold.torch.nn._plain import plain


def check(layer: nn.Module, dtype: torch.dtype) -> None:
    """The first samples against the matrix in double precision."""
    x = torch.randn(8, layer.in_features, device=layer.bias.device, dtype=dtype)
    weights = [w.detach() for w in layer.structure_weights()]
    wide = [w.double() if w.is_floating_point() else w for w in weights]
    want = plain(layer.structure, x.double(), wide, layer.bias.detach().double())
    error = float((layer(x).detach().double() - want).norm() / want.norm())
    limit = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}[dtype]
    if not error < limit:
        sys.exit(f"{layer.text} of {layer.in_features} features differs by {error}")


def step_of(layer: nn.Module, x: Tensor, g: Tensor) -> Callable[[], object]:
    wanted = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x), wanted, g)


def cpu_seconds(call: Callable[[], object], rounds: int) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)


def measure_cpu(layer: nn.Module, x: Tensor, g: Tensor, rounds: int) -> dict[str, float]:
    with torch.no_grad():
        forward = cpu_seconds(lambda: layer(x), rounds)
    step = cpu_seconds(step_of(layer, x, g), rounds)
    return {"forward_ms": forward * 1e3, "step_ms": step * 1e3}


def graph_seconds(calls: Sequence[Callable[[], object]]) -> float:
    """One call's share of a graph of them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(9):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / 1e3 / len(calls))
    return statistics.median(times)


def inputs_of(batch: int, n: int, dtype: torch.dtype) -> list[Tensor]:
    """As many as no cache holds, up to 24."""
    size = batch * n * dtype.itemsize
    count = min(max(200_000_000 // size, 2), 24)
    return [
        torch.randn(batch, n, device="cuda", dtype=dtype).requires_grad_() for _ in range(count)
    ]


def measure_cuda(layer: nn.Module, xs: list[Tensor], g: Tensor) -> dict[str, float]:
    with torch.no_grad():
        forward = graph_seconds([lambda x=x: layer(x) for x in xs])
    step = graph_seconds([step_of(layer, x, g) for x in xs[:4]])
    return {"forward_ms": forward * 1e3, "step_ms": step * 1e3}
