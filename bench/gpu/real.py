"""Tensors that networks save, in the memory formats they have, through the operators that users call."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import tuckfold
import tuckfold.torch as tft
from bench.gpu.bench import Bench, picked
from bench.gpu.clock import ROTATING_BYTES
from bench.gpu.codec import DTYPES, WrongError, on_host
from bench.gpu.networks import ResNet50, ViT, packing_hooks
from tuckfold.torch._memory import flat

TENSORS = {
    "resnet 64x56x56": (256, 64, 56, 56),
    "resnet 256x56x56": (256, 256, 56, 56),
    "resnet 512x28x28": (256, 512, 28, 28),
    "resnet 1024x14x14": (256, 1024, 14, 14),
    "resnet 2048x7x7": (256, 2048, 7, 7),
    "64x128x128": (256, 64, 128, 128),
    "vit 197x384": (512, 197, 384),
    "vit mlp 197x1536": (512, 197, 1536),
    "gpt 1024x768": (32, 1024, 768),
    "gpt mlp 1024x3072": (32, 1024, 3072),
}
QUICK = ("resnet 64x56x56", "resnet 256x56x56", "resnet 2048x7x7", "vit mlp 197x1536")
PLANE_TENSORS = (
    "resnet 256x56x56",
    "resnet 512x28x28",
    "resnet 1024x14x14",
    "resnet 2048x7x7",
    "64x128x128",
    "vit mlp 197x1536",
    "gpt mlp 1024x3072",
)
QUICK_PLANES = ("resnet 64x56x56", "resnet 1024x14x14", "vit 197x384")
WHOLE, ODD = "multiples of 8", "others"
GROUPS = [
    *(
        f"block_quant(bits={bits}{more})"
        for bits in (2, 4, 8)
        for more in ("", ", round=stochastic")
    ),
    "block_quant(bits=4, group=64)",
]
PLANES = [
    "dct_chop(keep=4)",
    "dct_chop(keep=4) | block_quant(bits=8)",
    *(f"dct_quant(rate={rate})" for rate in (2, 4, 8)),
]
LARGE, MIDDLE = ">=200 MB", "50-200 MB"
FLOORS = {LARGE: 0.85, MIDDLE: 0.68}
# Of normal values by bits, rounded at random; nearest and ReLU's outputs have less.
MOST_ERROR = {"2": 0.9, "4": 0.25, "8": 0.02}
SAMPLE = 1 << 20  # values of each end that the CPU packs, too
F32_STEP = repr(float(np.float32(1 / 255)))
MANY = (
    "block_quant(bits=4)",
    "block_quant(bits=4, round=stochastic)",
    "dct_quant(rate=4)",
    "dct_chop(keep=4)",
)
STEP_SPEC = "block_quant(bits=4, group=256, round=stochastic)"


@dataclass
class Cell:
    """A tensor and how a user packs and unpacks it."""

    tensor: str
    spec: str
    inputs: list[Tensor]  # to rotate over
    order: str = "storage"  # of Packed
    checked: bool = False  # whether the codec refuses values, and must not be waited for

    @property
    def memory(self) -> str:
        return "rows" if self.inputs[0].is_contiguous() else "channels_last"

    def pack(self, x: Tensor) -> object:
        if self.checked:
            return tft.pack_checked(flat(x) if self.order == "storage" else x, self.spec)
        return tft.Packed.pack(x, self.spec, order=self.order)

    def unpack(self, packed: tft.Packed) -> object:
        if not self.checked:
            return packed.unpack()
        if self.order == "storage":
            elems = (math.prod(packed.shape),)
            return tft.unpack_checked(packed.bytes, packed.spec, elems, packed.dtype)
        return tft.unpack_checked(packed.bytes, packed.spec, packed.shape, packed.dtype)


def activations(bench: Bench, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """As after ReLU, where there are channels, else of both signs."""
    shape = (2, *shape[1:]) if bench.clock.dry else shape
    generator = torch.Generator(bench.clock.device).manual_seed(7)
    x = torch.randn(shape, device=bench.clock.device, dtype=dtype, generator=generator)
    return x.relu_() if len(shape) == 4 else x


def copies(x: Tensor) -> list[Tensor]:
    """Enough of them that no cache holds all."""
    count = 1 if x.nbytes >= ROTATING_BYTES else min(8, -(-ROTATING_BYTES // x.nbytes))
    return [x, *(x.clone(memory_format=torch.preserve_format) for _ in range(count - 1))]


def measure(bench: Bench, cell: Cell, check_cell: Callable[[Cell], None] | None = None) -> None:
    """Rows of pack and unpack, plain and in a graph."""
    x, spec, order = cell.inputs[0], cell.spec, cell.order
    row = {"kernel": "real", "codec": spec, "shape": cell.tensor, "data": cell.memory}
    row["dtype"] = str(x.dtype).removeprefix("torch.")
    row["size"] = LARGE if x.nbytes >= 200e6 else MIDDLE
    try:
        (check_cell or check)(cell)
        packed = [tft.Packed.pack(x, spec, order=order) for x in cell.inputs]
        total = x.nbytes + packed[0].nbytes
        calls: dict[str, list[Callable[[], object]]] = {
            "pack": [lambda x=x: cell.pack(x) for x in cell.inputs],
            "unpack": [lambda p=p: cell.unpack(p) for p in packed],
        }
        texts = []
        for way, of_way in calls.items():
            seconds = {"plain": bench.clock.single(of_way[0]), "graph": bench.clock.graph(of_way)}
            same = {"plain": bench.clock.copy(total, 1), "graph": bench.clock.copy(total, 2)}
            result = row | {"way": way, "bytes": x.nbytes, "packed_bytes": packed[0].nbytes}
            for how, time in seconds.items():
                result[f"{how}_us"] = time * 1e6
                result[f"{how}_of_same_copy"] = total / time / same[how]
                result[f"{how}_of_copy"] = total / time / bench.clock.roofline
            result["of_same_copy"] = min(result[f"{how}_of_same_copy"] for how in seconds)
            bench.record.rows.append(result)
            texts.append(
                f"{way} {result['plain_us']:.1f} us {result['plain_of_same_copy']:.2f}, in a graph "
                f"{result['graph_us']:.1f} us {result['graph_of_same_copy']:.2f}"
            )
        bench.say(f"{spec} {row['dtype']} {cell.tensor} {cell.memory}: " + "; ".join(texts))
    except (RuntimeError, ValueError, NotImplementedError, WrongError) as error:
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        for way in ("pack", "unpack"):
            bench.record.rows.append(row | {"way": way, "error": why})
        bench.failures.append(f"{spec} {row['dtype']} {cell.tensor} {cell.memory}: {why}")
        bench.say(f"FAILED {bench.failures[-1]}")


def check(cell: Cell) -> None:
    """Both ends of the values that are packed, alone and as part of all, have the CPU's bytes and values."""
    x = cell.inputs[0]
    packed = tft.Packed.pack(x, cell.spec, order=cell.order, seed=3)
    back = packed.unpack()
    if back.stride() != x.stride() or back.dtype != x.dtype:
        raise WrongError("unpack gives other strides")
    if cell.order != "storage":
        return check_rows(cell, x, back)
    stored, values = flat(x), flat(back)
    name = DTYPES.get(x.dtype, "u8" if x.dtype == torch.uint8 else "i64")
    whole = packed.bytes.numel() * 8 // stored.numel()  # bits of a value, headers aside
    count = min(SAMPLE, stored.numel())
    for start in dict.fromkeys((0, stored.numel() - count)):
        piece = stored[start : start + count]
        expected = tuckfold.pack(on_host_any(piece), cell.spec, dtype=name, seed=3)
        alone = tft.pack(piece.clone(), cell.spec, seed=3).cpu().numpy()
        if not np.array_equal(alone, expected):
            raise WrongError("packed bytes are not those of the CPU")
        if start == 0:
            codes = count * whole // 8
            if not np.array_equal(packed.bytes[:codes].cpu().numpy(), expected[:codes]):
                raise WrongError("the first packed bytes are not those of the first values")
            wanted = tuckfold.unpack(expected, cell.spec, shape=(count,), dtype=name)
            wanted = np.asarray(wanted)
            if not np.array_equal(
                wanted.view(np.uint8), on_host_any(values[:count]).view(np.uint8)
            ):
                raise WrongError("unpacked values are not those of the CPU")
    if x.is_floating_point() and cell.spec.startswith("block_quant"):
        error = float((values.float() - stored.float()).norm() / stored.float().norm())
        if not error < MOST_ERROR[cell.spec[len("block_quant(bits=")]]:
            raise WrongError(f"a relative error of {error:.3f}")


