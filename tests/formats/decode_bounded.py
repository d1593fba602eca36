"""bounded, from docs/codecs/bounded.md."""

from __future__ import annotations

from itertools import groupby
from math import ceil, floor, prod

import numpy as np
from decode_spec import DTYPES, LARGEST, from_f32, need, number

GRIDS = [1 - 2.0**-16, 1 - 2.0**-12, 1 - 2.0**-8, 1 - 2.0**-5, 1 - 2.0**-3, 0.5]
CHUNK, LANES = 1024, 16
TILE_ROWS, TILE_COLUMNS = 33, 513


class Grid:
    """What turns codes into values: for one dtype, bound and `zero`."""

    def __init__(self, bound, dtype, exact):
        self.dtype, self.exact, self.bound = dtype, exact, bound
        self.work = np.float64 if dtype == "f64" else np.float32

    def half(self, grid):
        if self.dtype in LARGEST:
            whole = floor(min(self.bound, LARGEST[self.dtype]))
            return np.float32(whole if self.exact and whole >= 1 else whole + 0.5)
        bound = self.work(min(self.bound, np.finfo(self.work).max))
        if float(bound) > self.bound:
            bound = np.nextafter(bound, self.work(0))
        return bound * self.work(GRIDS[grid])

    def values(self, codes, grid):
        """In the type of the arithmetic, not rounded to the dtype yet."""
        half = self.half(grid)
        if self.exact and not (self.dtype in LARGEST and self.bound < 1):
            steps = np.sign(codes) * (2 * np.abs(codes) - 1)
        else:
            steps = 2 * codes
        return steps.astype(self.work) * half

    def stored(self, values):
        """Rounded to the dtype, as its bits."""
        if self.dtype == "f64":
            return values
        return from_f32(values.astype(np.float32), self.dtype)


def unpack_bounded(parameters, dtype, shape, packed):
    item, count = DTYPES[dtype].itemsize, prod(shape)
    if len(packed) == count * item:
        return np.frombuffer(packed, DTYPES[dtype]).reshape(shape)
    if "rel" in parameters:
        need(len(packed) >= 8, "bounded: cut off")
        bound, packed = float(np.frombuffer(packed, "<f8", 1)[0]), packed[8:]
    else:
        bound = number(parameters["abs"])
    grid = Grid(bound, dtype, parameters.get("zero") == "exact")
    if parameters.get("codes") == "bytes":
        return unpack_parts(grid, shape, packed)
    return unpack_chunks(grid, count, packed).reshape(shape)


def unpack_chunks(grid, count, packed):
    chunks, dtype = ceil(count / CHUNK), DTYPES[grid.dtype]
    need(len(packed) >= 6 * chunks, "bounded: cut off")
    heads = np.frombuffer(packed, np.dtype([("code", "<i4"), ("rest", "<u2")]), chunks)
    at, out = 6 * chunks, []
    for i, (base, rest) in enumerate(heads.tolist()):
        kind, size = rest & 7, rest // 8 * 2
        payload, at = packed[at : at + size], at + size
        need(len(payload) == size, "bounded: cut off")
        length = min(CHUNK, count - i * CHUNK)
        if kind == 7:
            out.append(np.frombuffer(payload, dtype, length))
        elif kind == 6:
            out.append(np.full(length, np.frombuffer(payload, dtype, 1)[0]))
        else:
            codes = chunk_codes(base, payload) if size else np.full(CHUNK, base, np.int64)
            out.append(grid.stored(grid.values(codes[:length], kind)))
    need(at == len(packed), "bounded: bytes left over")
    return np.concatenate(out)


