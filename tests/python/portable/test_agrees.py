"""What the exported files pack and unpack is what the library packs and unpacks."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from runtimes import Onnx, Torch
from support import NUMPY, images, pack, ulps_of_largest, unpack

SHAPE = (2, 3, 64, 96)
KEEPS = range(1, 9)


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_every_keep_shape_and_serialize_agrees_within_two_ulps(kind: type, tmp_path: Path) -> None:
    x = images(SHAPE)
    worst = 0.0
    for keep in KEEPS:
        for shape in "square", "triangle":
            for serialize in 1, 2, 4:
                spec = f"dct_chop(keep={keep}, shape={shape}, serialize={serialize})"
                ours = kind(spec, SHAPE, tmp_path)
                packed = pack(x, spec)
                (theirs,) = ours("Pack", x)
                assert theirs.shape == packed.shape and theirs.dtype == packed.dtype
                worst = max(worst, ulps_of_largest(theirs - packed, packed))
                (back,) = ours("Unpack", packed)
                want = unpack(packed, spec, "f32", SHAPE)
                worst = max(worst, ulps_of_largest(back - want, packed))
                # And what they pack, the library unpacks.
                library = unpack(theirs, spec, "f32", SHAPE)
                worst = max(worst, ulps_of_largest(library - want, packed))
                assert worst <= 2, spec
    assert worst > 0  # rounding differs: what was compared is not the same code twice


# Sides that are no multiples of a block, planes folded from three axes, one axis less, and more.
SHAPES = [(3, 20, 37), (33, 65), (2, 64, 4, 5), (2, 1, 3, 16, 24), (1, 8, 8), (5, 9, 100)]


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_edges_and_folded_axes_agree(kind: type, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = images(shape)
    for spec in (
        "dct_chop(keep=3)",
        "dct_chop(keep=5, shape=triangle)",
        "dct_chop(keep=4, order=planes)",
        "dct_chop(keep=3, shape=triangle, order=planes)",
        "dct_chop(block=4, keep=3)",
        "dct_chop(block=4, keep=2, transform=zfp)",
    ):
        ours, packed = kind(spec, shape, tmp_path), pack(x, spec)
        (theirs,) = ours("Pack", x)
        assert theirs.shape == packed.shape
        # Edges repeat a value up to seven times: their sums are rounded in another order.
        assert ulps_of_largest(theirs - packed, packed) <= 3, spec
        (back,) = ours("Unpack", packed)
        assert ulps_of_largest(back - unpack(packed, spec, "f32", shape), packed) <= 3, spec


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_tiles_with_an_edge_agree(kind: type, tmp_path: Path) -> None:
    shape = (2, 61, 93)  # 8 x 12 blocks, with an edge in the last tile of each side
    x = images(shape)
    for spec in "dct_chop(keep=5, serialize=2)", "dct_chop(keep=2, serialize=4, shape=triangle)":
        ours, packed = kind(spec, shape, tmp_path), pack(x, spec)
        assert ulps_of_largest(ours("Pack", x)[0] - packed, packed) <= 3
        want = unpack(packed, spec, "f32", shape)
        assert ulps_of_largest(ours("Unpack", packed)[0] - want, packed) <= 3


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("coef", ["f32", "f16", "bf16"])
def test_types_agree(kind: type, dtype: str, coef: str, tmp_path: Path) -> None:
    shape = (2, 32, 40)
    x = images(shape).astype(NUMPY[dtype])
    for spec in f"dct_chop(keep=4, coef={coef})", f"dct_chop(keep=3, shape=triangle, coef={coef})":
        ours, packed = kind(spec, shape, tmp_path, dtype), pack(x, spec)
        (theirs,) = ours("Pack", x)
        assert theirs.dtype == packed.dtype == NUMPY[coef]
        (back,) = ours("Unpack", packed)
        want = unpack(packed, spec, dtype, shape)
        assert back.dtype == want.dtype == NUMPY[dtype]
        assert_near(theirs, packed, np.abs(packed.astype(np.float32)).max())
        assert_near(back, want, np.abs(packed.astype(np.float32)).max())


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_types_agree_for_every_keep_shape_and_serialize(
    kind: type, dtype: str, tmp_path: Path
) -> None:
    tensor = (2, 32, 64)
    x = images(tensor).astype(NUMPY[dtype])
    for keep in KEEPS:
        for shape in "square", "triangle":
            for serialize in 1, 2, 4:
                spec = f"dct_chop(keep={keep}, shape={shape}, serialize={serialize}, coef={dtype})"
                ours, packed = kind(spec, tensor, tmp_path, dtype), pack(x, spec)
                largest = np.abs(packed.astype(np.float32)).max()
                (theirs,) = ours("Pack", x)
                assert theirs.dtype == packed.dtype and theirs.shape == packed.shape
                assert_near(theirs, packed, largest)
                (back,) = ours("Unpack", packed)
                assert_near(back, unpack(packed, spec, dtype, tensor), largest)


def assert_near(ours: np.ndarray, want: np.ndarray, largest: float) -> None:
    """Within a step of the type, since a tie may go either way, and two ulps of the largest f32."""
    step = ml_dtypes.finfo(want.dtype).eps * np.abs(want.astype(np.float64)) * 1.0001
    if want.dtype == np.float32:
        step = 0
    error = np.abs(ours.astype(np.float64) - want.astype(np.float64))
    assert (error <= step + 2 * np.spacing(np.float32(largest))).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_not_a_number_stays_within_its_plane(kind: type, tmp_path: Path) -> None:
    """A product of a whole plane cannot keep a NaN within its block, as the library does."""
    x = images((3, 32, 32))
    x[1, 5, 7] = np.nan
    x[2, 20, 3] = np.inf
    spec = "dct_chop(keep=4)"
    ours = kind(spec, x.shape, tmp_path)
    (packed,) = ours("Pack", x)
    library = pack(x, spec)
    assert np.isfinite(packed[0]).all()
    assert (np.isnan(library) <= np.isnan(packed)).all()  # nothing spoiled is shown as a number
    assert not np.isfinite(packed[2]).all()
    (back,) = ours("Unpack", library)
    assert ulps_of_largest(back[0] - unpack(library, spec, "f32", x.shape)[0], library[0]) <= 2
    assert np.isnan(back[1, 0:8, 0:8]).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize("more", ["", " | block_quant(bits=8)"])
def test_coefficients_beyond_f16_are_its_largest(kind: type, more: str, tmp_path: Path) -> None:
    spec = "dct_chop(keep=4, coef=f16)" + more
    x = images((4, 16, 16))
    x[1] += 30000
    x[2] -= 30000
    x[3, 2, 3] = np.nan if not more else 0  # groups are of all planes
    ours, library = kind(spec, x.shape, tmp_path), pack(x, spec)
    packed = ours("Pack", x)
    want = unpack(library, spec, "f32", x.shape)
    assert np.isfinite(want[:3]).all()
    if not more:
        assert packed[0][1, 0, 0] == library[1, 0, 0] == 65504
        assert packed[0][2, 0, 0] == library[2, 0, 0] == -65504
        assert np.isnan(packed[0][3]).all()
    (back,) = ours("Unpack", *packed)
    assert np.abs(back[:3] - want[:3]).max() <= (1e-2 if not more else 1) * 65504 / 255
    assert np.isnan(back[3]).all() == (not more)


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_an_infinity_is_no_number_in_f16(kind: type, tmp_path: Path) -> None:
    x = images((2, 16, 16))
    x[1, 2, 3] = np.inf
    (packed,) = kind("dct_chop(keep=4, coef=f16)", x.shape, tmp_path)("Pack", x)
    assert np.isfinite(packed[0]).all() and np.isnan(packed[1]).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_large_small_and_zero_values_agree(kind: type, tmp_path: Path) -> None:
    spec = "dct_chop(keep=6)"
    ours = kind(spec, (2, 16, 16), tmp_path)
    for scale in 1e30, 1e-30, 0.0, -0.0:
        x = images((2, 16, 16)) * np.float32(scale)
        packed = pack(x, spec)
        (theirs,) = ours("Pack", x)
        if scale == 0:
            assert (theirs == 0).all() and (ours("Unpack", packed)[0] == 0).all()
        else:
            assert ulps_of_largest(theirs - packed, packed) <= 2


def test_rows_are_the_matrix_of_the_paper() -> None:
    """Y = (M T_L) A (T_L^T M^T), eq. 4, written out in double precision."""
    x, keep = images((2, 24, 40)), 5
    t = np.array([[np.sqrt((1 if v == 0 else 2) / 8) * np.cos(np.pi * (2 * u + 1) * v / 16)
                   for u in range(8)] for v in range(8)])  # fmt: skip

    def operator(side: int) -> np.ndarray:
        large = np.kron(np.eye(side // 8), t)
        mask = np.zeros((side // 8 * keep, side))
        for row in range(mask.shape[0]):
            mask[row, row // keep * 8 + row % keep] = 1
        return mask @ large

    want = operator(24) @ x.astype(np.float64) @ operator(40).T
    packed = pack(x, f"dct_chop(keep={keep}, order=rows)")
    assert packed.shape == want.shape
    assert ulps_of_largest(packed - want, packed) <= 2