def check_rows(cell: Cell, x: Tensor, back: Tensor) -> None:
    """The first sample alone has the CPU's bytes and values, and as part of all the same values."""
    first = x[:1].contiguous()
    name = DTYPES[x.dtype]
    expected = tuckfold.pack(on_host(first), cell.spec, dtype=name)
    if not np.array_equal(tft.pack(first, cell.spec).cpu().numpy(), expected):
        raise WrongError("packed bytes are not those of the CPU")
    wanted = np.asarray(tuckfold.unpack(expected, cell.spec, shape=first.shape, dtype=name))
    got = on_host(back[:1].contiguous())
    wanted = wanted.view(got.dtype).reshape(got.shape)
    if "|" in cell.spec:  # whose groups span samples
        apart = (
            back[:1].float() - torch.from_numpy(wanted.copy()).view(x.dtype).to(x.device).float()
        ).abs()
        if not apart.max() < 0.05 * first.float().abs().max():
            raise WrongError("unpacked values are far from those of the CPU")
    elif not np.array_equal(wanted, got):
        raise WrongError("unpacked values are not those of the CPU")


def on_host_any(x: Tensor) -> np.ndarray:
    return on_host(x) if x.dtype in DTYPES else x.cpu().numpy()


def figures(bench: Bench, kernel: str, floors: dict[str, float], **only: str) -> None:
    """The least of the cells of each kind, with the mean beside it."""
    rows = [row for row in bench.record.rows if row.get("kernel") == kernel]
    rows = picked(rows, **only)
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        for size, floor in floors.items():
            for way in ("pack", "unpack"):
                some = picked(rows, dtype=dtype, size=size, way=way)
                if not some:
                    continue
                of = {"dtype": dtype, "size": size} | only
                bench.figure(kernel, f"{way}_of_same_copy", some, floor, "of_same_copy", **of)
                good = [row["of_same_copy"] for row in some if "of_same_copy" in row]
                mean = statistics.fmean(good) if good else math.nan
                figure = bench.record.figures[-1]
                figure.more["mean"] = mean
                bench.say(
                    f"{kernel} {dtype} {size} {way}: least {figure.value:.2f} "
                    f"({figure.more.get('least_codec')} {figure.more.get('least_shape')} "
                    f"{figure.more.get('least_data')}), mean {mean:.2f}"
                )


