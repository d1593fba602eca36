"""Times of training steps."""

from __future__ import annotations

import gc
import statistics
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


def block(step: Callable[[], object], count: int, on_gpu: bool) -> tuple[float, float]:
    """Milliseconds of a step among `count` that follow each other without waiting, as in training, and of the
    host's part of one that nothing ran before; two steps come before them, and the second is the host's."""
    step()
    if not on_gpu:
        step()
        times = [one(step, on_gpu)[0] for _ in range(count)]
        return statistics.median(times), statistics.median(times)
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    host = (time.perf_counter() - began) * 1e3
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(map(torch.cuda.Event.elapsed_time, events, events[1:])), host


def in_turn(
    steps: dict[str, Callable[[], object]], rounds: int, count: int, on_gpu: bool
) -> dict[str, list[tuple[float, float]]]:
    """The same of several steps, in rounds: each makes a block of `count` steps, so that a machine that gets
    slower for a while does so for all of them. Steps that alternate one by one would each find the caches of the
    host full of another's. The first of a round is another one each time."""
    names, found = list(steps), {name: [] for name in steps}
    gc.collect()
    gc.freeze()  # models beside the one that runs are no work for its collections
    try:
        for turn in range(rounds):
            at = turn % len(names)
            for name in names[at:] + names[:at]:
                found[name].append(block(steps[name], count, on_gpu))
    finally:
        gc.unfreeze()
    return found


def beside_itself(
    step: Callable[[], object],
    change: Callable[[], Callable[[], object]],
    rounds: int,
    count: int,
    on_gpu: bool,
    warm: int = 6,
) -> float:
    """How much longer a step takes after `change`, which returns what undoes it: two models that are alike differ by
    more where the host is the limit, since their objects are elsewhere in memory."""
    times = [block(step, count, on_gpu)[0]]
    ratios = []
    for _ in range(rounds):
        undo = change()
        warmed(step, on_gpu, warm)
        changed = block(step, count, on_gpu)[0]
        undo()
        times.append(block(step, count, on_gpu)[0])
        ratios.append(2 * changed / (times[-2] + times[-1]))
    return statistics.median(ratios)
