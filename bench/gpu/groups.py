"""What is measured, group by group, and the least that each figure should be."""

from __future__ import annotations

import math

import torch

import tuckfold.torch as tft
from bench.gpu.bench import LARGE, MIDDLE, Bench, Shape, picked
from bench.gpu.codec import quality
from bench.gpu.peers import Bitcomp, CuSZp, Matmuls, Zfp, group_quantizer, library
from bench.gpu.real import real, real_exact, real_many, real_planes, real_step
from bench.gpu.real_bounded import real_bounded, real_then

KEEPS = tuple(range(2, 8))
LARGEST = (1365, 3, 512, 512)  # 4.29 GB
SHAPES = (
    (100, 3, 256, 256),
    (100, 3, 512, 512),
    (5000, 3, 64, 64),
    LARGEST,
    (8192, 3, 104, 104),  # no power of two, about 1 GB
    (53248, 3, 40, 40),
)
SMALLEST = (100, 3, 64, 64)
BOUNDS = (1e-2, 1e-3, 1e-4)  # of the range
GRAPH_CALL_US = 3.5  # the most that a call on SMALLEST may take in a graph


def raw(bench: Bench) -> None:
    """A copy by the library: what the way it is called and timed costs."""
    for shape in (SMALLEST, (100, 3, 256, 256), (5000, 3, 64, 64), LARGEST):
        rows = bench.both_ways("raw", "raw", shape, bench.data("normal"), loss=0.0)
        for way, row in rows.items():
            bench.figure("raw", f"{way}_of_copy", [row], None, shape=row["shape"])


# ---- dct_chop


def chop_spec(keep: int, kind: str) -> str:
    return f"dct_chop(keep={keep})" if kind == "square" else f"dct_chop(keep={keep}, shape={kind})"


def chop_loss(keep: int, kind: str = "square") -> float:
    """Of white noise all frequencies hold as much, and those that are not kept are lost."""
    kept = keep * keep if kind == "square" else keep * (keep + 1) // 2
    return math.sqrt(1 - kept / 64)


def dct_chop(bench: Bench) -> None:
    source, rows = bench.data("normal"), []
    for shape in (LARGEST,) if bench.quick else SHAPES:
        for kind in ("square", "triangle"):
            for keep in (2, 4, 7) if bench.quick else KEEPS:
                spec, of = chop_spec(keep, kind), {"keep": keep, "kind": kind}
                of["loss"] = chop_loss(keep, kind)
                ours = bench.both_ways("dct_chop", spec, shape, source, **of)
                rows += ours.values()
                if bench.peers and kind == "square" and shape[-1] in (64, 256, 512):
                    rows += bench.attempt(
                        beside_matmuls, ours, shape, source, keep, ("fp32", "tf32")
                    )
    floors = {("pack", LARGE): 0.97, ("pack", MIDDLE): 0.90}
    floors |= {("unpack", LARGE): 0.95, ("unpack", MIDDLE): 0.88}
    for (way, size), floor in floors.items():
        for kind in ("square", "triangle"):
            some = picked(rows, way=way, size=size, kind=kind)
            if some:
                bench.figure("dct_chop", f"{way}_of_copy", some, floor, size=size, kind=kind)
    for way in ("pack", "unpack"):
        of_way = [row for row in rows if row["way"] == way]
        torch_figures(bench, "dct_chop", of_way, way)


def torch_figures(bench: Bench, kernel: str, rows: list[dict], way: str) -> None:
    pack = way == "pack"
    wide, narrow = ("100x3x512x512", "1365x3x512x512"), ("5000x3x64x64", "100x3x64x64")
    wanted = [
        ("fp32", wide, (2, 3, 4, 5, 6), 7.0),
        ("fp32", wide, (7,), 20.0 if pack else 18.0),
        ("fp32", narrow, KEEPS, 3.0 if pack else 2.5),
        ("tf32", wide + narrow + ("100x3x256x256",), (3, 4, 5, 6, 7), 2.0),
        ("tf32", wide + narrow + ("100x3x256x256",), (2,), 1.7 if pack else 2.0),
    ]
    for precision, shapes, keeps, floor in wanted:
        some = picked(rows, peer=f"torch {precision}", shape=shapes, keep=keeps)
        if some:
            n = "any" if len(shapes) > 2 else shapes[0].split("x")[-1]
            of = {"kind": "square", "against": f"torch {precision}", "n": n}
            of["keep"] = keeps[0] if len(keeps) == 1 else f"{keeps[0]}-{keeps[-1]}"
            bench.figure(kernel, f"{way}_factor", some, floor, "factor", **of)


