"""What tests on a GPU share. They run under pytest, and where there is none under tests/gpu/run.py.

TUCKFOLD_TEST_DEVICE=cpu runs those that need no stream on the CPU: that tests the tests.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

import tuckfold
import tuckfold.torch as tft
from tuckfold.torch._library import DTYPES

try:
    import pytest
except ImportError:
    pytest = None

DEVICE = os.environ.get("TUCKFOLD_TEST_DEVICE", "cuda")
ON_GPU = DEVICE != "cpu"
FLOATS = ("f32", "f16", "bf16", "f64")
COMMON = (*FLOATS, "u8", "i32", "i64")  # every codec that runs on a GPU has kernels for them
WIDE = ("f32", "f16", "bf16")  # what networks compute in

LOSSY = ["dct_chop(keep=3)", "dct_chop(keep=4, coef=bf16)", "dct_chop(keep=3, shape=triangle)",
         "dct_chop(block=4, keep=2)", "dct_quant(rate=4)", "dct_quant(rate=2.5, clamp=zero)",
         "block_quant(bits=4)", "block_quant(bits=8, group=64)",
         "block_quant(bits=2, round=stochastic)", "dct_chop(keep=4) | block_quant(bits=8)"]  # fmt: skip
EXACT = ["raw", "bits(width=8)", "mask", "positive", "bytes_of(scale=1/255)",
         "pool_index(stride=1, width=1000)"]  # fmt: skip
VARYING = ["nonzero_quant(bits=3)", "bounded(abs=0.05)", "bounded(rel=0.001)", "bits"]


def why_not() -> str:
    """Why tests on a GPU cannot run here; empty where they can."""
    if not ON_GPU:
        return ""
    if not tuckfold.has_cuda():
        return "the build has no CUDA kernels"
    return "" if torch.cuda.is_available() else "there is no GPU that torch can use"


# ---- in place of pytest

Skipped = type("Skipped", (Exception,), {}) if pytest is None else pytest.skip.Exception
if pytest is None:
    marks = []
else:
    marks = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


def skip(reason: str) -> None:
    raise Skipped(reason)


def each(*cases: tuple) -> Callable:
    """Runs a test with the arguments of every case; `function.cases` has them."""

    def mark(function: Callable) -> Callable:
        names = list(inspect.signature(function).parameters)
        if pytest is not None:
            values = [case if len(names) > 1 else case[0] for case in cases]
            function = pytest.mark.parametrize(",".join(names), values)(function)
        function.cases = cases
        return function

    return mark


@contextmanager
def raises(error: type, *texts: str) -> Iterator[None]:
    """Of exactly that class, with all of the texts in its message."""
    try:
        yield
    except Exception as raised:
        assert type(raised) is error, f"{type(raised).__name__}: {raised}"
        for text in texts:
            assert text in str(raised), str(raised)
        return
    raise AssertionError(f"no {error.__name__}")


# ---- codecs and tensors


def runs(spec: str, dtype: str = "f32") -> bool:
    """Whether every codec of a chain runs on the device, for tensors of the dtype."""
    known = {codec.name: codec for codec in tuckfold.list_codecs()}
    names = [stage.name for stage in tuckfold.CodecSpec(spec).stages]
    has_kernels = dtype in COMMON or set(names) <= {"raw", "mask"}
    return not ON_GPU or (has_kernels and all(known[name].cuda for name in names))


def fits(spec: str, dtype: str, shape: tuple[int, ...]) -> bool:
    try:
        tuckfold.layout(spec, dtype, shape)
        return True
    except ValueError:
        return False


def cases(specs: list[str], dtypes: tuple[str, ...] = tuple(DTYPES)) -> list[tuple[str, str]]:
    """Those that run here, each with every dtype that it takes."""
    return [
        (spec, dtype)
        for spec in specs
        for dtype in dtypes
        if runs(spec, dtype) and fits(spec, dtype, (2, 24, 32))
        if not (spec.startswith("bits") and dtype in FLOATS)
    ]


def make(spec: str, dtype: str = "f32", shape: tuple[int, ...] = (2, 24, 32)) -> torch.Tensor:
    """Values on the CPU that the codec takes: two for mask, k/255 for bytes_of, small whole numbers
    for bits, smooth ones with some noise for the others."""
    count = torch.Size(shape).numel()
    whole = torch.arange(count).reshape(shape)
    if spec.startswith("pool_index"):
        rows, columns = shape[-2:]
        index = 1000 * torch.arange(rows).unsqueeze(1) + torch.arange(columns)
        return index.expand(shape).contiguous().to(DTYPES[dtype])
    if spec.startswith(("mask", "positive")):
        return (whole % 3 % 2).to(DTYPES[dtype])
    if spec.startswith("bytes_of"):
        return ((whole % 256).double() / 255).to(DTYPES[dtype])
    if spec.startswith("bits") or dtype not in FLOATS:
        return (whole % 100).to(DTYPES[dtype])
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    return (torch.sin(whole / 50) + 0.1 * noise).to(DTYPES[dtype])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit, those of NaN and of zeros too."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (t.cpu().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def check_against_cpu(spec: str, x: torch.Tensor, on_device: torch.Tensor, seed: int = 5) -> None:
    """Bytes and values of the device are the CPU's."""
    wanted = tft.pack(x, spec, seed=seed)
    packed = tft.pack(on_device, spec, seed=seed)
    assert packed.device == on_device.device
    assert packed.dtype == torch.uint8
    assert same(packed, wanted), spec
    values = tft.unpack(wanted, spec, x.shape, x.dtype)
    back = tft.unpack(wanted.to(DEVICE), spec, x.shape, x.dtype)
    assert back.device.type == on_device.device.type
    assert same(back, values), spec
