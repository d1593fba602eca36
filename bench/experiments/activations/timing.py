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
    warmed(step, on_gpu, warm)
    pairs = [one(step, on_gpu) for _ in range(steps)]
    return [ms for ms, _ in pairs], [host for _, host in pairs]


def warmed(step: Callable[[], object], on_gpu: bool, warm: int) -> None:
    for _ in range(warm):
        step()
        if on_gpu:
            torch.cuda.synchronize()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()


def one(step: Callable[[], object], on_gpu: bool) -> tuple[float, float]:
    """Milliseconds of a step, and of the host's part."""
    if on_gpu:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
    began = time.perf_counter()
    step()
    host = (time.perf_counter() - began) * 1e3
    if not on_gpu:
        return host, host
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop), host


def in_turn(
    steps: dict[str, Callable[[], object]], rounds: int, on_gpu: bool
) -> dict[str, list[tuple[float, float]]]:
    """The same of several steps, one of each in every round: a machine that gets slower for a while does so for
    all of them. The first of a round is another one each time."""
    names, found = list(steps), {name: [] for name in steps}
    for turn in range(-1, rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            pair = one(steps[name], on_gpu)
            if turn >= 0:  # the round before fills torch's allocator
                found[name].append(pair)
    return found
