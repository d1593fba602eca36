"""dct_chop's and dct_quant's packing, from the orders of operations in docs/codecs/."""

from __future__ import annotations

from math import ceil, floor, prod

import numpy as np
from decode_dct import (
    ALPHAS,
    DCT,
    ODD,
    RATIO,
    SCALED,
    TAIL_ORDER,
    TILES,
    chop_layout,
    fma,
    plane,
    quant_rules,
)
from decode_spec import from_f32, number

ZFP_FORWARD = np.array([[4, 4], [5, 1], [-4, 4], [-2, 6]], np.float32) / np.float32(16)


def halves(x):
    n = len(x)
    sums = [x[k] + x[n - 1 - k] for k in range(n // 2)]
    return sums, [x[k] - x[n - 1 - k] for k in range(n // 2)]


def forward_line(matrix, x, keep, odd_from_the_end=False):
    """The coefficients y_0 ... y_{keep-1} of lines x_0 ... x_{n-1}."""
    both, out = halves(x), []
    for v in range(keep):
        half, order = both[v % 2], list(range(len(x) // 2))
        if odd_from_the_end and v % 2:
            order.reverse()
        y = matrix[v, order[0]] * half[order[0]]
        for k in order[1:]:
            y = fma(half[k], matrix[v, k], y)
        out.append(y)
    return out


def forward_column(x, keep):
    """Of eight values, without the factors alpha."""
    s, d = halves(x)
    e0, e1, o0, o1 = s[0] + s[3], s[1] + s[2], s[0] - s[3], s[1] - s[2]
    y = [e0 + e1, None, fma(o1, RATIO, o0), None, e0 - e1, None, fma(o0, RATIO, -o1), None]
    for u in (1, 3, 5, 7):
        y[u] = d[0]
        for k in (1, 2, 3):
            y[u] = fma(d[k], ODD[u // 2, k], y[u])
    return y[:keep]


def forward(blocks, transform, keep):
    """Blocks [count, n, n] to coefficients [count, keep, keep]: columns first, then rows."""
    n = blocks.shape[1]
    lines = [blocks[:, r] for r in range(n)]
    matrix = ZFP_FORWARD if transform == "zfp" else DCT.get(n)
    half = forward_column(lines, keep) if n == 8 else forward_line(matrix, lines, keep)
    rows = []
    for u in range(keep):
        x = [half[u][:, c] for c in range(n)]
        if n == 8:
            rows.append(forward_line(SCALED[u], x, keep, odd_from_the_end=True))
        else:
            rows.append(forward_line(matrix, x, keep))
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)


def to_blocks(values, shape, n):
    """Padded blocks [count, n, n] in row-major order."""
    lead, rows, columns = plane(shape, n)
    planes = values.astype(np.float32).reshape(prod(lead), rows, columns)
    padding = ((0, 0), (0, -rows % n), (0, -columns % n))
    planes = np.pad(planes, padding, mode="edge")
    down, across = ceil(rows / n), ceil(columns / n)
    return planes.reshape(-1, down, n, across, n).swapaxes(2, 3).reshape(-1, n, n)


def pack_dct_chop(parameters, values):
    """The packed bytes of `order=rows`, `shape=square`."""
    block, keep, lead, _, _, down, across = chop_layout(parameters, values.shape)
    coefs = forward(to_blocks(values, values.shape, block), parameters.get("transform"), keep)
    matrix = coefs.reshape(prod(lead), down, across, keep, keep).swapaxes(2, 3)
    return from_f32(np.ascontiguousarray(matrix), parameters.get("coef", "f32")).tobytes()


def pack_dct_quant(parameters, values):
    rate, dc = number(parameters.get("rate", "4")), int(parameters.get("dc", 8))
    offset = np.float32(number(parameters.get("offset", "0")))
    blocks = to_blocks(values, values.shape, 8) - offset
    half = np.stack(forward_column([blocks[:, r] for r in range(8)], 8), axis=1)
    z = np.stack(forward_column([half[:, :, c] for c in range(8)], 8), axis=2) * ALPHAS
    return b"".join(quant_block(block, rate, dc) for block in z)


def level(values):
    return (int(np.abs(values).view(np.uint32).max()) + 1) >> 21


def quant_block(z, rate, dc):
    tiles, _, nibbles, least, largest = quant_rules(rate, dc)
    size = int(8 * rate)
    places = [[(2 * i + t // 2, 2 * j + t % 2) for t in range(4)] for i, j in TILES[:tiles]]
    levels = [level(np.array([z[p] for p in four[k == 0 :]])) for k, four in enumerate(places)]
    first = level(z[:1, 0])
    if max(*levels, first) >= 1020:
        return (1023).to_bytes(size, "little")
    need = [value + 8 for value in levels]
    need[0] = max(need[0], first + 8 - 4 * dc)
    most = max(need)
    for k in range(tiles - 1, 0, -1):
        need[k - 1] = max(need[k - 1], need[k] - 4)
    for k in range(1, tiles):
        need[k] = max(need[k], need[k - 1] - 8)

    def widths_at(field):
        widths = [max(need[0] - field >> 2, 0, least)]
        for k in range(1, tiles):
            widths.append(max(need[k] - field >> 2, 0, widths[-1] - 2))
        return widths

    field = max(80, most - 4 * largest - 3)
    while sum(widths_at(field)) > nibbles:
        field += 1
    if field >= 1020:
        return (1023).to_bytes(size, "little")
    sent = widths_at(field)
    inverse = np.float32(1) / np.uint32(field << 21).view(np.float32)
    left = nibbles - sum(sent)
    zeros = rate > 8 and not z.any()
    out, at = 0, 0

    def put(value, count):
        nonlocal out, at
        out |= (value & (1 << count) - 1) << at
        at += count

    widths, codes = [], []
    for k, four in enumerate(places):
        more = k < left and sent[k] > 0
        finer = inverse * np.float32(2 if more else 1)
        widths.append(sent[k] + more)
        codes.append([0 if zeros else floor(z[p] * finer) for p in four])
        if k == 0 and not zeros:
            nearest = fma(z[:1, 0], finer, np.full(1, 0.5, np.float32))
            codes[0][0] = min(floor(nearest[0]), (1 << widths[0] + dc - 1) - 1)
    put(0 if zeros else field, 10)
    put(sent[0] - least, 4)
    for k in range(1, tiles):
        put(sent[k] - sent[k - 1] + 2, 2)
    split = (12 + 2 * tiles + dc) % 8
    upper = codes[0][0] >> widths[0]
    put(upper >> split, dc - split)
    for width, four in zip(widths, codes, strict=True):
        for code in four:
            put(code >> width % 2, width - width % 2)
    put(upper, split)
    for k in TAIL_ORDER:
        if k < tiles and widths[k] % 2:
            for code in codes[k]:
                put(code, 1)
    return out.to_bytes(size, "little")
