"""Times of training steps."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def step_times(
    step: Callable[[], object], steps: int, on_gpu: bool, warm: int = 8
) -> tuple[list[float], list[float]]:
    """Milliseconds of each step, on the GPU if there is one, and of the host's part.

    Steps before them warm up, and do not count for the GPU's peak.
    """
    for _ in range(warm):
        step()
        if on_gpu:
            torch.cuda.synchronize()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times, host = [], []
    for _ in range(steps):
        if on_gpu:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
        began = time.perf_counter()
        step()
        host.append((time.perf_counter() - began) * 1e3)
        if on_gpu:
            stop.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(stop))
    return times if on_gpu else host, host