def chunk_codes(base, payload):
    first, what, form = payload[0], payload[1] & 3, payload[1] >> 2
    need(what <= 2 and form <= 2, "bounded: a form that does not exist")
    there, front = (row_planes, half_planes, group_planes)[form](first, payload)
    lanes = LANES if form == 0 else LANES // 2
    size = front + lanes // 8 * there.sum()
    need(len(payload) == size + size % 2, "bounded: wrong size of a chunk")
    numbers, at = np.zeros((CHUNK // lanes, lanes), np.int64), front
    for row, plane in zip(*np.nonzero(there), strict=True):
        word = int.from_bytes(payload[at : at + lanes // 8], "little")
        numbers[row] |= (word >> np.arange(lanes) & 1) << plane
        at += lanes // 8
    numbers = numbers.ravel()
    if what == 1:
        return base + numbers
    if what == 2:
        numbers = numbers - 2 * (numbers & 1)
    return base + np.cumsum(unzigzag(numbers))


def bits_of(data):
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


# Which planes are stored of each row or half, and the bytes before them.


def row_planes(first, payload):
    need(len(payload) >= 34, "bounded: cut off")
    widths = first + bits_of(payload[2:34]).reshape(64, 4) @ (1, 2, 4, 8)
    return np.arange(widths.max()) < widths[:, None], 34


def half_planes(bits, payload):
    need(bits in (1, 2, 4, 8), "bounded: masks of a size that does not exist")
    front = 2 + 16 * bits
    need(len(payload) >= front, "bounded: cut off")
    return bits_of(payload[2:front]).reshape(128, bits) == 1, front


def group_planes(_, payload):
    need(len(payload) >= 34, "bounded: cut off")
    there, at = np.zeros((128, 15), bool), 34
    for group, head in enumerate(payload[2:34]):
        width, full = head & 15, head >> 4
        size = (width - full + 1) // 2
        need(full <= width and len(payload) >= at + size, "bounded: a group that does not fit")
        halves = there[4 * group : 4 * group + 4]
        halves[:, :full] = True
        masks = bits_of(payload[at : at + size])[: 4 * (width - full)]
        halves[:, full:width] = masks.reshape(4, width - full) == 1
        at += size
    return there, at


def unzigzag(numbers):
    return np.where(numbers & 1, -(numbers + 1 >> 1), numbers >> 1)


def unpack_parts(grid, shape, packed):
    axes = [side for side in shape if side > 1]
    axes = [1] * (2 - len(axes)) + axes
    planes, rows, columns = prod(axes[:-2]), *axes[-2:]
    row_cuts, column_cuts = cuts(rows, TILE_ROWS), cuts(columns, TILE_COLUMNS)
    tiles = [(p, r, c) for p in range(planes) for r in row_cuts for c in column_cuts]
    largest = max(b - a for a, b in row_cuts) * max(b - a for a, b in column_cuts)
    per_part = max(1, TILE_ROWS * TILE_COLUMNS // largest)
    parts = [tiles[i : i + per_part] for i in range(0, len(tiles), per_part)]
    need(len(packed) >= 4 * len(parts), "bounded: cut off")
    sizes, at = np.frombuffer(packed, "<u4", len(parts)).tolist(), 4 * len(parts)
    out = np.zeros((planes, rows, columns), DTYPES[grid.dtype])
    for part, size in zip(parts, sizes, strict=True):
        payload, at = packed[at : at + size], at + size
        need(len(payload) == size, "bounded: cut off")
        extents = [(r[1] - r[0], c[1] - c[0]) for _, r, c in part]
        values, start = part_values(grid, extents, payload), 0
        for (p, r, c), (height, width) in zip(part, extents, strict=True):
            tile = values[start : start + height * width].reshape(height, width)
            out[p, r[0] : r[1], c[0] : c[1]] = tile
            start += height * width
    need(at == len(packed), "bounded: bytes left over")
    return out.reshape(shape)


def cuts(side, most):
    n = ceil(side / most)
    return [(i * side // n, (i + 1) * side // n) for i in range(n)]


def part_values(grid, extents, payload):
    """The values of a part, tile by tile, each in row-major order."""
    dtype = DTYPES[grid.dtype]
    count = sum(height * width for height, width in extents)
    if len(payload) == count * dtype.itemsize:
        return np.frombuffer(payload, dtype)
    if len(payload) == dtype.itemsize:
        return np.full(count, np.frombuffer(payload, dtype)[0])
    predictor, number_of_grid, width = payload[:3]
    escapes, runs = np.frombuffer(payload, "<u4", 2, 4).tolist()
    reader = Reader(payload, 12)
    if width == 0:
        plane = np.frombuffer(reader.plane(ceil(count / 2)), np.uint8)
        numbers = np.stack([plane & 15, plane >> 4], axis=1).ravel()[:count].astype(np.int64)
    else:
        numbers = np.frombuffer(reader.plane(count), np.uint8).astype(np.int64)
        if width == 2:
            numbers |= np.frombuffer(reader.plane(count), np.uint8).astype(np.int64) << 8
    escaped = numbers == (1 << (4 << width)) - 1
    if width == 0:
        more = np.frombuffer(reader.take(int(escaped.sum())), np.uint8).astype(np.int64)
        numbers[escaped] = 15 + more
        escaped[escaped] = more == 255
    codes = unzigzag(numbers)
    need(escaped.sum() == escapes, "bounded: number of escapes")
    codes[escaped] = np.frombuffer(reader.take(4 * escapes), "<i4")
    pairs = np.frombuffer(reader.take(8 * runs), "<u4").reshape(runs, 2).astype(np.int64)
    kept = np.frombuffer(reader.take(int(pairs[:, 1].sum()) * dtype.itemsize), dtype)
    need(reader.at == len(payload), "bounded: bytes left over in a part")
    values = tiles_from_codes(grid, extents, codes, predictor, number_of_grid)
    place, used = 0, 0
    for skip, keep in pairs.tolist():
        place += skip
        values[place : place + keep] = kept[used : used + keep]
        place, used = place + keep, used + keep
    return values


class Reader:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def take(self, size):
        need(self.at + size <= len(self.data), "bounded: cut off within a part")
        self.at += size
        return self.data[self.at - size : self.at]

    def plane(self, size):
        """Groups of four bytes, of which those of zeros are left out."""
        groups = ceil(size / 4)
        bitmap = np.frombuffer(self.take(ceil(groups / 8)), np.uint8)
        present = np.unpackbits(bitmap, count=groups, bitorder="little").astype(bool)
        out = np.zeros((groups, 4), np.uint8)
        filled = np.frombuffer(self.take(4 * int(present.sum())), np.uint8)
        out[present] = filled.reshape(-1, 4)
        return out.tobytes()[:size]


def tiles_from_codes(grid, extents, codes, predictor, number_of_grid):
    values, at, first = [], 0, 0
    for (height, width), tiles in groupby(extents):
        shape = (height, len(list(tiles)), width)
        block = codes[at : at + prod(shape)]
        at += prod(shape)
        if predictor == 2:
            wide, first = between(grid, block, shape, number_of_grid, first)
        else:
            wide = block.reshape(shape).copy()
            wide[0, :, 0] = first + np.cumsum(wide[0, :, 0])
            first = wide[0, -1, 0]
            if predictor == 1:
                wide = np.cumsum(np.cumsum(wide, axis=0), axis=2)
            else:
                wide[:, :, 0] = np.cumsum(wide[:, :, 0], axis=0)
                wide = np.cumsum(wide, axis=2)
            wide = grid.values(wide, number_of_grid)
        values.append(grid.stored(np.ascontiguousarray(wide.swapaxes(0, 1)).ravel()))
    return np.concatenate(values)


def between(grid, codes, shape, number_of_grid, first):
    """Coarse to fine. `codes` are in the order in which values are found."""
    height, _, width = shape
    half, work = grid.half(number_of_grid), grid.work
    out, at = np.zeros(shape, work), 0

    def take(rows, columns):
        nonlocal at
        size = (len(rows), shape[1], len(columns))
        at += prod(size)
        return codes[at - prod(size) : at].reshape(size)

    rows, columns = range(0, height, 32), range(0, width, 32)
    coarse = take(rows, columns).copy()
    coarse[0, :, 0] = first + np.cumsum(coarse[0, :, 0])
    first = coarse[0, -1, 0]
    coarse[:, :, 0] = np.cumsum(coarse[:, :, 0], axis=0)
    out[::32, :, ::32] = grid.values(np.cumsum(coarse, axis=2), number_of_grid)
    for h in (16, 8, 4, 2, 1):
        rows, columns = range(0, height, 2 * h), range(h, width, 2 * h)
        steps = (2 * take(rows, columns)).astype(work) * half
        out[:: 2 * h, :, h :: 2 * h] = predict(out[:: 2 * h], 2, h) + steps
        rows, columns = range(h, height, 2 * h), range(0, width, h)
        steps = (2 * take(rows, columns)).astype(work) * half
        out[h :: 2 * h, :, ::h] = predict(out[:, :, ::h], 0, h) + steps
    return out, first


def predict(values, axis, h):
    """At the odd multiples of h along the axis, from distances h and 3h."""
    work = values.dtype.type
    values = np.moveaxis(values, axis, 0)
    size, out = len(values), []
    for x in range(h, size, 2 * h):
        a, b = values[x - h], values[x + h] if x + h < size else None
        c = values[x - 3 * h] if x >= 3 * h else None
        d = values[x + 3 * h] if x + 3 * h < size else None
        if b is None:
            out.append(a if c is None else a * work(1.5) - c * work(0.5))
        elif c is None or d is None:
            out.append((a + b) * work(0.5))
        else:
            out.append(((a + b) * work(9) - (c + d)) * work(0.0625))
    shape = (0, *values.shape[1:])
    return np.moveaxis(np.stack(out) if out else np.zeros(shape, work), 0, axis)


UNPACK = {"bounded": unpack_bounded}
