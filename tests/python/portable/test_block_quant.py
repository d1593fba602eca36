"""dct_chop | block_quant(bits=8), and block_quant alone, in plain operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtimes import Onnx, Torch, torch
from support import images, pack, run, unpack

SPECS = [
    ("dct_chop(keep=4) | block_quant(bits=8)", (2, 3, 32, 48)),
    ("dct_chop(keep=3, shape=triangle) | block_quant(bits=8, group=64)", (2, 40, 24)),
    ("dct_chop(keep=4, coef=bf16) | block_quant(bits=8)", (2, 32, 48)),
    ("dct_chop(keep=5, order=rows, serialize=2) | block_quant(bits=8, group=40)", (1, 32, 48)),
    ("block_quant(bits=8)", (3, 1000)),  # the last group is short
    ("block_quant(bits=8, group=128)", (100,)),  # shorter than one group
]


def split(packed: np.ndarray, values: int) -> tuple[np.ndarray, np.ndarray]:
    """The library's bytes as codes and headers: a scale and a minimum, bf16, for each group."""
    codes, headers = packed[:values], packed[values:].view(np.uint16).astype(np.uint32) << 16
    return codes, headers.view(np.float32).reshape(-1, 2)


def joined(codes: np.ndarray, headers: np.ndarray) -> np.ndarray:
    halves = headers.astype(np.float32).view(np.uint32)
    assert (halves & 0xFFFF == 0).all(), "headers must be exact in bf16"
    return np.concatenate([codes, (halves >> 16).astype(np.uint16).reshape(-1).view(np.uint8)])


