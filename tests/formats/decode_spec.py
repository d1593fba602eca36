"""Specs, dtypes and chains, and the codecs of a few lines each, from docs/codecs.md and docs/codecs/."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from math import ceil, floor, prod

import numpy as np

# bf16 is held as its bits: numpy has no such type.
DTYPES = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
    "f64": np.dtype("<f8"),
    "u8": np.dtype("u1"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "u16": np.dtype("<u2"),
    "i16": np.dtype("<i2"),
    "i8": np.dtype("i1"),
    "u32": np.dtype("<u4"),
    "u64": np.dtype("<u8"),
    "bool": np.dtype("?"),
}
LARGEST = {"u8": 255, "u16": 65535}  # of the whole numbers that lossy codecs take


class CorruptError(Exception):
    """Bytes that contradict themselves, or do not have the number that spec and shape say."""


def need(condition, what):
    if not condition:
        raise CorruptError(what)


def number(text):
    """`4`, `-0.5`, `1e-06`, or the quotient of two of them, in f64."""
    over, _, under = text.partition("/")
    return float(over) / float(under or 1)


def parse(text):
    """A spec as a list of (name, parameters), the parameters still texts."""
    stages = []
    for stage in text.split("|"):
        match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", stage)
        if not match:
            raise ValueError(f"not a codec: {stage!r}")
        pairs = [pair.split("=") for pair in (match[2] or "").split(",") if pair.strip()]
        stages.append((match[1], {key.strip(): value.strip() for key, value in pairs}))
    for (name, parameters), (following, _) in zip(stages, stages[1:], strict=False):
        if (name, following) == ("bounded", "zstd"):
            settle(parameters, "codes", "bytes")
        if (name, following) == ("dct_chop", "block_quant") and number(
            parameters.get("serialize", "1")
        ) == 1:
            settle(parameters, "order", "planes")
    return stages


def settle(parameters, key, value):
    """Sets a parameter that is left to what follows in the chain."""
    if parameters.get(key, "auto") == "auto":
        parameters[key] = value


def from_f32(values, dtype):
    """f32 values as the dtype's: rounded to nearest even, finite ones to finite ones. NaN becomes the canonical one,
    and 0 in u8 and u16, which saturate at infinities too."""
    if dtype in LARGEST:
        inside = np.clip(np.where(np.isnan(values), 0, values), 0, LARGEST[dtype])
        return np.rint(inside).astype(DTYPES[dtype])
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    if dtype == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16
        beyond = np.isfinite(values) & (rounded & 0x7FFF == 0x7F80)
        return np.where(np.isnan(values), 0x7FC0, rounded - beyond).astype(np.uint16)
    return saturated(values, DTYPES[dtype])


def saturated(values, float_type):
    """Floats as another type of floats; finite ones beyond its largest number become that."""
    with np.errstate(over="ignore"):
        rounded = values.astype(float_type)
    largest = np.copysign(np.finfo(float_type).max, rounded)
    return np.where(np.isfinite(values) & np.isinf(rounded), largest, rounded)


def to_f32(values, dtype):
    if dtype == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return saturated(values, np.float32)


def unpack(spec, dtype, shape, packed):
    """The tensor that `packed` encodes, as an array of DTYPES[dtype]."""
    if prod(shape) == 0:
        need(len(packed) == 0, "bytes for a tensor without elements")
        return np.zeros(shape, DTYPES[dtype])
    stages = parse(spec)
    inputs = [(dtype, tuple(shape))]
    for name, parameters in stages[:-1]:
        inputs.append(packed_tensor(name, parameters, *inputs[-1]))
    for (name, parameters), (input_dtype, input_shape) in zip(
        reversed(stages), reversed(inputs), strict=True
    ):
        if input_shape is None:  # after a codec whose size varies: as many bytes as there are
            input_shape = stored_size(name, packed)
        with np.errstate(all="ignore"):
            values = UNPACK[name](parameters, input_dtype, input_shape, packed)
        packed = np.ascontiguousarray(values).tobytes()
    return np.frombuffer(packed, DTYPES[dtype]).reshape(shape)


def packed_tensor(name, parameters, dtype, shape):
    """dtype and shape of what the next codec of a chain gets; no shape where the size varies."""
    if name in PACKED:
        return PACKED[name](parameters, dtype, shape)
    if name == "raw":
        return dtype, shape
    if name == "bytes_of":
        return "u8", shape
    return "u8", None


def stored_size(name, packed):
    return (int.from_bytes(packed[:8], "little") if name == "zstd" else len(packed),)


def unpack_raw(_parameters, dtype, shape, packed):
    need(len(packed) == prod(shape) * DTYPES[dtype].itemsize, "raw: wrong size")
    return np.frombuffer(packed, DTYPES[dtype]).reshape(shape)


def read_bits(packed, width, count):
    """`count` numbers of `width` bits, lowest bit of lowest byte first, as u64."""
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * width, bitorder="little")
    weights = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64))
    return (bits.reshape(count, width) * weights).sum(axis=1, dtype=np.uint64)


def unpack_bits(parameters, dtype, shape, packed):
    count, full = prod(shape), DTYPES[dtype].itemsize * 8
    if "width" in parameters:
        width, head = int(parameters["width"]), 8
        if width == full:
            return unpack_raw({}, dtype, shape, packed)
    else:
        width, head = packed[8], 9
        need(width <= full, "bits: width beyond the dtype's")
    need(len(packed) == head + ceil(count * width / 8), "bits: wrong size")
    codes = read_bits(packed[head:], width, count)
    least = np.frombuffer(packed[:8], np.uint64)
    return (codes + least).astype(DTYPES[dtype]).reshape(shape)


def unpack_mask(parameters, dtype, shape, packed):
    need(len(packed) == ceil(prod(shape) / 8), "mask: wrong size")
    scale = round_f64(np.float64(number(parameters.get("scale", "1"))), dtype)
    low = round_f64(np.float64(0), dtype)
    if parameters.get("values") == "sign":
        low = round_f64(-np.float64(number(parameters.get("scale", "1"))), dtype)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=prod(shape), bitorder="little")
    return np.where(bits, scale, low).astype(DTYPES[dtype]).reshape(shape)


def unpack_positive(_parameters, dtype, shape, packed):
    return unpack_mask({}, dtype, shape, packed)


def unpack_pool_index(parameters, dtype, shape, packed):
    kernel = int(parameters.get("kernel", 2))
    stride, padding = int(parameters.get("stride", kernel)), int(parameters.get("padding", 0))
    width, last = int(parameters["width"]), parameters.get("channels", "first") == "last"
    bits = pool_index_bits(parameters)
    need(len(packed) == ceil(prod(shape) * bits / 8), "pool_index: wrong size")
    stream = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    codes = stream[: prod(shape) * bits].reshape(-1, bits) @ (1 << np.arange(bits))
    codes = np.minimum(codes, kernel * kernel - 1).reshape(shape)
    grid = np.indices(shape)
    row, column = grid[-3:-1] if last else grid[-2:]
    y = np.maximum(row * stride - padding + codes // kernel, 0)
    x = np.clip(column * stride - padding + codes % kernel, 0, width - 1)
    return (y * width + x).astype(DTYPES[dtype])


def pool_index_bits(parameters):
    return max(1, (int(parameters.get("kernel", 2)) ** 2 - 1).bit_length())


def packed_pool_index(parameters, dtype, shape):
    return "u8", (ceil(prod(shape) * pool_index_bits(parameters) / 8),)


def round_f64(values, dtype):
    """f64 values rounded to the dtype once, to nearest even."""
    if dtype != "bf16":
        return np.asarray(values, np.float64).astype(DTYPES[dtype])
    values = np.asarray(values, np.float64)
    # Rounding to odd in f32 first keeps the second rounding right.
    near = values.astype(np.float32)
    exact = near.astype(np.float64) == values
    toward_zero = np.where(
        np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float32(0)), near
    )
    odd = np.where(exact, near.view(np.uint32), toward_zero.view(np.uint32) | 1)
    return from_f32(odd.astype(np.uint32).view(np.float32), "bf16")


def unpack_bytes_of(parameters, dtype, shape, packed):
    need(len(packed) == prod(shape), "bytes_of: wrong size")
    scale = number(parameters.get("scale", "1/255"))
    add = np.float64(number(parameters.get("add", "0")))
    k = np.arange(256, dtype=np.float64)
    divisor = np.rint(2 / scale) / 2
    product = k / divisor if divisor > 0 and 1 / divisor == scale else k * scale
    if parameters.get("round") == "each":
        first = widen(round_f64(product, dtype), dtype)
        second = widen(round_f64(add, dtype), dtype)
        table = round_f64(first + second, dtype)
    else:
        table = round_f64(product + add, dtype)
    return table[np.frombuffer(packed, np.uint8)].reshape(shape)


def widen(values, dtype):
    return (
        to_f32(values, dtype).astype(np.float64) if dtype == "bf16" else values.astype(np.float64)
    )


def unpack_block_quant(parameters, dtype, shape, packed):
    bits, group = int(parameters.get("bits", 8)), int(parameters.get("group", 256))
    count = prod(shape)
    groups = ceil(count / group)
    code_bytes = count // group * (group * bits // 8) + ceil(count % group * bits / 8)
    need(len(packed) == code_bytes + 4 * groups, "block_quant: wrong size")
    # Full groups are whole bytes, so that the codes of all groups are one run of bits.
    codes = read_bits(packed[:code_bytes], bits, count).astype(np.int64)
    tail = np.frombuffer(packed[code_bytes:], np.uint16).reshape(groups, 2)
    of = np.arange(count) // group
    scale = to_f32(tail[:, 0] & 0x7FFF, "bf16")[of]
    minimum = to_f32(tail[:, 1], "bf16")[of]
    zero = tail[:, 1].astype(np.int64)[of]
    has_zero = (tail[:, 0] >> 15 == 1)[of]
    near = minimum + codes.astype(np.float32) * scale
    exact = (codes - zero).astype(np.float32) * scale
    half_scale, most = scale / 2, np.finfo(np.float32).max
    half_near = minimum / 2 + codes.astype(np.float32) * half_scale
    half_exact = (codes - zero).astype(np.float32) * half_scale
    doubled = 2 * np.clip(np.where(has_zero, half_exact, half_near), -most / 2, most / 2)
    values = np.where(has_zero, exact, near)
    values = np.where(np.isfinite(values), values, doubled)
    is_nan = ~np.isfinite(scale) | ~(has_zero | np.isfinite(minimum))
    return from_f32(np.where(is_nan, np.float32(np.nan), values), dtype).reshape(shape)


def packed_block_quant(parameters, dtype, shape):
    bits, group = int(parameters.get("bits", 8)), int(parameters.get("group", 256))
    count = prod(shape)
    size = count // group * (group * bits // 8) + ceil(count % group * bits / 8)
    return "u8", (size + 4 * ceil(count / group),)


def packed_bits(parameters, dtype, shape):
    if "width" not in parameters:
        return "u8", None
    width = int(parameters["width"])
    full = DTYPES[dtype].itemsize * 8
    return "u8", (ceil(prod(shape) * width / 8) + (0 if width == full else 8),)


def unpack_zstd(_parameters, dtype, shape, packed):
    size, chunk = int.from_bytes(packed[:8], "little"), 1 << 20
    need(size == prod(shape) * DTYPES[dtype].itemsize, "zstd: wrong size")
    table = np.frombuffer(packed, "<u4", ceil(size / chunk), 8)
    out, at = [], 8 + table.nbytes
    for i, entry in enumerate(table.tolist()):
        part, want = packed[at : at + (entry & 0x7FFFFFFF)], min(chunk, size - i * chunk)
        at += entry & 0x7FFFFFFF
        out.append(part if entry >> 31 else zstd_frame(part, want))
        need(len(out[-1]) == want, "zstd: wrong size of a chunk")
    need(at == len(packed), "zstd: bytes left over")
    return np.frombuffer(b"".join(out), DTYPES[dtype]).reshape(shape)


def zstd_frame(frame, size):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(size)
    got = library.ZSTD_decompress(out, ctypes.c_size_t(size), frame, ctypes.c_size_t(len(frame)))
    need(got == size, "zstd: a frame that does not decode")
    return out.raw


def unpack_shuffle(parameters, dtype, shape, packed):
    """Words of a value's bits; a row is the last axis, with axes before it while it has fewer than 8 values."""
    count, width = prod(shape), DTYPES[dtype].itemsize
    need(len(packed) == count * width, "shuffle: wrong size")
    delta, word = parameters.get("delta", "none"), np.dtype(f"<u{width}")
    words = np.frombuffer(packed, np.uint8).reshape(width, count).T.copy().view(word)
    columns, axis = 1, len(shape)
    while axis > 0 and columns < 8:
        axis -= 1
        columns *= shape[axis]
    rows = shape[axis - 1] if axis > 0 else 1
    planes = words.reshape(-1, rows, columns)
    if delta == "xor":
        planes = np.bitwise_xor.accumulate(planes.reshape(-1, rows * columns), axis=1)
    elif delta == "sub":
        planes = np.cumsum(planes.reshape(-1, rows * columns), axis=1, dtype=word)
    elif delta == "rows":
        planes = np.cumsum(planes, axis=1, dtype=word)
        planes += (np.cumsum(planes[:, :1], axis=2, dtype=word) - planes[:, :1]).astype(word)
    elif delta == "plane":
        planes = add_planes(planes)
    return planes.astype(word).reshape(-1).view(DTYPES[dtype]).reshape(shape)