def formats(x: Tensor) -> Sequence[Tensor]:
    if x.dim() != 4:
        return (x,)
    return x, x.contiguous(memory_format=torch.channels_last)


def real(bench: Bench) -> None:
    """Codecs of groups on the tensors of ResNet-50, ViT and GPT, in storage order."""
    names = QUICK if bench.quick else tuple(TENSORS)
    for name in names:
        for dtype in (torch.float32, torch.bfloat16):
            for x in formats(activations(bench, TENSORS[name], dtype)):
                inputs = copies(x)
                for spec in GROUPS:
                    measure(bench, Cell(name, spec, inputs))
    figures(bench, "real", FLOORS)


def real_planes(bench: Bench) -> None:
    """Codecs of planes on the same tensors in logical order."""
    before = len(bench.record.rows)
    for name in QUICK_PLANES if bench.quick else PLANE_TENSORS:
        for dtype in (torch.float32, torch.bfloat16):
            for x in formats(activations(bench, TENSORS[name], dtype)):
                inputs = copies(x)
                for spec in PLANES:
                    measure(bench, Cell(name, spec, inputs, order="logical"))
    for row in bench.record.rows[before:]:
        row["kernel"] = "real planes"
        rows, cols = TENSORS[row["shape"]][-2:]
        row["sides"] = WHOLE if rows % 8 == 0 and cols % 8 == 0 else ODD
    for spec in PLANES:
        for sides in (WHOLE, ODD):
            for dtype in ("float32", "bfloat16"):
                floors = plane_floors(spec, sides, dtype)
                of = {"codec": spec, "sides": sides, "dtype": dtype}
                figures(bench, "real planes", floors, **of)


def plane_floors(spec: str, sides: str, dtype: str) -> dict[str, float]:
    """The least that a cell of each size should reach."""
    if spec.startswith("dct_chop"):
        large = 0.85 if sides == WHOLE else 0.70
    else:
        large = 0.55 if sides == ODD else 0.75 if dtype == "float32" else 0.60
    return {LARGE: large, MIDDLE: 0.8 * large}


