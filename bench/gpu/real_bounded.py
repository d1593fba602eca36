"""Codecs within a bound, and unpacking with what follows, on tensors that networks save, in storage order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import tuckfold
import tuckfold.torch as tft
from bench.gpu.bench import Bench, picked
from bench.gpu.codec import DTYPES, WrongError, on_host
from bench.gpu.real import (
    LARGE,
    MIDDLE,
    SAMPLE,
    TENSORS,
    Cell,
    activations,
    copies,
    figures,
    formats,
    measure,
)
from tuckfold.torch._memory import flat

ABSOLUTE, RELATIVE = "bounded(abs=0.01)", "bounded(rel=0.001)"
BOUNDED_TENSORS = ("resnet 256x56x56", "gpt mlp 1024x3072", "resnet 1024x14x14")
# Of a copy: pack, unpack. A relative bound reads all values once more.
FLOORS = {"float32": (0.60, 0.60), "bfloat16": (0.35, 0.60), "float16": (0.35, 0.60)}
THEN_SPECS = ("block_quant(bits=4)", "block_quant(bits=2)", "block_quant(bits=8)")


def check_bounded(cell: Cell) -> None:
    """The first values alone have the CPU's bytes, and all values are within the bound."""
    x = cell.inputs[0]
    back = tft.Packed.pack(x, cell.spec, order=cell.order).unpack()
    if back.stride() != x.stride() or back.dtype != x.dtype:
        raise WrongError("unpack gives other strides")
    piece = flat(x)[:SAMPLE].clone()
    expected = tuckfold.pack(on_host(piece), cell.spec, dtype=DTYPES[x.dtype])
    if not np.array_equal(tft.pack(piece, cell.spec).cpu().numpy(), expected):
        raise WrongError("packed bytes are not those of the CPU")
    bound = float(cell.spec.partition("=")[2].rstrip(")"))
    if cell.spec == RELATIVE:
        low, high = flat(x).aminmax()
        bound *= float(high) - float(low)
    for values, restored in zip(flat(x).chunk(8), flat(back).chunk(8), strict=True):
        if not (values.double() - restored.double()).abs().max() <= bound:
            raise WrongError("an error is larger than the bound")


def real_bounded(bench: Bench) -> None:
    """bounded on activations of each dtype; packing does not wait for the size."""
    before = len(bench.record.rows)
    for name in BOUNDED_TENSORS:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for x in formats(activations(bench, TENSORS[name], dtype)):
                if not x.is_contiguous() and dtype == torch.float16:
                    continue
                inputs = copies(x)
                for spec in (ABSOLUTE, RELATIVE):
                    measure(bench, Cell(name, spec, inputs, checked=True), check_bounded)
    rows = bench.record.rows[before:]
    for row in rows:
        row["kernel"] = "real bounded"
    for dtype, floors in FLOORS.items():
        for way, floor in zip(("pack", "unpack"), floors, strict=True):
            for size, part in ((LARGE, 1.0), (MIDDLE, 0.8)):
                of = {"dtype": dtype, "size": size, "codec": ABSOLUTE}
                if some := picked(rows, way=way, **of):
                    bench.figure(
                        "real bounded",
                        f"{way}_of_same_copy",
                        some,
                        part * floor,
                        "of_same_copy",
                        **of,
                    )


# ---- unpack with what follows


def normalized(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """What a user writes: in f32, each operation rounded."""
    shape = (1, -1, *(1,) * (x.dim() - 2))
    y = x.float() * scale.view(shape) + shift.view(shape)
    return y.relu_().to(x.dtype)


def real_then(bench: Bench) -> None:
    """unpack with a normalization and ReLU in one kernel, beside unpack alone and both in turn."""
    before = len(bench.record.rows)
    for name in ("resnet 256x56x56", "resnet 1024x14x14"):
        for dtype in (torch.float32, torch.bfloat16):
            for x in formats(activations(bench, TENSORS[name], dtype)):
                channels = x.shape[1]
                scale = torch.linspace(0.5, 1.5, channels, device=x.device)
                shift = torch.linspace(-0.7, 0.3, channels, device=x.device)
                then = tft.Then(scale, shift, act="relu")
                for spec in THEN_SPECS:
                    measure_then(bench, name, tft.Packed.pack(x, spec, order="storage"), then)
    figures(bench, "real then", {LARGE: 0.85, MIDDLE: 0.68})
    for row in bench.record.rows[before:]:
        row.setdefault("kernel", "real then")


def measure_then(bench: Bench, name: str, packed: tft.Packed, then: tft.Then) -> None:
    if not torch.equal(
        packed.unpack(then=then), normalized(packed.unpack(), then.scale, then.shift)
    ):
        bench.failures.append(f"{packed}: unpack with then gives other values than both in turn")
    whole = packed.nbytes + int(packed.nbytes * packed.ratio)
    calls = {
        "both": lambda: packed.unpack(then=then),
        "unpack": lambda: packed.unpack(),
        "in turn": lambda: normalized(packed.unpack(), then.scale, then.shift),
    }
    seconds = {which: bench.clock.graph([call]) for which, call in calls.items()}
    plain = bench.clock.single(calls["both"])
    row = {"kernel": "real then", "codec": str(packed.spec), "shape": name, "way": "unpack"}
    row |= {"data": "rows" if packed.strides[1] > 1 else "channels_last"}
    row |= {"dtype": str(packed.dtype).removeprefix("torch.")}
    row |= {"size": LARGE if whole - packed.nbytes >= 200e6 else MIDDLE, "bytes": whole}
    row |= {"us": seconds["both"] * 1e6, "plain_us": plain * 1e6}
    row |= {"unpack_us": seconds["unpack"] * 1e6, "in_turn_us": seconds["in turn"] * 1e6}
    row["of_same_copy"] = min(
        whole / seconds["both"] / bench.clock.copy(whole, 2),
        whole / plain / bench.clock.copy(whole, 1),
    )
    bench.record.rows.append(row)
    bench.say(
        f"{row['codec']} {row['dtype']} {name} {row['data']}: then {row['us']:.1f} us, plain "
        f"{row['plain_us']:.1f}, unpack alone {row['unpack_us']:.1f}, in turn {row['in_turn_us']:.1f}; "
        f"{row['of_same_copy']:.2f} of a copy"
    )
