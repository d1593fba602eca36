"""Time on a device: events around single calls with a cold cache, or a graph of calls over many buffers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

ROUNDS = 25
WARM_UPS = 3
GRAPH_WARM_UP_SECONDS = 0.02  # what a device did before shows in microseconds
FLUSH_BYTES = 256_000_000  # several times the L2 cache
GRAPH_BELOW_BYTES = 150_000_000  # smaller arrays would measure launches and the cache
ROTATING_BYTES = 500_000_000  # of distinct buffers, which no cache holds
GRAPH_CALLS = 32  # at least, so that starting the graph does not count
SLOW_SECONDS = 5e-3  # calls slower than this need no 25 rounds to be compared
ROOFLINE_BYTES = 4_000_000_000

Call = Callable[[], object]


class Clock:
    """Measures calls on the GPU, or with `dry` on the CPU, where times mean nothing."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = torch.device("cpu" if dry else "cuda")
        self.flush = torch.zeros(1 if dry else FLUSH_BYTES // 4, device=self.device)
        self.copies: dict[tuple[int, bool], float] = {}
        self.roofline = 0.0  # bytes read and written each second by a large plain copy

    def stream(self) -> int:
        return 0 if self.dry else torch.cuda.current_stream().cuda_stream

    def wait(self) -> None:
        if not self.dry:
            torch.cuda.synchronize()

    def measure(self, calls: Sequence[Call]) -> float:
        """Seconds of one call: of the only one with a cold cache, or on average of several."""
        return self.single(calls[0]) if len(calls) == 1 else self.graph(calls)

    def single(self, call: Call) -> float:
        """Median over rounds, each after reads that fill the cache and keep the device busy.

        Reads: what a fill left in the cache would be written back in the time of the call.
        """
        if self.dry:
            return wall_seconds(call)
        for _ in range(WARM_UPS - 1):
            call()
        rounds = ROUNDS if self._round(call) < SLOW_SECONDS else 7
        pairs = [self._events(call) for _ in range(rounds)]
        self.wait()
        return statistics.median(a.elapsed_time(b) for a, b in pairs) / 1e3

    def graph(self, calls: Sequence[Call]) -> float:
        """Calls back to back in one CUDA graph, over and over: the median replay for one of them."""
        if self.dry:
            return wall_seconds(lambda: [call() for call in calls]) / len(calls)
        for call in calls[:WARM_UPS]:  # what a first call sets up cannot be recorded
            call()
        self.wait()
        turns = -(-GRAPH_CALLS // len(calls))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in [*calls] * turns:
                call()
        start = time.perf_counter()
        while time.perf_counter() - start < GRAPH_WARM_UP_SECONDS:
            graph.replay()
            self.wait()
        pairs = [self._events(graph.replay, cold=False) for _ in range(ROUNDS)]
        self.wait()
        return statistics.median(a.elapsed_time(b) for a, b in pairs) / 1e3 / (turns * len(calls))

    def wall(self, call: Call) -> float:
        """Median wall time of a call that waits for the device by itself."""
        times = []
        for _ in range(WARM_UPS + 5):
            self.wait()
            start = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times[WARM_UPS:])

    def copy(self, total_bytes: int, calls: int) -> float:
        """Bytes a second of plain copies that read and write total_bytes, timed as `calls` calls are."""
        key = (round(total_bytes, -5), calls > 1)
        if key not in self.copies:
            size = -(-total_bytes // 512) * 256  # so that all start aligned
            bytes_ = torch.empty(2 * calls, size, dtype=torch.uint8, device=self.device).random_()
            pairs = [(bytes_[2 * i], bytes_[2 * i + 1]) for i in range(calls)]
            seconds = self.measure([lambda a=a, b=b: b.copy_(a) for a, b in pairs])
            self.copies[key] = 2 * size / seconds
        return self.copies[key]

    def measure_roofline(self) -> float:
        """The speed of a large copy, which becomes what all others are compared with."""
        self.roofline = self.large_copy()
        return self.roofline

    def large_copy(self) -> float:
        size = 1_000_000 if self.dry else ROOFLINE_BYTES
        # Random bytes, as data is: memory full of zeros draws less power.
        a = torch.empty(size // 4, dtype=torch.int32, device=self.device).random_()
        b = torch.empty_like(a)
        for _ in range(0 if self.dry else 100):  # until the clocks of an idle device have risen
            b.copy_(a)
        return 2 * size / self.single(lambda: b.copy_(a))

    def _round(self, call: Call) -> float:
        start, stop = self._events(call)
        self.wait()
        return start.elapsed_time(stop) / 1e3

    def _events(self, call: Call, cold: bool = True) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if cold:
            self.flush.sum()
        start.record()
        call()
        stop.record()
        return start, stop


def wall_seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return max(time.perf_counter() - start, 1e-9)


def buffers_for(array_bytes: int, all_bytes: int) -> int:
    """How many sets of buffers to rotate over; 1: single calls with a cold cache will do."""
    if array_bytes >= GRAPH_BELOW_BYTES:
        return 1
    return max(2, -(-ROTATING_BYTES // all_bytes))
