"""One measurement after the other: a codec on a tensor, checked, timed, beside a copy; figures from them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from bench.gpu.clock import Clock, buffers_for
from bench.gpu.codec import POISONS, Codec, WrongError, check, check_again
from bench.gpu.data import Data
from bench.record import Figure, Record, table

Shape = tuple[int, ...]
DRY_LEADING = {64: 16, 256: 2, 512: 1, 104: 256, 40: 256}  # whole groups even so
LARGE, MIDDLE, SMALL = ">=1 GB", "80-320 MB", "small"


def shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def size_class(array_bytes: int) -> str:
    if array_bytes >= 1e9:
        return LARGE
    return MIDDLE if array_bytes >= 75e6 else SMALL


@dataclass
class Bench:
    clock: Clock
    record: Record
    quick: bool
    peers: bool
    deadline: float
    data: Data
    failures: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def both_ways(
        self,
        kernel: str,
        spec: str,
        shape: Shape,
        source: torch.Tensor,
        *,
        data: str = "normal",
        dtype: torch.dtype = torch.float32,
        bound: float | None = None,
        loss: float | None = None,
        **of: object,
    ) -> dict[str, dict]:
        """Rows of pack and unpack. One that fails has `error` in place of its times."""
        row = {"kernel": kernel, "codec": spec, "shape": shape_text(shape), "data": data}
        row |= {"dtype": str(dtype).removeprefix("torch."), **of}
        row["size"] = size_class(math.prod(shape) * dtype.itemsize)
        if time.monotonic() > self.deadline:
            return self._failed(row, "no time left")
        try:
            return self._both_ways(
                row, spec, self.actual(shape, source), source, dtype, bound, loss
            )
        except (RuntimeError, ValueError, WrongError) as error:
            return self._failed(row, f"{type(error).__name__}: {error}")

    def attempt(self, peer: Callable[..., list[dict]], *arguments: object) -> list[dict]:
        """Rows of others; where one does not work here that is said, and no reason to stop."""
        if time.monotonic() > self.deadline:
            return []
        try:
            return peer(self, *arguments)
        except Exception as error:
            text = f"{peer.__name__}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self._note(text)
            return []

    def _note(self, text: str) -> None:
        self.failures.append(text)
        self.say(f"FAILED {text}")
        self.clock.wait()  # raises where the device is lost: nothing after it could be measured

    def actual(self, shape: Shape, source: torch.Tensor) -> Shape:
        """Without a GPU there is little data; a shorter tensor replaces a long one."""
        fits = not self.clock.dry or math.prod(shape) <= source.numel()
        return tuple(shape) if fits else (DRY_LEADING[shape[-1]], *shape[1:])

    def sets_of(self, source: torch.Tensor, shape: Shape, all_bytes: int) -> torch.Tensor:
        """As many tensors of this shape from the source as are to be rotated over."""
        elems = math.prod(shape)
        count = buffers_for(elems * source.element_size(), all_bytes)
        count = min(count, source.numel() // elems, 2 if self.clock.dry else count)
        return source.view(-1)[: count * elems].view(count, *shape)

    def _both_ways(
        self,
        row: dict,
        spec: str,
        shape: Shape,
        source: torch.Tensor,
        dtype: torch.dtype,
        bound: float | None,
        loss: float | None,
    ) -> dict[str, dict]:
        codec = Codec(self.clock, spec, shape, dtype)
        inputs = self.sets_of(source, shape, codec.bytes + codec.layout.max_bytes)
        about = check(codec, inputs[0], bound, loss)
        size = about["packed_bytes"]
        count = len(inputs)
        packed, outputs = codec.packed(count).fill_(POISONS[0]), torch.full_like(inputs, math.nan)
        calls = {
            "pack": [codec.packer(x, p) for x, p in zip(inputs, packed, strict=True)],
            "unpack": [codec.unpacker(p, size, y) for p, y in zip(packed, outputs, strict=True)],
        }
        total = codec.bytes + size
        same = self.clock.copy(total, count)
        rows = {}
        for way, of_way in calls.items():
            seconds = self.clock.measure(of_way)
            speed = total / seconds
            rows[way] = row | {"way": way, "us": seconds * 1e6, "gbps": speed / 1e9}
            rows[way] |= {"of_copy": speed / self.clock.roofline, "of_same_copy": speed / same}
            rows[way] |= {"in_graph": count > 1, "bytes": codec.bytes, **about}
        check_again(codec, inputs[-1], packed[-1][:size], outputs[-1])
        self.record.rows += rows.values()
        self.say(
            f"{row['codec']} {row['dtype']} {row['shape']} {row['data']}: "
            + ", ".join(f"{way} {short(r)}" for way, r in rows.items())
        )
        return rows

    def _failed(self, row: dict, why: str) -> dict[str, dict]:
        rows = {way: row | {"way": way, "error": why} for way in ("pack", "unpack")}
        self.record.rows += rows.values()
        text = f"{row['codec']} {row['dtype']} {row['shape']} {row['data']}: {why}"
        self._note(text)
        return rows

    def peer(self, ours: dict, against: str, seconds: float, **more: object) -> dict:
        """A row of somebody else's time beside one of ours."""
        keys = ("kernel", "codec", "shape", "data", "dtype", "size", "way", "keep", "bits", "rate")
        row = {key: ours[key] for key in keys if key in ours}
        row |= {"peer": against, "us": seconds * 1e6, **more}
        row["factor"] = seconds * 1e6 / ours["us"] if "us" in ours else math.nan
        self.record.rows.append(row)
        self.say(f"  {row['way']} {row['factor']:.2f} times {against} ({seconds * 1e6:.1f} us)")
        return row

    def figure(
        self,
        kernel: str,
        name: str,
        rows: Iterable[dict],
        floor: float | None,
        key: str = "of_copy",
        **of: object,
    ) -> None:
        """The least of the rows. One that failed, or none at all, is below any floor."""
        rows = list(rows)
        good = [row for row in rows if key in row and not math.isnan(row[key])]
        least = min(good, key=lambda row: row[key], default=None)
        more: dict[str, object] = {"cells": len(rows), "failed": len(rows) - len(good)}
        if least is not None:
            places = ("codec", "shape", "data", "us", "peer")
            more |= {f"least_{k}": least[k] for k in places if k in least}
        whole = least is not None and len(good) == len(rows)
        value = least[key] if whole else math.nan
        floor = None if self.clock.dry else floor
        self.record.figures.append(Figure({"kernel": kernel, **of}, name, value, floor, more))


def short(row: dict) -> str:
    return f"{row['us']:.1f} us {100 * row['of_copy']:.1f} % ({100 * row['of_same_copy']:.1f} %)"


def picked(rows: Sequence[dict], **wanted: object) -> list[dict]:
    """Rows with these values; a tuple matches any of its entries."""

    def fits(row: dict) -> bool:
        for key, value in wanted.items():
            if row.get(key) not in (value if isinstance(value, tuple) else (value,)):
                return False
        return True

    return [row for row in rows if fits(row)]


def below_table(figures: Sequence[Figure]) -> str:
    """Figures below their floor: by how much, and the cell with the least."""
    rows = []
    for figure in figures:
        of = " ".join(str(value) for key, value in figure.of.items() if key != "kernel")
        places = ("least_codec", "least_shape", "least_data")
        least = " ".join(str(figure.more[key]) for key in places if key in figure.more)
        failed = f", {figure.more['failed']} of {figure.more['cells']} cells failed"
        least += failed if figure.more["failed"] else ""
        row = [figure.of["kernel"], of, figure.name, float(figure.value), float(figure.floor)]
        rows.append([*row, least])
    return table(["kernel", "of", "figure", "value", "floor", "least cell"], rows)
