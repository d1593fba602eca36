"""Data and specs that decode.py and the tool must agree on, and the tool itself."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from decode_spec import (
    DTYPES,
    PACKED,
    CorruptError,
    from_f32,
    number,
    packed_tensor,
    parse,
    pool_index_bits,
    round_f64,
    to_f32,
    unpack_pool_index,
    widen,
)

TUCKFOLD = Path(
    os.environ.get("TUCKFOLD", Path(__file__).parents[2] / "build/release/tuckfold")
).absolute()
FLOATS = ("f32", "f16", "bf16", "f64")
LOSSY = (*FLOATS, "u8", "u16")
WIDTHS = {dtype: 8 * kind.itemsize for dtype, kind in DTYPES.items() if dtype not in FLOATS}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 1e-42, -6e-8, 1e30, -3e38, 7e4]


@dataclass(frozen=True)
class Case:
    spec: str
    dtype: str
    shape: tuple[int, ...]  # of a sample
    kind: str = "smooth"

    def values(self, samples, seed=0):
        """The samples, bf16 as its bits."""
        shape = (samples, *self.shape)
        generator = np.random.default_rng([seed, prod(shape)])
        return self.of_kind(generator, prod(shape), shape[-1]).reshape(shape)

    def of_kind(self, generator, count, row):
        name, parameters = parse(self.spec)[0]
        if name in ("mask", "bytes_of"):
            return exact_values(name, parameters, self.dtype, generator, count)
        if name == "pool_index":
            return pool_indices(
                parameters, self.dtype, generator, count // prod(self.shape), self.shape
            )
        values = np.cumsum(generator.normal(size=count))
        if self.kind == "noise":
            values = 100 * generator.normal(size=count)
        elif self.kind == "waves":
            place = np.arange(count)
            values = 50 * np.sin(place // row * 0.05) + 40 * np.cos(place % row * 0.03)
        elif self.kind == "relu":
            values = np.maximum(30 * generator.normal(size=count) - 10, 0)
        elif self.kind == "constant":
            values = np.full(count, 41.7)
        elif self.kind in ("hostile", "few"):
            if self.kind == "hostile":
                values = generator.normal(size=count) * 10.0 ** generator.integers(-45, 38, count)
            replaced = generator.random(count) < (0.02 if self.kind == "hostile" else 0.002)
            values[replaced] = generator.choice(SPECIAL, replaced.sum())
        return as_dtype(values, self.dtype)


def as_dtype(values, dtype):
    if dtype == "bf16":
        with np.errstate(over="ignore"):
            return from_f32(values.astype(np.float32), "bf16")
    if dtype == "bool":
        return values > 0
    if dtype in WIDTHS:
        values = np.nan_to_num(values * (1 if dtype == "u8" else 10)).clip(-(2.0**31), 2.0**31 - 1)
        return values.astype(np.int64).astype(DTYPES[dtype])
    with np.errstate(over="ignore"):
        return values.astype(DTYPES[dtype])


def exact_values(name, parameters, dtype, generator, count):
    """What mask and bytes_of can hold."""
    scale = number(parameters.get("scale", "1" if name == "mask" else "1/255"))
    if name == "mask":
        low = -scale if parameters.get("values") == "sign" else 0.0
        return round_f64(np.where(generator.random(count) < 0.3, scale, low), dtype)
    k, add = generator.integers(0, 256, count), number(parameters.get("add", "0"))
    divisor = 1 / scale  # of the specs below: half a whole number, or the scale is a power of two
    if parameters.get("round") == "each":
        first = widen(round_f64(k / divisor, dtype), dtype)
        return round_f64(first + widen(round_f64(add, dtype), dtype), dtype)
    return round_f64(k / divisor + add, dtype)


def pool_indices(parameters, dtype, generator, samples, shape):
    """Places in the windows and within the image, at random."""
    kernel = int(parameters.get("kernel", 2))
    bits = pool_index_bits(parameters)
    codes = generator.integers(0, kernel * kernel, samples * prod(shape))
    stream = (codes[:, None] >> np.arange(bits) & 1).astype(np.uint8)
    packed = np.packbits(stream.reshape(-1), bitorder="little").tobytes()
    return unpack_pool_index(parameters, dtype, (samples, *shape), packed)


def grows(case, samples):
    """Whether a codec of a fixed size would need more bytes than the samples have.

    CorruptError where a plane is smaller than a block."""
    dtype, shape = case.dtype, (samples, *case.shape)
    for name, parameters in parse(case.spec):
        if shape is None or name not in (*PACKED, "raw", "bytes_of"):
            return False
        dtype, shape = packed_tensor(name, parameters, dtype, shape)
    own = samples * prod(case.shape) * DTYPES[case.dtype].itemsize
    return shape is not None and prod(shape) * DTYPES[dtype].itemsize > own


# ---- the grid -----------------------------------------------------------------------------------

PLANES = [(16, 24), (13, 21), (2, 5, 7, 3), (3, 3)]


def fast_cases():
    yield from dct_chop_cases()
    yield from dct_quant_cases()
    yield from bounded_cases()
    yield from exact_cases()


def dct_chop_cases():
    specs = [f"dct_chop(keep={keep})" for keep in range(1, 9)]
    specs += [f"dct_chop(keep={keep}, shape=triangle)" for keep in (1, 2, 4, 5, 7, 8)]
    specs += [f"dct_chop(block=4, keep={keep}, transform=zfp)" for keep in (1, 2, 3, 4)]
    specs += [f"dct_chop(block=4, keep={keep})" for keep in (1, 3, 4)]
    specs += [f"dct_chop(block=16, keep={keep})" for keep in (1, 2, 5, 16)]
    specs += [
        "dct_chop(keep=3, order=planes)",
        "dct_chop(keep=4, shape=triangle, order=planes)",
        "dct_chop(block=4, keep=2, coef=f16, transform=zfp, shape=triangle)",
        "dct_chop(keep=4, coef=f16)",
        "dct_chop(keep=5, coef=bf16)",
        "dct_chop(block=16, keep=9, coef=bf16, order=planes, shape=triangle)",
        "dct_chop(keep=2, serialize=2)",
        "dct_chop(keep=4) | block_quant(bits=8)",
        "dct_chop(keep=4, order=rows, coef=f16) | block_quant(bits=5, group=32) | zstd",
        "dct_chop(keep=4, coef=f16) | zstd",
        "dct_chop(keep=4, shape=triangle) | zfp(rate=8)",
        "dct_chop(keep=4) | dct_chop(block=4, keep=2)",
        "dct_chop(keep=2) | bounded(rel=1e-3) | zstd",
    ]
    for spec, dtype in itertools.product(specs, LOSSY):
        kinds = ("smooth", "hostile", "few") if dtype == "f32" else ("smooth", "few")
        if "zfp(" in spec:
            kinds = ("smooth",)
        for place, kind in enumerate(kinds):
            shape = PLANES[(place + len(spec)) % len(PLANES)]
            if "serialize" in spec:
                shape = (16, 16)
            elif "block=16" in spec or "| dct_chop" in spec:
                shape = [(40, 35), (3, 17, 16)][place % 2]
            yield Case(spec, dtype, shape, kind)


def dct_quant_cases():
    rates = ["1", "1.125", "1.375", "1.75", "2", "19/8", "2.5", "3", "4", "5.625", "8", "8.125"]
    rates += ["9", "12", "14.5", "16"]
    more = [
        "",
        ", dc=4",
        ", dc=12",
        ", offset=1/-3",
        ", clamp=zero",
        ", dc=12, offset=-7, clamp=zero",
    ]
    kinds = ["smooth", "few", "noise", "relu", "hostile", "constant"]
    for i, (rate, parameters) in enumerate(itertools.product(rates, more)):
        spec = f"dct_quant(rate={rate}{parameters})"
        for dtype in ("f32", LOSSY[1 + i % 5]):
            yield Case(spec, dtype, PLANES[i % 4], kinds[(i + i // 6) % 6])
    yield Case("dct_quant(rate=2) | zstd(level=3)", "f32", (13, 21))
    yield Case("dct_quant(rate=2) | bits", "f32", (13, 21))


BOUNDED = [
    "bounded(abs=0.3)",
    "bounded(abs=1e-4)",
    "bounded(abs=1e300)",
    "bounded(rel=0.01)",
    "bounded(rel=1e-7)",
    "bounded(abs=2.5, zero=exact)",
    "bounded(rel=0.003, zero=exact)",
    "bounded(abs=1e300, zero=exact)",
    "bounded(abs=0.3, codes=bytes)",
    "bounded(abs=1e-4, codes=bytes)",
    "bounded(abs=100, codes=bytes)",
    "bounded(rel=1/64, codes=bytes)",
    "bounded(abs=0.7, zero=exact, codes=bytes)",
    "bounded(rel=1e-5) | zstd",
]


def bounded_cases():
    shapes = [(700,), (13, 21), (5, 34, 7)]
    kinds = ["smooth", "relu", "few", "hostile", "waves", "noise", "constant"]
    for i, (spec, dtype) in enumerate(itertools.product(BOUNDED, LOSSY)):
        for place in range(2):
            yield Case(spec, dtype, shapes[(i + place) % 3], kinds[(i // 2 + 3 * place) % 7])


def tile_cases():
    """Planes of several tiles, of one size and of several."""
    for shape, kind in itertools.product([(67, 100), (35, 515)], ("smooth", "waves", "few")):
        for spec, dtype in itertools.product(BOUNDED[8:], LOSSY):
            if "abs=100" not in spec:
                yield Case(spec, dtype, shape, kind)


def exact_cases():
    for dtype in DTYPES:
        for spec in ("raw", "zstd", "zstd(level=-5)", "zstd(level=7) | zstd", "raw | zstd | raw"):
            for kind in ("smooth", "hostile"):
                yield Case(spec, dtype, (3, 7), kind)
    for dtype, delta in itertools.product(DTYPES, ("none", "sub", "xor", "rows", "plane")):
        for shape in [(13, 21), (3, 5, 2), (), (4, 3, 3, 3)]:
            yield Case(f"shuffle(delta={delta})", dtype, shape, "hostile")
        yield Case(f"shuffle(delta={delta}) | zstd", dtype, (13, 21))
    for dtype in WIDTHS:
        for spec in ("bits", "bits | zstd", "bits(width=8)", f"bits(width={WIDTHS[dtype]})"):
            yield Case(
                spec,
                dtype,
                (3, 7),
                "noise" if "=8" not in spec or WIDTHS[dtype] == 8 else "constant",
            )
        yield Case("bits", dtype, (5,), "constant")
        yield Case("bits", dtype, (5, 3), "hostile")
        yield Case("bits(width=1)", dtype, (50,), "constant")
    for dtype in DTYPES:
        for spec in ("mask", "mask | zstd" if dtype == "bool" else "mask(scale=3) | zstd"):
            yield Case(spec, dtype, (3, 7))
        if dtype[0] not in "ub" or dtype == "bf16":
            yield Case("mask(values=sign, scale=2)", dtype, (3, 7))
    for dtype, kind in itertools.product(LOSSY, ("smooth", "relu", "hostile")):
        yield Case("positive", dtype, (3, 7), kind)
    for dtype in ("i32", "i64"):
        for spec in (
            "pool_index(width=14)",
            "pool_index(kernel=3, stride=2, padding=1, width=14)",
            "pool_index(kernel=3, stride=2, padding=1, width=14) | zstd",
            "pool_index(kernel=1, stride=2, width=14)",
        ):
            yield Case(spec, dtype, (5, 4, 7))
        yield Case("pool_index(kernel=5, stride=1, width=11, channels=last)", dtype, (4, 7, 3))
    for dtype in FLOATS:
        yield Case("mask(scale=1/0.9)", dtype, (3, 7))
        yield Case("mask(values=sign, scale=1/0.9)", dtype, (3, 7))
        for spec in (
            "bytes_of",
            "bytes_of | bits | zstd",
            "bytes_of(scale=1/127.5, add=-1)",
            "bytes_of(scale=1/127.5, add=-1, round=each)",
            "bytes_of(scale=0.25, add=1/3)",
            "bytes_of(scale=1/2.5, add=100, round=each)",
        ):
            yield Case(spec, dtype, (3, 7))
    for dtype, bits in itertools.product(LOSSY, (1, 3, 8)):
        for more in ("", ", zero=exact", ", group=64, round=stochastic", ", group=8, zero=exact"):
            for kind in ("smooth", "hostile", "relu", "few"):
                yield Case(f"block_quant(bits={bits}{more})", dtype, (50, 7), kind)
    for dtype, bits in itertools.product(LOSSY, (1, 3, 8)):
        for more in ("", ", group=8", ", group=1000, round=stochastic"):
            for kind in ("smooth", "hostile", "relu", "few"):
                yield Case(f"nonzero_quant(bits={bits}{more})", dtype, (50, 7), kind)
        yield Case(f"nonzero_quant(bits={bits}) | zstd", dtype, (50, 47), "relu")
    for dtype, shape in itertools.product(("f32", "f64"), [(50, 7), (103,), (1, 1, 9)]):
        for spec in ("zfp(rate=4)", "zfp(rate=17/16)", "zfp(accuracy=1e-3)", "zfp(precision=13)"):
            yield Case(spec, dtype, shape)


# ---- at random ----------------------------------------------------------------------------------


def random_cases(generator, samples, count):
    """Cases that the tool must take for so many samples."""
    cases = []
    while len(cases) < count:
        case = random_case(generator)
        try:
            refused = grows(case, samples)
        except CorruptError:  # no plane to cut into blocks
            continue
        if not refused:
            cases.append(case)
    return cases


def random_case(generator):
    def pick(*choices):
        return choices[generator.integers(len(choices))]

    def some(**choices):
        """Parameters, each left out half the time."""
        given = {key: pick(*values) for key, values in choices.items() if generator.random() < 0.5}
        return "".join(f", {key}={value}" for key, value in given.items())

    dtype = pick(*LOSSY)
    shape = tuple(int(generator.integers(1, pick(3, 12, 40))) for _ in range(generator.integers(5)))
    kind = pick("smooth", "noise", "waves", "relu", "constant", "hostile", "few")
    name = pick("dct_chop", "dct_quant", "block_quant", "nonzero_quant", "bounded", "bits", "zfp")
    if name == "dct_chop":
        block = int(pick(4, 8, 8, 16))
        spec = f"dct_chop(block={block}, keep={generator.integers(1, block + 1)}"
        spec += some(shape=("square", "triangle"), coef=("f32", "f16", "bf16"))
        spec += some(
            order=("rows", "planes"), **({"transform": ("zfp", "dct")} if block == 4 else {})
        )
        spec += ")" + pick(
            "", "", " | block_quant(bits=6)", " | zstd", " | bounded(rel=1e-3) | zstd"
        )
    elif name == "dct_quant":
        spec = f"dct_quant(rate={generator.integers(8, 129) / 8:g}"
        spec += some(dc=(4, 8, 12), offset=("-3", "0.1", "1e3"), clamp=("zero", "none"))
        spec += ")" + pick("", "", " | zstd", " | bits")
    elif name == "block_quant":
        spec = f"block_quant(bits={generator.integers(1, 9)}"
        spec += some(group=(8, 24, 1024), zero=("near", "exact"), round=("nearest", "stochastic"))
        spec += ")" + pick("", " | zstd", " | bits")
    elif name == "nonzero_quant":
        spec = f"nonzero_quant(bits={generator.integers(1, 9)}"
        spec += (
            some(group=(8, 24, 1024), round=("nearest", "stochastic")) + ")" + pick("", " | zstd")
        )
    elif name == "bounded":
        spec = f"bounded({pick('abs', 'rel')}={10.0 ** generator.integers(-8, 4):g}"
        spec += some(zero=("near", "exact"), codes=("bits", "bytes")) + ")" + pick("", " | zstd")
    elif name == "bits":
        dtype = pick(*WIDTHS)
        spec = "bits" + pick("", " | zstd")
    else:
        dtype, kind = pick("f32", "f64"), pick("smooth", "noise", "waves", "relu", "constant")
        spec = (
            f"zfp({pick(f'rate={generator.integers(1, 200)}/16', 'accuracy=0.01', 'precision=9')})"
        )
    return Case(spec, dtype, shape, kind)


# ---- the tool -----------------------------------------------------------------------------------

SAFETENSORS = {name: name.upper() for name in DTYPES}


def write_safetensors(path, arrays):
    """arrays: name to (dtype, values). The one format of inputs that has every dtype."""
    head, data, at = {}, [], 0
    for name, (dtype, values) in arrays.items():
        part = np.ascontiguousarray(values).tobytes()
        offsets = [at, at + len(part)]
        head[name] = {
            "dtype": SAFETENSORS[dtype],
            "shape": list(values.shape),
            "data_offsets": offsets,
        }
        data.append(part)
        at += len(part)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def run(*arguments):
    command = [TUCKFOLD, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_well(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr


def pack(arrays, specs, out, *more):
    """arrays: name to (dtype, values); specs: name to text."""
    source = out.with_suffix(".safetensors")
    write_safetensors(source, arrays)
    codecs = [word for name, spec in specs.items() for word in ("--codec", f"{name}={spec}")]
    return run("pack", source, "-o", out, "--quiet", "--threads", 1, *codecs, *more)


def tool_unpacks(path):
    """The tool's own result: name to values, bf16 as f32."""
    folder = path.with_suffix("")
    run_well("unpack", path, "-o", folder, "--quiet", "--force", "--threads", 1)
    return {file.stem: np.load(file) for file in folder.glob("*.npy")}


def ours(file, name):
    values, dtype = file.array(name)
    return to_f32(values, dtype) if dtype == "bf16" else values


def differing(got, want):
    """How many elements differ in a bit."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    bits = np.dtype(f"u{got.dtype.itemsize}")
    differ = np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(want).view(bits)
    return int(differ.sum())
