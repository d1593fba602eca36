"""How far rounding may take exported products from the library's, as docs/portable.md says, on hostile blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from runtimes import Onnx, Torch
from support import ROOT, pack, unpack

ULP, U, SUBNORMAL = 2.0**-23, 2.0**-24, 2.0**-143
BLOCKS = 1000

# Differences in ulps of M, the largest of a block's values and coefficients, packing and unpacking.
# An entry of a product is a sum of n terms: the exported file rounds each 2 n + 2 times on its way
# through two products, counting that of the matrix, and the library n + 4 times. Terms add up to at
# most n M. zfp's matrices are exact, and its terms add up to M, and 225/16 M on the way back.
GUARANTEED = {
    (4, "dct"): (36, 36),
    (8, "dct"): (120, 120),
    (16, "dct"): (432, 432),
    (4, "zfp"): (7, 99),
}
SEEN = {(4, "dct"): 4, (8, "dct"): 6, (16, "dct"): 8, (4, "zfp"): 4}  # of the blocks below


def matrices(block: int, transform: str) -> tuple[np.ndarray, np.ndarray]:
    """Of one side, there and back."""
    if transform == "zfp":
        there = np.array([[4, 4, 4, 4], [5, 1, -1, -5], [-4, 4, 4, -4], [-2, 6, -6, 2]]) / 16
        back = np.array([[4, 6, -4, -1], [4, 2, 4, 5], [4, -2, 4, -5], [4, -6, -4, 1]]) / 4
        return there, back
    v, x = np.mgrid[0:block, 0:block]
    dct = np.cos(np.pi * (2 * x + 1) * v / (2 * block)) * np.sqrt(2 / block)
    dct[0] /= np.sqrt(2)
    return dct, dct.T


def hostile(block: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Spikes, signs, sums that cancel, all sizes beside each other, and noise on a constant."""
    shape = (BLOCKS, block, block)
    signs = rng.choice([-1.0, 1.0], shape)
    spike = np.zeros(shape)
    places = np.arange(BLOCKS), *rng.integers(0, block, (2, BLOCKS))
    spike[places] = rng.normal(size=BLOCKS)
    yield rng.normal(size=shape)
    yield signs
    yield signs * (1 + 1e-3 * rng.random(shape))
    yield signs * 2.0 ** rng.uniform(-20, 0, shape)
    yield spike
    yield spike + 1e-3 * rng.normal(size=shape)
    yield 1000 + rng.normal(size=shape)
    yield np.indices(shape).sum(0) % 2 * rng.normal(size=(BLOCKS, 1, 1))
    yield np.floor(256 * rng.random(shape))
    yield matrices(block, "dct")[1] @ spike @ matrices(block, "dct")[0]  # one frequency each