def beside_matmuls(
    bench: Bench,
    ours: dict[str, dict],
    shape: Shape,
    source: torch.Tensor,
    keep: int,
    precisions: tuple[str, ...],
) -> list[dict]:
    """The same values by two matrix products of torch."""
    if "error" in ours["pack"]:
        return []
    shape = bench.actual(shape, source)
    inputs = bench.sets_of(source, shape, ours["pack"]["bytes"] + ours["pack"]["packed_bytes"])
    products = Matmuls(bench.clock, inputs, keep, shape)
    packed, outputs = products.packed(len(inputs)), torch.empty_like(inputs)
    rows = []
    for precision in precisions:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        pairs = list(zip(inputs, packed, outputs, strict=True))
        seconds = bench.clock.measure([products.packer(x, p) for x, p, _ in pairs])
        rows.append(bench.peer(ours["pack"], f"torch {precision}", seconds))
        seconds = bench.clock.measure([products.unpacker(p, y) for _, p, y in pairs])
        rows.append(bench.peer(ours["unpack"], f"torch {precision}", seconds))
        error = float((outputs[0] - inputs[0]).float().norm() / inputs[0].float().norm())
        expected = ours["pack"]["rms_error"] / ours["pack"]["rms"]
        if abs(error - expected) > 0.05 * expected:
            bench.failures.append(f"torch {precision}, keep {keep}: error {error}, ours {expected}")
    torch.backends.cuda.matmul.allow_tf32 = False
    return rows


def bf16(bench: Bench) -> None:
    source, rows = bench.data("normal_bf16"), []
    for shape in (LARGEST,) if bench.quick else ((100, 3, 512, 512), (5000, 3, 64, 64), LARGEST):
        for keep in (2, 4, 7) if bench.quick else KEEPS:
            spec = f"dct_chop(keep={keep}, coef=bf16)"
            of = {"dtype": torch.bfloat16, "keep": keep, "loss": chop_loss(keep)}
            ours = bench.both_ways("dct_chop bf16", spec, shape, source, **of)
            rows += ours.values()
            if bench.peers:
                rows += bench.attempt(beside_matmuls, ours, shape, source, keep, ("bf16",))
    for way in ("pack", "unpack"):
        some = [row for row in rows if row["way"] == way]
        for size, floor in ((LARGE, 0.93), (MIDDLE, None)):
            cells = [row for row in picked(some, size=size) if "peer" not in row]
            if cells:
                bench.figure("dct_chop bf16", f"{way}_of_copy", cells, floor, size=size)
        against = picked(some, peer="torch bf16")
        for name, keeps, floor in (("2-6", KEEPS[:-1], 1.4), ("7", (7,), 4.0)):
            cells = picked(against, keep=keeps)
            if cells:
                of = {"against": "torch bf16", "keep": name}
                bench.figure("dct_chop bf16", f"{way}_factor", cells, floor, "factor", **of)


def fused(bench: Bench) -> None:
    """dct_chop | block_quant(bits=8) in one kernel."""
    source, rows = bench.data("normal"), []
    keeps = (2, 4, 8) if bench.quick else (*KEEPS, 8)
    for shape in (LARGEST,) if bench.quick else ((100, 3, 512, 512), (5000, 3, 64, 64), LARGEST):
        for keep in keeps:
            spec = f"dct_chop(keep={keep}) | block_quant(bits=8)"
            of = {"keep": keep, "loss": chop_loss(keep)}
            rows += bench.both_ways("fused", spec, shape, source, **of).values()
    for way, floor in (("pack", 0.95), ("unpack", 0.92)):
        for name, some, least in (("to 7", KEEPS, floor), ("8", (8,), 0.85)):
            for size in (LARGE, MIDDLE):
                cells = picked(rows, way=way, keep=some, size=size)
                if cells:
                    judged = least if size == LARGE else None
                    bench.figure("fused", f"{way}_of_copy", cells, judged, keep=name, size=size)


