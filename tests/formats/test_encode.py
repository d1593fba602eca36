"""The orders of operations of dct_chop and dct_quant: packed bytes, and how far rounding errors can go."""

from __future__ import annotations

import itertools
from math import ceil

import decode
import decode_dct
import encode_dct
import grid
import numpy as np
import pytest
from decode_spec import parse, to_f32

SHAPES = [(16, 24), (13, 21)]
KINDS = ["smooth", "noise", "few", "hostile", "constant", "relu"]


def packed_bytes(file, name):
    number = [array["name"] for array in file.arrays].index(name)
    (entry,) = [entry for entry in file.entries if decode.u32(entry, 0) == number]
    frame = file.payload(decode.u64(entry, 16), decode.CHUNK)[16:]
    head = -(-(32 + 8 * frame[6] + decode.u32(frame, 8)) // 16) * 16
    return frame[head : head + decode.u64(frame, 16)]


def compare(cases, tmp_path, encode):
    cases = {f"a{i}": case for i, case in enumerate(cases) if not grid.grows(case, 3)}
    values = {name: case.values(3) for name, case in cases.items()}
    arrays = {name: (case.dtype, values[name]) for name, case in cases.items()}
    specs = {name: case.spec for name, case in cases.items()}
    done = grid.pack(arrays, specs, tmp_path / "t.tuck", "--samples-per-chunk", 3)
    assert done.returncode == 0, done.stderr
    file = decode.open_file(tmp_path / "t.tuck")
    complaints = []
    for name, case in cases.items():
        parameters = parse(case.spec)[0][1]
        floats = to_f32(values[name], case.dtype)
        with np.errstate(all="ignore"):
            wanted, got = encode(parameters, floats), packed_bytes(file, name)
        if wanted != got:
            complaints.append(case)
    return len(cases), complaints


def test_dct_chop_packs_in_the_order_of_the_document(tmp_path):
    specs = [f"dct_chop(keep={keep})" for keep in range(1, 9)]
    specs += [f"dct_chop(block=4, keep={keep}, transform=zfp)" for keep in (1, 2, 3, 4)]
    specs += [f"dct_chop(block=4, keep={keep}, coef=bf16)" for keep in (1, 3, 4)]
    specs += [f"dct_chop(block=16, keep={keep})" for keep in (1, 4, 11, 16)]
    cases = [
        grid.Case(spec, dtype, (32, 48) if "16" in spec else shape, kind)
        for spec, shape, kind in itertools.product(specs, SHAPES, ("smooth", "few", "hostile"))
        for dtype in ("f32", "bf16")
    ]
    assert compare(cases, tmp_path, encode_dct.pack_dct_chop) == (len(cases) - growing(cases), [])


def test_dct_quant_packs_in_the_order_of_the_document(tmp_path):
    rates = ["1", "1.375", "2", "19/8", "3", "4", "7.125", "8", "8.125", "11", "16"]
    more = ["", ", dc=4", ", dc=12", ", offset=1/-3"]
    cases = [
        grid.Case(
            f"dct_quant(rate={rate}{parameters})", "f32", SHAPES[i % 2], KINDS[(i + i // 6) % 6]
        )
        for i, (rate, parameters) in enumerate(itertools.product(rates, more))
    ]
    assert compare(cases, tmp_path, encode_dct.pack_dct_quant) == (len(cases) - growing(cases), [])


def growing(cases):
    return sum(grid.grows(case, 3) for case in cases)


# ---- rounding errors ----------------------------------------------------------------------------


class Traced:
    """A number as a sum of multiples of the block's values, and of the rounding errors made so far.

    `of` are the factors of the block's values, so that the number is at most their sum for values
    up to 1. An error is at most 2^-24 of the number that it was made in.
    """

    __array_ufunc__ = None  # numpy's numbers leave products to __rmul__
    sizes: list[float] = []  # of the numbers in which errors were made

    def __init__(self, of, errors, table):
        self.of, self.errors, self.table = of, errors, table  # of table entries, as sizes

    def rounded(self):
        Traced.sizes.append(np.abs(self.of).sum())
        self.errors = {**self.errors, len(Traced.sizes) - 1: 1.0}
        return self

    def plus(self, other, factor):
        errors = dict(self.errors)
        for key, value in other.errors.items():
            errors[key] = errors.get(key, 0) + factor * value
        return Traced(self.of + factor * other.of, errors, self.table + abs(factor) * other.table)

    def __add__(self, other):
        return self.plus(other, 1).rounded()

    def __sub__(self, other):
        return self.plus(other, -1).rounded()

    def __neg__(self):
        return self.times(-1.0)

    def times(self, factor):
        """By a factor of a table: off by half of its last place at most, or exact."""
        factor = float(factor)
        off = 0 if exact(factor) else 2.0**-24
        errors = {key: factor * value for key, value in self.errors.items()}
        table = abs(factor) * (self.table + off * np.abs(self.of))
        return Traced(factor * self.of, errors, table)

    def __mul__(self, factor):
        product = self.times(factor)
        return product if is_power_of_two(factor) else product.rounded()

    __rmul__ = __mul__


def exact(factor):
    return (64 * factor).is_integer()


def is_power_of_two(factor):
    return np.frexp(abs(float(factor)))[0] == 0.5


def traced_fma(a, b, c):
    return a.times(b).plus(c, 1).rounded()


def block_of(n, factors):
    return [[Traced(factors(r, c), {}, np.zeros(n * n)) for c in range(n)] for r in range(n)]


def transposed(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def round_trip(n, transform):
    """A block, packed and unpacked with keep = n."""
    x = block_of(n, lambda r, c: np.eye(n * n)[r * n + c])
    forward = encode_dct.ZFP_FORWARD if transform == "zfp" else decode_dct.DCT.get(n)
    back = decode_dct.ZFP if transform == "zfp" else decode_dct.DCT.get(n)
    if n == 8:
        half = transposed([encode_dct.forward_column(column, 8) for column in transposed(x)])
        coefs = [
            encode_dct.forward_line(decode_dct.SCALED[u], half[u], 8, odd_from_the_end=True)
            for u in range(8)
        ]
        rows = [decode_dct.inverse_line(decode_dct.SCALED[u], coefs[u]) for u in range(8)]
        return [decode_dct.inverse_column(column) for column in transposed(rows)]
    half = transposed([encode_dct.forward_line(forward, column, n) for column in transposed(x)])
    coefs = [encode_dct.forward_line(forward, row, n) for row in half]
    rows = [decode_dct.inverse_line(back, row) for row in coefs]
    return [decode_dct.inverse_line(back, column) for column in transposed(rows)]


def unpacked_quant():
    """dct_quant's way back; what it is compared with are the values that come back."""
    matrix = np.array([[decode_dct.dct_entry(8, u, x) for x in range(8)] for u in range(8)])
    z = block_of(8, lambda u, v: np.outer(matrix[u], matrix[v]).ravel())
    scaled = [[z[u][v] * decode_dct.ALPHAS[u, v] for v in range(8)] for u in range(8)]
    rows = [decode_dct.inverse_column(row) for row in scaled]
    return [decode_dct.inverse_column(column) for column in transposed(rows)]


def largest_error(monkeypatch, compute):
    """In units of 2^-24 of the block's largest value, if all rounding errors add up."""
    monkeypatch.setattr(decode_dct, "fma", traced_fma)
    monkeypatch.setattr(encode_dct, "fma", traced_fma)
    monkeypatch.setattr(Traced, "sizes", [])
    values = [value for line in compute() for value in line]
    sizes = np.array(Traced.sizes)
    return max(
        sum(abs(factor) * sizes[key] for key, factor in value.errors.items())
        + value.table.sum() * 2**24
        for value in values
    )


# As docs/codecs/dct_chop.md and docs/codecs/dct_quant.md have them.
BOUNDS = {(4, "dct"): 73, (4, "zfp"): 47, (8, "dct"): 342, (16, "dct"): 1717}
QUANT_BOUND = 189


@pytest.mark.parametrize(("n", "transform"), BOUNDS)
def test_rounding_errors_of_dct_chop(n, transform, monkeypatch):
    bound = largest_error(monkeypatch, lambda: round_trip(n, transform))
    assert ceil(bound) == BOUNDS[n, transform]
    monkeypatch.undo()
    generator = np.random.default_rng(0)
    x = np.concatenate(
        [
            generator.uniform(-1, 1, (1000, n, n)),
            generator.uniform(0.9, 1, (1000, n, n)),
            generator.choice([-1, 1], (1000, n, n)) * generator.uniform(0.9, 1, (1000, n, n)),
        ]
    ).astype(np.float32)
    back = decode_dct.inverse(encode_dct.forward(x, transform, n), transform, n)
    error = np.abs(back.astype(np.float64) - x).max(axis=(1, 2)) / np.abs(x).max(axis=(1, 2))
    assert 2 < error.max() * 2**24 < 16


def test_rounding_errors_of_dct_quant(monkeypatch):
    bound = largest_error(monkeypatch, unpacked_quant)
    assert ceil(bound) == QUANT_BOUND