@pytest.mark.parametrize("kind", [Torch, Onnx])
@pytest.mark.parametrize(("spec", "shape"), SPECS, ids=lambda value: str(value))
def test_both_ways_agree(kind: type, spec: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = images(shape if len(shape) > 1 else (1, *shape)).reshape(shape)
    ours, packed = kind(spec, shape, tmp_path), pack(x, spec)
    codes, headers = ours("Pack", x)
    want_codes, want_headers = split(packed, codes.size)
    # Coefficients differ in their last bits, so a code may be the next one, a header the next bf16.
    assert np.abs(codes.astype(int) - want_codes).max() <= 1
    assert (codes != want_codes).mean() < 0.01
    assert np.abs(headers / want_headers - 1).max() < 2**-6
    assert (headers == want_headers).mean() > 0.95
    # What they pack, the library unpacks as it unpacks its own.
    scale = np.repeat(want_headers[:, 0], 2).max()
    library = unpack(joined(codes, headers), spec, "f32", shape)
    largest = unpack(packed, spec, "f32", shape)
    assert np.abs(library - largest).max() <= (1 if "dct" not in spec else 64) * scale
    (back,) = ours("Unpack", want_codes, want_headers)
    assert np.abs(back - largest).max() <= 4e-6 * np.abs(largest).max()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_headers_are_those_of_the_library(kind: type, tmp_path: Path) -> None:
    """Without a transform before it nothing rounds differently: every byte is equal."""
    spec, rng = "block_quant(bits=8, group=32)", np.random.default_rng(1)
    rows = [rng.normal(size=32) * 10.0 ** rng.integers(-20, 20) for _ in range(500)]
    rows += [np.full(32, v) for v in (0.0, -0.0, 1.0, -3.5, 255.0, 256.0, -257.0)]
    rows += [np.linspace(a, b, 32) for a, b in ((0, 255), (-128, 127), (-1, 0), (1, 1 + 2**-20))]
    rows += [2.0**e * np.linspace(1, 2, 32) for e in range(-60, 60)]
    # Below 2^-126 bf16 has fewer bits the smaller a number is.
    rows += [2.0**e * rng.normal(size=32) for e in range(-160, -100) for _ in range(10)]
    rows += [sign * 2.0**e * np.linspace(1, 2, 32) for e in range(-160, -100) for sign in (-1, 1)]
    rows += [np.full(32, sign * k * 2.0**-149) for k in (1, 2**15, 2**16, 2**16 + 1, 3 * 2**15, 2**23 - 1)
             for sign in (-1, 1)]  # fmt: skip
    x = np.array(rows, np.float32)
    ours = kind(spec, x.shape, tmp_path)
    assert (joined(*ours("Pack", x)) == pack(x, spec)).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_a_group_with_a_nan_unpacks_to_nan(kind: type, tmp_path: Path) -> None:
    spec = "block_quant(bits=8, group=16)"
    x = images((4, 16))
    x[1, 3], x[2, 5] = np.nan, np.inf
    ours = kind(spec, x.shape, tmp_path)
    codes, headers = ours("Pack", x)
    for back in (
        ours("Unpack", codes, headers)[0],
        unpack(
            joined(codes[:], np.where(np.isnan(headers), np.float32(np.nan), headers)),
            spec,
            "f32",
            x.shape,
        ),
    ):
        assert np.isnan(back[1]).all() and np.isnan(back[2]).all()
        assert np.isfinite(back[[0, 3]]).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_huge_groups_are_the_librarys_or_nan(kind: type, tmp_path: Path) -> None:
    spec, rng = "block_quant(bits=8, group=32)", np.random.default_rng(2)
    rows = []
    for exponent in np.arange(105, 128, 0.25):
        most = min(2.0**exponent, 3.4028e38)
        rows += [np.linspace(0, most, 32), np.linspace(-most, most / 8, 32), np.full(32, -most),
                 rng.uniform(-most / 2, most / 2, 32)]  # fmt: skip
    x = np.array(rows, np.float32)
    ours, packed = kind(spec, x.shape, tmp_path), pack(x, spec)
    want = unpack(packed, spec, "f32", x.shape)
    (back,) = ours("Unpack", *ours("Pack", x))
    known = np.isfinite(back).all(1)
    assert (back[known] == want[known]).all() and np.isnan(back[~known]).all()
    assert known[np.abs(x).max(1) < 2.0**111].all() and not known.all()
    (back,) = ours("Unpack", *split(packed, x.size))
    assert (back == want).all()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_subnormal_values_stay_within_a_step(kind: type, tmp_path: Path) -> None:
    """bf16 has fewer bits there than eight; the smallest scale is 2^-120, far above."""
    spec, x = "block_quant(bits=8, group=16)", np.linspace(1e-40, 3e-39, 64, dtype=np.float32)
    ours = kind(spec, x.shape, tmp_path)
    (back,) = ours("Unpack", *ours("Pack", x))
    assert np.abs(back - x).max() <= 2.0**-120


def test_bytes_of_the_torch_file_are_the_librarys(tmp_path: Path) -> None:
    spec, shape = "block_quant(bits=8, group=32)", (4, 50)
    x = images(shape)
    ours = Torch(spec, shape, tmp_path).module
    packed = ours.to_bytes(*ours.Pack()(torch.from_numpy(x)))
    assert packed == pack(x, spec).tobytes()
    back = ours.Unpack()(*ours.from_bytes(packed)).numpy()
    assert (back == unpack(np.frombuffer(packed, np.uint8), spec, "f32", shape)).all()


def test_bytes_of_another_tensor_are_refused(tmp_path: Path) -> None:
    spec, shape = "block_quant(bits=8, group=32)", (4, 50)
    file = Torch(spec, shape, tmp_path).module
    packed = pack(images(shape), spec).tobytes()
    assert len(packed) == file.CODES + 4 * file.GROUPS == 200 + 4 * 7
    for wrong in b"", packed[:-1], packed + b"\0", packed + packed:
        with pytest.raises(ValueError, match=f"must have 228 bytes, got {len(wrong)}"):
            file.from_bytes(wrong)
    codes, headers = file.from_bytes(packed)
    assert file.to_bytes(codes, headers) == packed
    with pytest.raises(ValueError, match="the shape of codes must be"):
        file.to_bytes(codes[:-1], headers)
    with pytest.raises(ValueError, match="the shape of headers must be"):
        file.to_bytes(codes, headers[:-1])
    with pytest.raises(ValueError, match="headers must be torch.float32"):
        file.to_bytes(codes, headers.to(torch.bfloat16))
    with pytest.raises(ValueError, match="exact in bf16"):
        file.to_bytes(codes, headers + 1e-6)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [("block_quant(bits=8)", (1, 3, 7, 5)),
     ("dct_chop(keep=3) | block_quant(bits=8)", (1, 3, 24, 24))],
)  # fmt: skip
def test_from_bytes_takes_an_odd_number_of_codes(
    spec: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = images(shape)
    ours = Torch(spec, shape, tmp_path).module
    assert ours.CODES % 2 == 1
    back = ours.Unpack()(*ours.from_bytes(pack(x, spec).tobytes())).numpy()
    want = unpack(pack(x, spec), spec, "f32", shape)
    assert np.abs(back - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_groups_that_are_not_finite_have_the_librarys_bytes(kind: type, tmp_path: Path) -> None:
    spec = "block_quant(bits=8, group=16)"
    x = images((8, 16))
    x[1, 3], x[2, 5], x[3, 0], x[5] = np.nan, np.inf, -np.inf, -np.nan
    x[6, 1], x[6, 2] = np.inf, -np.inf
    ours = kind(spec, x.shape, tmp_path)
    assert (joined(*ours("Pack", x)) == pack(x, spec)).all()
    if kind is Torch:
        packed = ours.module.to_bytes(*ours.module.Pack()(torch.from_numpy(x)))
        assert packed == pack(x, spec).tobytes()


@pytest.mark.parametrize("kind", [Torch, Onnx])
def test_no_optimization_changes_a_code(kind: type, tmp_path: Path) -> None:
    """x * (1 / s) and x / s differ in the last bit, which decides where a code is nearly halfway."""
    spec, shape = "block_quant(bits=8, group=64)", (2000, 64)
    x = np.random.default_rng(5).integers(0, 511, shape).astype(np.float32) / 512
    x[:, 0], x[:, 1] = 0, np.linspace(0.9, 1.1, 2000, dtype=np.float32)
    ours = kind(spec, shape, tmp_path)
    assert (joined(*ours("Pack", x)) == pack(x, spec)).all()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("block_quant(bits=4)", "shifts of bits"),
        ("dct_chop(keep=4) | block_quant(bits=2)", "shifts of bits"),
        ("block_quant(bits=8, zero=exact)", "zero=near"),
        ("block_quant(bits=8, round=stochastic)", "round=nearest"),
    ],
)
def test_what_needs_more_is_refused(spec: str, why: str, tmp_path: Path) -> None:
    out = tmp_path / "codec.py"
    done = run("export", "codec", spec, "--shape", "4,64,64", "--target", "torch", "-o", out)
    assert done.returncode == 4 and "block_quant" in done.stderr and why in done.stderr
    assert not list(tmp_path.iterdir())