def small(bench: Bench) -> None:
    """A few megabytes, where a launch costs as much as the bytes: time of a call in a graph."""
    source, rows, against = bench.data("normal"), [], []
    for kind in ("square", "triangle"):
        for keep in (2, 5) if bench.quick else KEEPS:
            spec, of = chop_spec(keep, kind), {"keep": keep, "kind": kind}
            of["loss"] = chop_loss(keep, kind)
            ours = bench.both_ways("small", spec, SMALLEST, source, **of)
            rows += ours.values()
            if bench.peers and kind == "square":
                precisions = ("fp32", "tf32")
                against += bench.attempt(beside_matmuls, ours, SMALLEST, source, keep, precisions)
    for row in rows:
        if "us" in row:
            row["of_allowed"] = GRAPH_CALL_US / row["us"]
    for way in ("pack", "unpack"):
        for name, keeps, floor in (("2-5", (2, 3, 4, 5), 1.0), ("6-7", (6, 7), None)):
            cells = picked(rows, way=way, keep=keeps)
            if cells:
                bench.figure("small", f"{way}_of_3.5us", cells, floor, "of_allowed", keep=name)
        torch_figures(bench, "small", picked(against, way=way), way)


def many(bench: Bench) -> None:
    """Hundreds of small tensors in one launch, beside one launch each: both in a graph."""
    shapes = [
        (1 + i % 4, 8 * (1 + i % 9), 8 * (1 + i % 7)) for i in range(50 if bench.clock.dry else 500)
    ]
    source = bench.data("normal").view(-1)
    xs = [source[1024 * i :][: math.prod(s)].view(s) for i, s in enumerate(shapes)]
    spec, outs = chop_spec(4, "square"), [torch.empty_like(x) for x in xs]
    packed = tft.pack_many(xs, spec)
    if any(not torch.equal(p, tft.pack(x, spec)) for p, x in zip(packed, xs, strict=True)):
        bench.failures.append("many: the bytes are not those of each alone")
    ways = {
        "pack": (
            lambda: tft.pack_many(xs, spec),
            lambda: [tft.pack(x, spec) for x in xs],
        ),
        "unpack": (
            lambda: tft.unpack_many(packed, spec, out=outs),
            lambda: [tft.unpack(p, spec, out=y) for p, y in zip(packed, outs, strict=True)],
        ),
    }
    for way, (together, alone) in ways.items():
        total = sum(x.nbytes for x in xs) + sum(p.nbytes for p in packed)
        row = {"kernel": "many", "codec": spec, "shape": f"{len(xs)} tensors", "way": way}
        row |= {"us": bench.clock.graph([together]) * 1e6, "in_graph": True, "bytes": total}
        row |= {"one_each_us": bench.clock.graph([alone]) * 1e6}
        row["factor"] = row["one_each_us"] / row["us"]
        bench.record.rows.append(row)
        bench.say(
            f"{spec} {len(xs)} tensors, {total / 1e6:.1f} MB: {way} {row['us']:.1f} us, one launch each "
            f"{row['one_each_us']:.1f} us"
        )
        bench.figure("many", f"{way}_factor", [row], None, "factor", against="one launch each")


# ---- codecs whose speed or size follows from the data


def dct_quant(bench: Bench) -> None:
    rows, against = [], []
    for data in ("act_smooth",) if bench.quick else bench.data.fields:
        x = bench.data(data)
        for rate in (2, 4, 8) if bench.quick else range(2, 9):
            spec = f"dct_quant(rate={rate})"
            ours = bench.both_ways("dct_quant", spec, x.shape, x, data=data, rate=rate)
            rows += ours.values()
            if bench.peers and library("TUCKFOLD_ZFP_CUDA") and rate in (2, 4, 8):
                against += bench.attempt(beside_zfp, ours, x, rate)
    for way in ("pack", "unpack"):
        bench.figure("dct_quant", f"{way}_of_copy", picked(rows, way=way), 0.75)
        if against:
            floor = 6.0 if way == "pack" else 5.0
            some = picked(against, way=way)
            bench.figure("dct_quant", f"{way}_factor", some, floor, "factor", against="zfp")
    if against:
        some = picked(against, way="unpack")
        bench.figure("dct_quant", "psnr_gain_db", some, 0.0, "psnr_gain_db", against="zfp")


