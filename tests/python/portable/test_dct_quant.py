"""The decoder of dct_quant in plain operators gives the library's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtimes import run_session, session, to_torch, torch
from support import NUMPY, export, images, load, pack, run, unpack


def decoded(target: str, spec: str, packed: np.ndarray, shape: tuple[int, ...], folder: Path,
            dtype: str = "f32") -> np.ndarray:  # fmt: skip
    out = folder / ("unpack.onnx" if target == "onnx" else "unpack.py")
    export(spec, shape, target, out, "--only", "unpack", dtype=dtype)
    if target == "onnx":
        return run_session(session(out), (packed,))[0]
    with torch.no_grad():
        return load(out).Unpack()(to_torch(packed)).to(torch.float32).numpy()


RATES = [1, 1.375, 2, 2.5, 3, 4, 5.125, 8, 8.125, 12, 16]


@pytest.mark.parametrize("target", ["torch", "onnx"])
@pytest.mark.parametrize("rate", RATES)
def test_every_rate_agrees(target: str, rate: float, tmp_path: Path) -> None:
    shape = (2, 29, 40)
    x = images(shape)
    x[0, :8, :8] = 0
    x[1, 8:16, 8:16] = 7
    for dc in 4, 8, 12:
        spec = f"dct_quant(rate={rate}, dc={dc})"
        packed = pack(x, spec)
        want = unpack(packed, spec, "f32", shape)
        back = decoded(target, spec, packed, shape, tmp_path)
        assert np.abs(back - want).max() <= 2**-20 * np.abs(want).max(), spec
        assert (back[0, :8, :8] == 0).all()


@pytest.mark.parametrize("target", ["torch", "onnx"])
def test_offset_clamp_and_types_agree(target: str, tmp_path: Path) -> None:
    shape = (1, 3, 16, 24)
    for dtype in "f32", "f16":
        x = images(shape).astype(NUMPY[dtype])
        spec = "dct_quant(rate=4, offset=0.5, clamp=zero)"
        packed = pack(x, spec)
        want = unpack(packed, spec, dtype, shape).astype(np.float32)
        back = decoded(target, spec, packed, shape, tmp_path, dtype)
        assert (back >= 0).all()
        step = 2**-10 if dtype == "f16" else 2**-20
        assert np.abs(back - want).max() <= step * np.abs(want).max()


@pytest.mark.parametrize("target", ["torch", "onnx"])
def test_any_bytes_unpack_as_the_library_unpacks_them(target: str, tmp_path: Path) -> None:
    """Damaged headers are NaN in both; what fits them is the same numbers."""
    shape, rng = (40, 64, 64), np.random.default_rng(3)
    for rate in 2, 9:
        spec = f"dct_quant(rate={rate})"
        packed = rng.integers(0, 256, (40, 8, 8, 8 * rate), dtype=np.uint8)
        good = pack(images(shape), spec)
        packed[::2] = good[::2]
        packed[::2, ::3, ::5, 4] ^= 0x41  # in the widths
        packed[1, :, :, :2] = 0xFF  # marks a block of NaN
        want = unpack(packed, spec, "f32", shape)
        back = decoded(target, spec, packed, shape, tmp_path)
        assert (np.isnan(back) == np.isnan(want)).all()
        known = np.isfinite(want)
        assert (np.isinf(back) == np.isinf(want)).all()
        assert known.any() and not known.all()
        blocks = np.abs(want).reshape(40, 8, 8, 8, 8).max(axis=(2, 4), keepdims=True)
        error = np.where(known & (back != want), np.abs(back - want), 0).reshape(40, 8, 8, 8, 8)
        assert (error <= 2**-20 * np.nan_to_num(blocks)).all()


def test_packing_is_refused_with_the_reason(tmp_path: Path) -> None:
    done = run("export", "codec", "dct_quant(rate=4)", "--shape", "4,64,64", "--target", "torch",
               "-o", tmp_path / "codec.py")  # fmt: skip
    assert done.returncode == 4
    assert "shifts of bits" in done.stderr and "--only unpack" in done.stderr
