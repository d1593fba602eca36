"""Long work in pieces: between two of them progress is reported and KeyboardInterrupt is raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

#: ``None``, ``True`` for a bar of tqdm, or a function that is called with the bytes done and all.
Progress = bool | Callable[[int, int], object] | None

_SECONDS = 0.1  # that a piece should take
_FEWEST, _MOST = 1 << 20, 1 << 30  # bytes


class Reporter:
    """Tells how far something is: to nobody, a function, or a bar."""

    def __init__(self, what: str, progress: Progress, total: int) -> None:
        self._done, self._total = 0, total
        self._call: Callable[[int, int], object] | None = None
        self._bar: Any = None
        if callable(progress):
            self._call = progress
        elif progress:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                raise ValueError(
                    f"[{what}] progress=True needs tqdm; install it, or pass a function"
                ) from None
            self._bar = tqdm(total=total, unit="B", unit_scale=True, desc=what)

    def add(self, size: int) -> None:
        self._done += size
        if self._call is not None:
            self._call(self._done, self._total)
        if self._bar is not None:
            self._bar.update(size)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def pieces(samples: int, sample_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover 0 … samples, each of about a tenth of a second of what the caller does."""
    begin, size = 0, 4 * _FEWEST
    while begin < samples:
        end = min(samples, begin + max(1, size // max(1, sample_bytes)))
        start = time.perf_counter()
        yield begin, end
        taken = time.perf_counter() - start
        begin = end
        faster = min(4.0, max(0.25, _SECONDS / max(taken, 1e-6)))
        size = int(min(_MOST, max(_FEWEST, size * faster)))