def real_exact(bench: Bench) -> None:
    """Exact codecs on the tensors that they are for."""
    device, dry = bench.clock.device, bench.clock.dry
    generator = torch.Generator(device).manual_seed(5)
    before = len(bench.record.rows)
    batch = 2 if dry else 256

    def random(*shape: int) -> Tensor:
        return torch.rand(shape, device=device, generator=generator)

    for dtype in (torch.float32, torch.bfloat16):
        for name in ("resnet 64x56x56", "resnet 256x56x56"):
            for x in formats(activations(bench, TENSORS[name], dtype)):
                measure(bench, Cell(name, "positive", copies(x)))
        kept = (random(batch, 197, 3072) < 0.9).to(dtype) / torch.tensor(0.9, dtype=dtype)
        text = f"mask(scale={float(kept.max()):.9g})"
        measure(bench, Cell("vit dropout mask", text, copies(kept), checked=True))
        pixels = (random(batch, 3, 224, 224) * 255).round_()
        images = copies((pixels * torch.tensor(1 / 255)).to(dtype))  # so torch divides on a GPU
        spec = "bytes_of" if dtype == torch.bfloat16 else f"bytes_of(scale={F32_STEP})"
        measure(bench, Cell("images k/255", spec, images, checked=True))
    flags = (random(batch, 12, 197, 197) < 0.9).view(torch.uint8)
    measure(bench, Cell("attention mask", "positive", copies(flags)))
    image = activations(bench, (256, 64, 112, 112), torch.bfloat16)
    for x in formats(image):
        _, indices = torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
        spec, memory = "pool_index(kernel=3, stride=2, padding=1, width=112)", indices
        if not indices.is_contiguous():
            memory, spec = indices.permute(0, 2, 3, 1), spec[:-1] + ", channels=last)"
        measure_indices(bench, spec, memory)
    rows = bench.record.rows[before:]
    for row in rows:
        row["kernel"] = "real exact"
    figures(bench, "real exact", FLOORS)


def measure_indices(bench: Bench, spec: str, x: Tensor) -> None:
    """Indices need their shape, so that no flat view of them can be packed."""
    packed = tft.pack(x, spec)
    if not torch.equal(tft.unpack(packed, spec, x.shape, x.dtype), x):
        bench.failures.append(f"{spec}: other indices come back")
    out, total = torch.empty_like(x), x.nbytes + packed.nbytes
    row = {"kernel": "real", "codec": spec, "shape": "pool indices", "data": "rows"}
    row |= {"dtype": "int64", "size": LARGE, "bytes": x.nbytes, "packed_bytes": packed.nbytes}
    calls = {
        "pack": lambda: tft.pack_checked(x, spec),
        "unpack": lambda: tft.unpack(packed, spec, out=out),
    }
    for way, call in calls.items():
        times = {"plain": bench.clock.single(call), "graph": bench.clock.graph([call])}
        same = {"plain": bench.clock.copy(total, 1), "graph": bench.clock.copy(total, 2)}
        result = row | {"way": way}
        for how, time in times.items():
            result[f"{how}_us"] = time * 1e6
            result[f"{how}_of_same_copy"] = total / time / same[how]
        result["of_same_copy"] = min(result[f"{how}_of_same_copy"] for how in times)
        bench.record.rows.append(result)
        bench.say(f"{spec} {way}: {result['plain_us']:.1f} us {result['of_same_copy']:.2f}")


def matrix(x: Tensor, number: int) -> Tensor:
    """Gradients as matrices: a third of 27 columns, as of 3 x 3 x 3, the others of powers of two."""
    cols = 27 if number % 3 == 2 else 1 << int(math.log2(x.numel())) // 2  # 8 and more
    rows = x.numel() // cols
    return x[: rows * cols].view(rows, cols)


