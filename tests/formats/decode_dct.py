"""dct_chop and dct_quant, from docs/codecs/dct_chop.md and docs/codecs/dct_quant.md."""

from __future__ import annotations

from math import ceil, floor, prod

import numpy as np
from decode_spec import DTYPES, from_f32, need, number, to_f32


def plane(shape, block):
    """Leading axes, rows and columns: trailing axes folded until both sides reach the block."""
    axes, sides = list(shape), []
    for _ in range(2):
        side = 1
        while side < block and axes:
            side *= axes.pop()
        need(side >= block, "a plane smaller than a block")
        sides.insert(0, side)
    return axes, *sides


def fma(a, b, c):
    """a * b + c of f32, rounded once."""
    product = a.astype(np.float64) * b  # exact
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    # Rounded to odd, so that the rounding to f32 cannot meet a tie that is none.
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    away = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + away, bits).view(np.float64).astype(np.float32)


def dct_entry(n, v, x):
    return np.sqrt((1 if v == 0 else 2) / n) * np.cos(np.pi * (2 * x + 1) * v / (2 * n))


def table(entry, rows, columns):
    """Entries rounded to f32."""
    return np.array([[entry(v, k) for k in range(columns)] for v in range(rows)], np.float32)


DCT = {n: table(lambda v, k, n=n: dct_entry(n, v, k), n, n // 2) for n in (4, 16)}
ZFP = np.array([[1, 1], [1.5, 0.5], [-1, 1], [-0.25, 1.25]], np.float32)
# Blocks of 8. The column transform leaves out the factor alpha of each frequency.
ALPHA = [dct_entry(8, 2 if u == 6 else u, 0) for u in range(8)]
RATIO = np.float32(dct_entry(8, 2, 1) / dct_entry(8, 2, 0))
ODD = table(lambda i, k: dct_entry(8, 2 * i + 1, k) / dct_entry(8, 2 * i + 1, 0), 4, 4)
SCALED = [table(lambda v, k, u=u: ALPHA[u] * dct_entry(8, v, k), 8, 4) for u in range(8)]
ALPHAS = table(lambda u, v: ALPHA[u] * ALPHA[v], 8, 8)


def inverse_line(matrix, y):
    """x_0 ... x_{n-1} from the coefficients y_0 ... y_{keep-1}; all arrays of lines."""
    n = len(matrix)
    x = [None] * n
    for j in range(n // 2):
        even = matrix[0, j] * y[0]
        for v in range(2, len(y), 2):
            even = fma(y[v], matrix[v, j], even)
        x[j] = x[n - 1 - j] = even
        if len(y) > 1:
            odd = matrix[1, j] * y[1]
            for v in range(3, len(y), 2):
                odd = fma(y[v], matrix[v, j], odd)
            x[j], x[n - 1 - j] = even + odd, even - odd
    return x


def inverse_column(y):
    """Eight values from coefficients that lack their factors alpha."""
    keep = len(y)
    even = [y[0]] * 4
    if keep > 4:
        even = [y[0] + y[4], y[0] - y[4], y[0] - y[4], y[0] + y[4]]
    if keep > 2:
        a, b = y[2], RATIO * y[2]
        if keep > 6:
            a, b = fma(y[6], RATIO, y[2]), fma(y[2], RATIO, -y[6])
        even = [even[0] + a, even[1] + b, even[2] - b, even[3] - a]
    x = even + even[::-1]
    for j in range(4 if keep > 1 else 0):
        odd = y[1] * ODD[0, j]
        for u in range(3, keep, 2):
            odd = fma(y[u], ODD[u // 2, j], odd)
        x[j], x[7 - j] = even[j] + odd, even[j] - odd
    return x


def inverse(coefs, transform, block):
    """Blocks [count, keep, keep] to values [count, block, block]: rows first, then columns."""
    keep = coefs.shape[-1]
    rows = []
    for u in range(keep):
        matrix = SCALED[u] if block == 8 else ZFP if transform == "zfp" else DCT[block]
        rows.append(np.stack(inverse_line(matrix, [coefs[:, u, v] for v in range(keep)]), axis=1))
    columns = inverse_column(rows) if block == 8 else inverse_line(matrix, rows)
    return np.stack(columns, axis=1)


def inverse_quant(coefs):
    scaled = coefs * ALPHAS
    rows = np.stack(inverse_column([scaled[:, :, v] for v in range(8)]), axis=2)
    return np.stack(inverse_column([rows[:, u] for u in range(8)]), axis=1)


def from_blocks(blocks, lead, rows, columns, shape, dtype):
    """Blocks [lead…, down, across, n, n] to a tensor of the dtype: what was padded is cropped."""
    n = blocks.shape[-1]
    down, across = ceil(rows / n), ceil(columns / n)
    blocks = blocks.reshape(prod(lead), down, across, n, n).swapaxes(2, 3)
    values = blocks.reshape(prod(lead), down * n, across * n)[:, :rows, :columns]
    return from_f32(np.ascontiguousarray(values), dtype).reshape(shape)


def chop_layout(parameters, shape):
    block, keep = int(parameters.get("block", 8)), int(parameters.get("keep", 4))
    lead, rows, columns = plane(shape, block)
    return block, keep, lead, rows, columns, ceil(rows / block), ceil(columns / block)


def packed_dct_chop(parameters, dtype, shape):
    _, keep, lead, _, _, down, across = chop_layout(parameters, shape)
    triangle = parameters.get("shape") == "triangle"
    frequencies = keep * (keep + 1) // 2 if triangle else keep * keep
    if parameters.get("order") == "planes":
        packed = (frequencies, *lead, down, across)
    elif triangle:
        packed = (*lead, down * across, frequencies)
    else:
        packed = (*lead, keep * down, keep * across)
    return parameters.get("coef", "f32"), packed


def unpack_dct_chop(parameters, dtype, shape, packed):
    block, keep, lead, rows, columns, down, across = chop_layout(parameters, shape)
    coef, packed_shape = packed_dct_chop(parameters, dtype, shape)
    need(len(packed) == prod(packed_shape) * DTYPES[coef].itemsize, "dct_chop: wrong size")
    stored = to_f32(np.frombuffer(packed, DTYPES[coef]), coef)
    count = prod(lead)
    triangle = parameters.get("shape") == "triangle"
    places = [(i, j) for i in range(keep) for j in range(keep - i if triangle else keep)]
    if parameters.get("order") == "planes":
        by_block = stored.reshape(len(places), -1).T
    elif triangle:
        by_block = stored.reshape(-1, len(places))
    else:
        matrix = stored.reshape(count, down, keep, across, keep)
        by_block = matrix.swapaxes(2, 3).reshape(-1, len(places))
    blocks = np.zeros((by_block.shape[0], keep, keep), np.float32)
    for k, (i, j) in enumerate(places):
        blocks[:, i, j] = by_block[:, k]
    values = inverse(blocks, parameters.get("transform", "dct"), block)
    return from_blocks(values, lead, rows, columns, shape, dtype)


TILES = [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2)]
TILES += [(2, 1), (3, 0), (3, 1), (2, 2), (1, 3), (2, 3), (3, 2), (3, 3)]
TAIL_ORDER = [0, 2, 3, 9, 1, 4, 8, 10, 5, 7, 11, 14, 6, 12, 13, 15]


class Bits:
    """Reads numbers from bytes, lowest bit of the first byte first."""

    def __init__(self, data):
        self.value = int.from_bytes(data, "little")

    def take(self, count):
        number = self.value & (1 << count) - 1
        self.value >>= count
        return number


def signed(code, width):
    return code - (1 << width) if width and code >> (width - 1) else code


def quant_layout(parameters, shape):
    rate = number(parameters.get("rate", "4"))
    lead, rows, columns = plane(shape, 8)
    return rate, lead, rows, columns, (*lead, ceil(rows / 8), ceil(columns / 8), int(8 * rate))


def quant_rules(rate, dc):
    """Coded tiles, bits of the header, nibbles for codes, least width of tile 0, largest width."""
    tiles = min(16, 2 * floor(3 * rate))
    header = 12 + 2 * tiles + dc
    least = max(0, ceil(rate) - 8)
    largest = 14 if rate <= 8 else min(15 + least, 23)
    return tiles, header, int(16 * rate) - header // 4, least, largest


def quant_block(data, rate, dc):
    """The 8 x 8 coefficients of one block."""
    tiles, header, nibbles, least, largest = quant_rules(rate, dc)
    bits = Bits(data)
    field = bits.take(10)
    sent = [bits.take(4) + least]
    for _ in range(1, tiles):
        sent.append(sent[-1] + bits.take(2) - 2)
    left = nibbles - sum(sent)
    fits = left >= 0 and all(0 <= c <= largest for c in sent)
    if fits and field == 0 and rate > 8:
        return np.zeros((8, 8), np.float32)
    if not (fits and 80 <= field <= 1019):
        return np.full((8, 8), np.nan, np.float32)
    step = np.uint32(field << 21).view(np.float32)
    more = [k < left and c > 0 for k, c in enumerate(sent)]
    widths = [c + m for c, m in zip(sent, more, strict=True)]
    split = header % 8 == 4
    upper = bits.take(dc - 4 if split else dc)
    codes = [[bits.take(w - w % 2) for _ in range(4)] if w > 1 else [0] * 4 for w in widths]
    if split:
        upper = upper << 4 | bits.take(4)
    for k in TAIL_ORDER:
        if k < tiles and widths[k] % 2:
            codes[k] = [code << 1 | bits.take(1) for code in codes[k]]
    out = np.zeros((8, 8), np.float32)
    for k, (row, column) in enumerate(TILES[:tiles]):
        w, s = widths[k], step * np.float32(0.5 if more[k] else 1)
        for i, code in enumerate(codes[k]):
            value = (np.float32(signed(code, w)) + np.float32(0.5)) * s if w else np.float32(0)
            if k == 0 and i == 0:
                value = np.float32(signed(upper << w | code, w + dc)) * s
            out[2 * row + i // 2, 2 * column + i % 2] = value
    return out


def unpack_dct_quant(parameters, dtype, shape, packed):
    rate, lead, rows, columns, packed_shape = quant_layout(parameters, shape)
    need(len(packed) == prod(packed_shape), "dct_quant: wrong size")
    dc, size = int(parameters.get("dc", 8)), packed_shape[-1]
    offset = np.float32(number(parameters.get("offset", "0")))
    starts = range(0, len(packed), size)
    blocks = np.stack([quant_block(packed[at : at + size], rate, dc) for at in starts])
    values = inverse_quant(blocks)
    if offset != 0:
        values = values + offset
    if parameters.get("clamp") == "zero":
        values = np.where(values < 0, np.float32(0), values)
    return from_blocks(values, lead, rows, columns, shape, dtype)


UNPACK = {"dct_chop": unpack_dct_chop, "dct_quant": unpack_dct_quant}
PACKED = {
    "dct_chop": packed_dct_chop,
    "dct_quant": lambda parameters, dtype, shape: ("u8", quant_layout(parameters, shape)[-1]),
}