def beside_zfp(bench: Bench, ours: dict[str, dict], x: torch.Tensor, rate: int) -> list[dict]:
    zfp, y = Zfp(bench.clock, x, rate), torch.full_like(x, float("nan"))
    rows = [bench.peer(ours["pack"], "zfp", bench.clock.single(zfp.packer()))]
    seconds = bench.clock.single(zfp.unpacker(y))
    psnr = quality(x, y)["psnr_db"]
    gain = ours["unpack"].get("psnr_db", float("nan")) - psnr
    more = {"psnr_db": psnr, "psnr_gain_db": gain}
    return [*rows, bench.peer(ours["unpack"], "zfp", seconds, **more)]


def block_quant(bench: Bench) -> None:
    rows, against = [], []
    for data in ("act_smooth",) if bench.quick else ("normal", "act_iid", "act_smooth"):
        x = bench.data(data)
        if data == "normal":
            x = x[: 1 << 28]
        for bits in (2, 4, 8):
            spec = f"block_quant(bits={bits})"
            ours = bench.both_ways("block_quant", spec, x.shape, x, data=data, bits=bits)
            rows += ours.values()
            if bench.peers and data == "act_iid" and bits != 8:
                against += bench.attempt(beside_compiled, ours, x, bits)
    for way in ("pack", "unpack"):
        for bits in (2, 4, 8):
            some = picked(rows, way=way, bits=bits)
            bench.figure("block_quant", f"{way}_of_copy", some, 0.93, bits=bits)
    if against:
        of = {"against": "torch.compile"}
        bench.figure("block_quant", "pack_factor", against, 10.0, "factor", **of)


def beside_compiled(bench: Bench, ours: dict[str, dict], x: torch.Tensor, bits: int) -> list[dict]:
    backend = "eager" if bench.clock.dry else "inductor"
    pack = torch.compile(group_quantizer(bits), backend=backend)
    codes, scale, low = pack(x)
    if codes.numel() != x.numel() * bits // 8 or scale.numel() != x.numel() // 256:
        bench.failures.append(f"torch.compile of {bits} bits: wrong sizes")
    del codes, scale, low
    seconds = bench.clock.single(lambda: pack(x))
    return [bench.peer(ours["pack"], "torch.compile", seconds)]


def nonzero_quant(bench: Bench) -> None:
    """Half of the values are zeros; all of a tensor, and 200 MB of it."""
    for data in ("act_iid", "act_iid_bf16"):
        x, rows = bench.data(data), []
        part = len(x) * 200_000_000 // x.nbytes // 8 * 8 + 8
        for bits in (3,) if bench.quick else (2, 3, 4, 8):
            spec = f"nonzero_quant(bits={bits})"
            for some in (x, x[:part]) if part < len(x) else (x,):
                of = {"data": data, "dtype": x.dtype, "bits": bits}
                rows += bench.both_ways("nonzero_quant", spec, some.shape, some, **of).values()
        for way in ("pack", "unpack"):
            dtype = str(x.dtype).removeprefix("torch.")
            some = picked(rows, way=way)
            bench.figure("nonzero_quant", f"{way}_of_copy", some, 0.60, dtype=dtype)


def bounded(bench: Bench) -> None:
    rows, against = [], []
    for data in ("act_smooth",) if bench.quick else bench.data.fields:
        x = bench.data(data)
        low, high = (float(v) for v in x.aminmax())
        for rel in (1e-3,) if bench.quick else BOUNDS:
            bound = rel * (high - low)
            spec = f"bounded(abs={bound:.6g})"
            bound = float(f"{bound:.6g}")
            of = {"rel": rel}
            ours = bench.both_ways("bounded", spec, x.shape, x, data=data, bound=bound, **of)
            rows += ours.values()
            if rel == 1e-3 and "error" not in ours["pack"]:
                range_pass(bench, ours["pack"], x, data, rel)
            if bench.peers:
                for variable, beside in BOUNDED_PEERS.items():
                    if library(variable):
                        against += bench.attempt(beside, ours, x, bound)
    bench.figure("bounded", "pack_of_copy", picked(rows, way="pack"), 0.60)
    bench.figure("bounded", "unpack_of_copy", picked(rows, way="unpack"), 0.80)
    floors = [("pack", "cuSZp", 3.0), ("unpack", "cuSZp", 3.5), ("pack", "nvCOMP bitcomp", 1.5)]
    for way, peer, floor in floors:
        some = picked(against, way=way, peer=peer)
        if some:
            bench.figure("bounded", f"{way}_factor", some, floor, "factor", against=peer)
    some = picked(against, way="pack", peer="cuSZp")
    if some:
        bench.figure("bounded", "ratio_over", some, 0.97, "ratio_over", against="cuSZp")