def add_planes(residuals):
    """x = residual + left + above - above of left, where left of a row's first value is the last one before it."""
    out = np.zeros_like(residuals)
    for row in range(residuals.shape[1]):
        sums = np.cumsum(residuals[:, row], axis=1, dtype=out.dtype)
        if row > 0:
            # x - above is the running sum of residuals, from (left - above of left) at the row's start.
            before = out[:, row - 2, -1] if row > 1 else np.zeros_like(out[:, 0, 0])
            sums += (out[:, row - 1, -1] - before)[:, None] + out[:, row - 1]
        out[:, row] = sums
    return out


def unpack_zfp(parameters, dtype, shape, packed):
    """By libzfp; the types and modes of its C interface, release 1."""
    library = ctypes.CDLL("libzfp.so.1")
    for name in ("stream_open", "zfp_stream_open", "zfp_field_1d", "zfp_field_2d"):
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("zfp_stream_set_rate", "zfp_stream_set_accuracy"):
        getattr(library, name).restype = ctypes.c_double
    library.zfp_decompress.restype = ctypes.c_size_t
    columns, rows = shape[-1], prod(shape[:-1])
    line = columns == 1 or rows == 1
    values = np.zeros(shape, DTYPES[dtype])
    kind = {"f32": 3, "f64": 4}[dtype]  # zfp_type_float, zfp_type_double
    data = ctypes.c_void_p(values.ctypes.data)
    size_t = ctypes.c_size_t
    if line:
        field = library.zfp_field_1d(data, kind, size_t(columns * rows))
    else:
        field = library.zfp_field_2d(data, kind, size_t(columns), size_t(rows))
    # Room for what libzfp may read past the end: it reads in words.
    buffer = ctypes.create_string_buffer(packed, len(packed) + 64 + prod(shape) * 16)
    bits = ctypes.c_void_p(library.stream_open(buffer, size_t(len(buffer))))
    stream = ctypes.c_void_p(library.zfp_stream_open(bits))
    if "rate" in parameters:
        rate = ctypes.c_double(number(parameters["rate"]))
        library.zfp_stream_set_rate(stream, rate, kind, 1 if line else 2, 0)
    elif "accuracy" in parameters:
        library.zfp_stream_set_accuracy(stream, ctypes.c_double(number(parameters["accuracy"])))
    else:
        library.zfp_stream_set_precision(stream, int(parameters["precision"]))
    library.zfp_stream_rewind(stream)
    field = ctypes.c_void_p(field)
    need(library.zfp_decompress(stream, field) > 0, "zfp: libzfp cannot decode")
    library.zfp_field_free(field)
    library.zfp_stream_close(stream)
    library.stream_close(bits)
    return values