def real_many(bench: Bench) -> None:
    """Gradients of a network in one call, of 1 KB to 10 MB, beside one copy of all of them."""
    generator = torch.Generator(bench.clock.device).manual_seed(2)
    lengths = [int(512 * 10 ** (4 * ((7 * i) % 100) / 100)) // 8 * 8 for i in range(300)]
    lengths = [n // 100 // 8 * 8 + 512 for n in lengths[:40]] if bench.clock.dry else lengths
    for dtypes in ((torch.float32,), (torch.bfloat16,), (torch.float32, torch.bfloat16)):
        flat_xs = [
            torch.randn(n, device=bench.clock.device, generator=generator).to(
                dtypes[i % len(dtypes)]
            )
            for i, n in enumerate(lengths)
        ]
        planes = [matrix(x, i) for i, x in enumerate(flat_xs)]
        for spec in MANY:
            xs = planes if spec.startswith("dct") else flat_xs
            packed = tft.pack_many(xs, spec, seed=1)
            alone = [tft.pack(x, spec, seed=1 + i) for i, x in enumerate(xs)]
            if not all(torch.equal(a, b) for a, b in zip(packed, alone, strict=True)):
                bench.failures.append(f"{spec}: pack_many has other bytes than pack")
            outs = [torch.empty_like(x) for x in xs]
            total = sum(x.nbytes for x in xs) + sum(p.nbytes for p in packed)
            same = bench.clock.copy(total, 2)
            calls = {
                "pack": lambda xs=xs, spec=spec: tft.pack_many(xs, spec),
                "unpack": lambda p=packed, spec=spec, o=outs: tft.unpack_many(p, spec, out=o),
            }
            for way, call in calls.items():
                seconds = bench.clock.graph([call])
                row = {"kernel": "real many", "codec": spec, "shape": f"{len(xs)} tensors"}
                row |= {"data": "rows", "dtype": "+".join(str(d)[6:] for d in dtypes), "way": way}
                row |= {"us": seconds * 1e6, "of_same_copy": total / seconds / same}
                row |= {"bytes": total, "plain_us": bench.clock.single(call) * 1e6}
                bench.record.rows.append(row)
                bench.say(
                    f"{spec} {row['shape']} {row['dtype']}: {way} {row['us']:.1f} us in a graph, "
                    f"{row['of_same_copy']:.2f} of a copy, {row['plain_us']:.1f} us plain"
                )
    rows = [row for row in bench.record.rows if row.get("kernel") == "real many"]
    for spec in MANY:
        for way in ("pack", "unpack"):
            some = picked(rows, way=way, codec=spec)
            name = f"{way}_of_same_copy"
            bench.figure("real many", name, some, 0.6, "of_same_copy", codec=spec)


# ---- a step of training


def step_times(
    bench: Bench, model: torch.nn.Module, x: Tensor, hooks: Callable | None, before: int
) -> tuple[float, float, float]:
    """Milliseconds of a step, GiB at its peak above those before the network, and the loss after some."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    labels = torch.arange(len(x), device=x.device) % 1000

    def step() -> Tensor:
        scope = hooks() if hooks is not None else contextlib.nullcontext()
        with torch.autocast(x.device.type, torch.bfloat16), scope:
            loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(1 if bench.clock.dry else 4):
        loss = step()
    if bench.clock.dry:
        return 0.0, 0.0, loss.item()
    bench.clock.wait()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(13)]
    events[0].record()
    for event in events[1:]:
        loss = step()
        event.record()
    bench.clock.wait()
    times = [a.elapsed_time(b) for a, b in zip(events, events[1:], strict=False)]
    peak = torch.cuda.max_memory_allocated() - before
    return statistics.median(times), peak / 2**30, loss.item()


def real_step(bench: Bench) -> None:
    """A user's step: everything that autograd saves in four bits, by hooks of a few lines and by `wrap`."""
    dry, device = bench.clock.dry, bench.clock.device
    side, batch = (32, 2) if dry else (224, 256)
    networks = {
        "ResNet-50": (ResNet50, batch, torch.channels_last, 64.0, 3.1),
        "ViT-B/16": (
            lambda: ViT(768, 12, image=side),
            batch // 2,
            torch.contiguous_format,
            66.0,
            3.3,
        ),
    }
    bench.data.clear()
    for name, (make, count, memory, most_ms, most_gib) in networks.items():
        torch.manual_seed(0)
        before = 0 if dry else torch.cuda.memory_allocated()  # buffers of the clock
        model = make().to(device, memory_format=memory)
        x = torch.randn(count, 3, side, side, device=device).contiguous(memory_format=memory)
        for how in ("plain", "packed", "wrapped"):
            hooks = packing_hooks(model, STEP_SPEC) if how == "packed" else None
            scope = contextlib.nullcontext()
            if how == "wrapped":
                scope = tft.activations(model, codec=STEP_SPEC)
            with scope:
                ms, gib, loss = step_times(bench, model, x, hooks, before)
            row = {
                "kernel": "real step",
                "shape": name,
                "codec": "none" if how == "plain" else STEP_SPEC,
            }
            row |= {"data": how, "dtype": "bfloat16", "ms": ms, "peak_gib": gib, "loss": loss}
            bench.record.rows.append(row)
            bench.say(f"{name} {how}: {ms:.1f} ms, {gib:.2f} GiB, loss {loss:.3f}")
            if how != "plain" and not dry:
                allowed = row | {"of_allowed_ms": most_ms / ms, "of_allowed_gib": most_gib / gib}
                for key in ("of_allowed_ms", "of_allowed_gib"):
                    floor = 1.0 if how == "wrapped" else None
                    bench.figure("real step", key, [allowed], floor, key, network=name, by=how)
        del model, x
        if not dry:
            torch.cuda.empty_cache()