def range_pass(bench: Bench, ours: dict, x: torch.Tensor, data: str, rel: float) -> None:
    """What finding the range costs, which an absolute bound does not need."""
    spec = f"bounded(rel={rel:g})"
    rows = bench.both_ways("bounded rel", spec, x.shape, x, data=data)
    if "us" in rows["pack"]:
        rows["pack"]["range_us"] = rows["pack"]["us"] - ours["us"]
        bench.figure("bounded rel", "pack_of_copy", [rows["pack"]], None, data=data)


def beside_cuszp(bench: Bench, ours: dict[str, dict], x: torch.Tensor, bound: float) -> list[dict]:
    """The mode of the best ratio, with the zeroing of the output that it needs."""
    peer, y = CuSZp(bench.clock, x, bound), torch.empty_like(x)
    modes = [(dims, mode) for dims in (1, 2) for mode in range(3)]
    sizes = {which: peer.packed_bytes(*which) for which in modes}
    best = min(modes, key=sizes.__getitem__)
    more = {"mode": f"{best[0]}D {peer.MODES[best[1]]}", "ratio": x.numel() * 4 / sizes[best]}
    more["ratio_over"] = ours["pack"].get("ratio", float("nan")) / more["ratio"]
    rows = [bench.peer(ours["pack"], "cuSZp", bench.clock.single(peer.packer(*best)), **more)]
    bare = bench.clock.single(peer.unpacker(*best, y, zero=False))
    seconds = bench.clock.single(peer.unpacker(*best, y, zero=True))
    about = quality(x, y)
    more = {"without_zeroing_us": bare * 1e6, "of_bound": about["max_error"] / bound}
    if not bench.clock.dry and not about["max_error"] < 1.01 * bound:
        bench.failures.append(f"cuSZp {best}: error {about['max_error']}, bound {bound}")
    return [*rows, bench.peer(ours["unpack"], "cuSZp", seconds, **more)]


def beside_bitcomp(
    bench: Bench, ours: dict[str, dict], x: torch.Tensor, bound: float
) -> list[dict]:
    """The faster of its two algorithms, whichever that is for these values."""
    best: dict[str, tuple[float, dict]] = {}
    for number, name in enumerate(Bitcomp.ALGORITHMS):
        peer, y = Bitcomp(bench.clock, x, bound, number), torch.full_like(x, float("nan"))
        more = {"mode": name, "ratio": x.numel() * 4 / peer.packed_bytes()}
        times = {"pack": bench.clock.single(peer.packer())}
        times["unpack"] = bench.clock.single(peer.unpacker(y))
        more["of_bound"] = quality(x, y)["max_error"] / bound
        for way, seconds in times.items():
            if way not in best or seconds < best[way][0]:
                best[way] = (seconds, more)
        peer.close()
    pairs = best.items()
    return [bench.peer(ours[way], "nvCOMP bitcomp", s, **more) for way, (s, more) in pairs]


BOUNDED_PEERS = {"TUCKFOLD_CUSZP": beside_cuszp, "TUCKFOLD_NVCOMP": beside_bitcomp}
GROUPS = {
    "raw": raw,
    "dct_chop": dct_chop,
    "bf16": bf16,
    "fused": fused,
    "small": small,
    "many": many,
    "dct_quant": dct_quant,
    "block_quant": block_quant,
    "nonzero_quant": nonzero_quant,
    "bounded": bounded,
    "real": real,
    "real_planes": real_planes,
    "real_bounded": real_bounded,
    "real_then": real_then,
    "real_exact": real_exact,
    "real_many": real_many,
    "real_step": real_step,
}