def packed_zfp(parameters, dtype, shape):
    if "rate" not in parameters:
        return "u8", None
    columns, rows = shape[-1], prod(shape[:-1])
    line = columns == 1 or rows == 1
    blocks = ceil(columns * rows / 4) if line else ceil(columns / 4) * ceil(rows / 4)
    bits = floor((4 if line else 16) * number(parameters["rate"]) + 0.5)
    return "u8", (ceil(blocks * max(bits, 9 if dtype == "f32" else 12) / 8),)


UNPACK = {
    "raw": unpack_raw,
    "bits": unpack_bits,
    "mask": unpack_mask,
    "pool_index": unpack_pool_index,
    "positive": unpack_positive,
    "bytes_of": unpack_bytes_of,
    "block_quant": unpack_block_quant,
    "zstd": unpack_zstd,
    "shuffle": unpack_shuffle,
    "zfp": unpack_zfp,
}
PACKED = {
    "bits": packed_bits,
    "block_quant": packed_block_quant,
    "mask": lambda parameters, dtype, shape: ("u8", (ceil(prod(shape) / 8),)),
    "pool_index": packed_pool_index,
    "positive": lambda parameters, dtype, shape: ("u8", (ceil(prod(shape) / 8),)),
    "shuffle": lambda parameters, dtype, shape: (
        "u8",
        (prod(shape) * DTYPES[dtype].itemsize,),
    ),
    "zfp": packed_zfp,
}