def climbed(first: np.ndarray, badness: Callable[[np.ndarray], np.ndarray],
            rng: np.random.Generator) -> Iterator[np.ndarray]:  # fmt: skip
    """Ever worse blocks: the worst so far with some values nudged, turned about or drawn again."""
    worst = first
    for round_ in range(12):
        worst = worst[np.argsort(-badness(worst))[:30]]
        more = worst[rng.integers(0, len(worst), BLOCKS)].astype(np.float64)
        chosen = rng.random(more.shape) < rng.choice([0.02, 0.1, 0.5])
        drawn = rng.normal(size=more.shape) * np.abs(more).max((1, 2), keepdims=True)
        changed = (more * (1 + 1e-5 * rng.normal(size=more.shape)), -more, drawn)[round_ % 3]
        worst = np.concatenate([worst, np.where(chosen, changed, more).astype(np.float32)])
        yield worst[-BLOCKS:]


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize(("block", "transform"), list(GUARANTEED))
@pytest.mark.parametrize("direction", ["Pack", "Unpack"])
def test_rounding_is_within_its_bounds(
    kind: type, block: int, transform: str, direction: str, tmp_path: Path
) -> None:
    spec = f"dct_chop(block={block}, keep={block}, order=rows, transform={transform})"
    rng, shape = np.random.default_rng(block), (BLOCKS, block, block)
    ours = kind(spec, shape, tmp_path)
    matrix = matrices(block, transform)[direction == "Unpack"]
    exact_table = transform == "zfp"
    worst = 0.0

    def both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole = np.resize(x, shape)
        theirs = pack(whole, spec) if direction == "Pack" else unpack(whole, spec, "f32", shape)
        return ours(direction, whole)[0][: len(x)], theirs[: len(x)]

    def differences(x: np.ndarray) -> np.ndarray:
        """In ulps of M; and each result is within what its roundings allow."""
        parts = [x[i : i + BLOCKS] for i in range(0, len(x), BLOCKS)]
        mine, library = (np.concatenate(ones) for ones in zip(*map(both, parts), strict=True))
        right = matrix @ x.astype(np.float64) @ matrix.T
        terms = np.abs(matrix) @ np.abs(x.astype(np.float64)) @ np.abs(matrix).T
        more = 0 if exact_table else 2
        assert (np.abs(mine - right) <= (2 * block + more) * U * terms * 1.001 + SUBNORMAL).all()
        assert (np.abs(library - right) <= (block + 2 + more) * U * terms * 1.001 + SUBNORMAL).all()
        largest = np.maximum(np.abs(x).max((1, 2)), np.abs(right).max((1, 2)))
        error = np.abs(mine.astype(np.float64) - library).max((1, 2))
        guaranteed = GUARANTEED[block, transform][direction == "Unpack"]
        assert (error <= guaranteed * ULP * largest + SUBNORMAL).all()
        return error / np.maximum(ULP * largest, SUBNORMAL)

    seen = []
    for x in hostile(block, rng):
        seen.append(x.astype(np.float32))
        worst = max(worst, differences(seen[-1]).max())
        tiny = (x * 2.0 ** rng.integers(-150, -120, (BLOCKS, 1, 1))).astype(np.float32)
        differences(tiny)
    for x in climbed(np.concatenate(seen), differences, rng):
        worst = max(worst, differences(x).max())
    assert 0.9 < worst <= SEEN[block, transform], worst


def test_the_page_says_these_bounds() -> None:
    page = (ROOT / "docs/portable.md").read_text()
    packing, unpacking = GUARANTEED[4, "zfp"]
    dct = [GUARANTEED[block, "dct"][0] for block in (4, 8, 16)]
    assert f"{dct[0]} ulp for blocks of 4, {dct[1]} for 8 and {dct[2]} for 16" in page
    assert f"{packing} for packing and {unpacking} for unpacking with `transform=zfp`" in page
    assert "2⁻¹⁴³" in page


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize("block", [4, 8, 16])
def test_fewer_coefficients_are_no_worse(kind: type, block: int, tmp_path: Path) -> None:
    """Planes of several blocks, every keep; M is of the plane, and counts what is dropped."""
    rng, side = np.random.default_rng(1), 32
    board = np.indices((1, side, side)).sum(0) % 2
    x = np.concatenate([rng.random((8, side, side)), rng.normal(size=(8, side, side)), 2.0 * board - 1,
                        board, np.full((1, side, side), -3.7), 1000 + rng.normal(size=(3, side, side))])  # fmt: skip
    x = x.astype(np.float32)
    every = pack(x, f"dct_chop(block={block}, keep={block}, order=rows)")
    ulp = ULP * np.maximum(np.abs(every).max((1, 2)), np.abs(x).max((1, 2)))[:, None, None]
    for keep in range(1, block + 1):
        spec = f"dct_chop(block={block}, keep={keep}, order=rows)"
        ours, packed = kind(spec, x.shape, tmp_path), pack(x, spec)
        assert (np.abs(ours("Pack", x)[0] - packed) / ulp).max() <= 4, spec
        want = unpack(packed, spec, "f32", x.shape)
        assert (np.abs(ours("Unpack", packed)[0] - want) / ulp).max() <= 4, spec
