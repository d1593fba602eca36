"""A codec of the library on tensors of torch, by ctypes on their pointers, and whether it does right."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_int64, c_size_t, c_uint64, c_void_p

import numpy as np
import torch

import tuckfold
from bench.gpu.clock import Clock
from tuckfold import _library
from tuckfold._codec import plan_of

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
POISONS = (0xA5, 0x5A)
SAMPLE_BYTES = 4_000_000  # of each end of a tensor, packed by the CPU too
PIECE = 1 << 26  # elements that comparisons hold as f64 at a time


class WrongError(Exception):
    """What the device wrote is not what it should be."""


class Codec:
    """A spec for tensors of one dtype and shape, with the memory that its calls need."""

    def __init__(
        self, clock: Clock, text: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> None:
        self.clock, self.text, self.shape, self.dtype = clock, text, shape, dtype
        self._plan = plan_of(text, DTYPES[dtype], shape)  # holds the handle
        self.layout = self._plan.layout
        self.elems = math.prod(shape)
        self.bytes = self.elems * dtype.itemsize
        self.room = -(-self.layout.max_bytes // 256) * 256  # so that neighbours start aligned
        self._axes = (c_int64 * len(shape))(*shape)
        self._work = clock_bytes(clock, self.layout.workspace_bytes).fill_(POISONS[0])
        self.device_result = torch.zeros(1, dtype=torch.int64, device=clock.device)

    def packed(self, count: int = 1) -> torch.Tensor:
        return clock_bytes(self.clock, count * self.room).view(count, self.room)

    def packer(self, x: torch.Tensor, out: torch.Tensor) -> Callable[[], int]:
        """Packs x when called. A size that varies stays on the device, in `device_result`."""
        view, options = self._tensor(x), self._options()
        written = c_size_t()
        arguments = (
            self._plan.handle,
            ctypes.byref(view),
            c_void_p(out.data_ptr()),
            c_size_t(self.layout.max_bytes),
            ctypes.byref(options),
            ctypes.byref(written),
        )
        stream = self.clock.stream

        def call(keep: tuple = (x, out)) -> int:
            options.stream = stream()
            _library.call("pack", *arguments)
            return written.value

        return call

    def unpacker(self, packed: torch.Tensor, packed_bytes: int, out: torch.Tensor) -> Callable:
        view, options = self._tensor(out), self._options()
        arguments = (
            self._plan.handle,
            c_void_p(packed.data_ptr()),
            c_size_t(packed_bytes),
            ctypes.byref(view),
            ctypes.byref(options),
        )
        stream = self.clock.stream

        def call(keep: tuple = (packed, out)) -> None:
            options.stream = stream()
            _library.call("unpack", *arguments)

        return call

    def packed_bytes(self, call: Callable[[], int]) -> int:
        """Packs, waits, and says how many bytes there are."""
        written = call()
        self.clock.wait()
        if self.layout.fixed or self.clock.dry:
            return written
        size = int(self.device_result.item())
        if size < 0:
            raise WrongError("pack refused the tensor")
        return size

    def _tensor(self, x: torch.Tensor) -> _library.Tensor:
        if x.shape != self.shape or x.dtype != self.dtype or not x.is_contiguous():
            raise ValueError(f"{self.text} is for {self.shape}, got {tuple(x.shape)}")
        return _library.Tensor(
            data=x.data_ptr(),
            dtype=_library.DTYPES.index(DTYPES[self.dtype]),
            rank=len(self.shape),
            shape=self._axes,
            device=0 if self.clock.dry else 1,
        )

    def _options(self) -> _library.Options:
        options = _library.Options(struct_bytes=ctypes.sizeof(_library.Options))
        if self._work.numel() > 0:
            options.workspace, options.workspace_bytes = self._work.data_ptr(), self._work.numel()
        if not self.clock.dry and not self.layout.fixed:
            options.device_result = ctypes.cast(
                self.device_result.data_ptr(), ctypes.POINTER(c_uint64)
            )
        return options


def clock_bytes(clock: Clock, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=clock.device)


# ---- whether it does right


def sample_rows(shape: tuple[int, ...], most_bytes: int) -> int:
    """Leading rows whose values pack as they do within the tensor: whole groups, blocks and chunks."""
    row = math.prod(shape[1:])
    unit = 16384  # 256 blocks of 8 x 8 values, 16 chunks of 1024
    step = unit // math.gcd(row, unit)
    rows = max(step, most_bytes // 4 // row // step * step)
    return rows if rows < shape[0] and shape[0] % step == 0 else shape[0]


def check(
    codec: Codec, x: torch.Tensor, bound: float | None = None, loss: float | None = None
) -> dict[str, object]:
    """Packs and unpacks x over poison; compares with the CPU. Returns size, error and PSNR.

    No error may pass `bound`; the relative error is about `loss` where that is known.
    """
    first, second = codec.packed()[0], codec.packed()[0]
    sizes = []
    for packed, poison in zip((first, second), POISONS, strict=True):
        packed.fill_(poison)
        sizes.append(codec.packed_bytes(codec.packer(x, packed)))
    size = sizes[0]
    if sizes[0] != sizes[1] or not torch.equal(first[:size], second[:size]):
        raise WrongError("two calls of pack differ, or leave bytes unwritten")
    if codec.layout.fixed and size != codec.layout.max_bytes:
        raise WrongError(f"pack says {size} bytes, the layout {codec.layout.max_bytes}")
    del second
    y = torch.full_like(x, math.nan)
    codec.unpacker(first, size, y)()
    codec.clock.wait()
    compare_with_cpu(codec, x, y)
    about = {"packed_bytes": size, "ratio": codec.bytes / size} | quality(x, y)
    if not math.isfinite(about["rms_error"]):
        raise WrongError("unpack leaves values unwritten")
    if bound is not None and about["max_error"] > bound:
        raise WrongError(f"an error of {about['max_error']} is beyond {bound}")
    relative = about["rms_error"] / about["rms"]
    if relative > 1 or (loss is not None and abs(relative - loss) > 0.02):
        raise WrongError(f"a relative error of {relative:.4f}, {loss} was expected")
    return about


def check_again(codec: Codec, x: torch.Tensor, packed: torch.Tensor, y: torch.Tensor) -> None:
    """What the timed calls left, in a graph or not, is what one more call gives."""
    again, values = codec.packed()[0], torch.empty_like(y)
    codec.packer(x, again)()
    codec.unpacker(packed, packed.numel(), values)()
    codec.clock.wait()
    if not torch.equal(again[: packed.numel()], packed) or not torch.equal(values, y):
        raise WrongError("the timed calls differ from one more")


def compare_with_cpu(codec: Codec, x: torch.Tensor, y: torch.Tensor) -> None:
    """Both ends of a tensor round trip on the CPU to the same bits; the first also packs to them."""
    rows = sample_rows(codec.shape, SAMPLE_BYTES // (40 if codec.clock.dry else 1))
    of_all = (
        "rel=" in codec.text and rows < codec.shape[0]
    )  # values that follow from the whole range
    name = DTYPES[codec.dtype]
    starts = dict.fromkeys((0, codec.shape[0] - rows))
    for start in starts:
        part = slice(start, start + rows)
        piece = x[part].contiguous()
        values = on_host(piece)
        expected = tuckfold.pack(values, codec.text, dtype=name)
        if start == 0:
            small = Codec(codec.clock, codec.text, tuple(piece.shape), codec.dtype)
            packed = small.packed()[0].fill_(POISONS[0])
            size = small.packed_bytes(small.packer(piece, packed))
            if not np.array_equal(packed[:size].cpu().numpy(), expected):
                raise WrongError("packed bytes are not those of the CPU")
        if of_all:
            return
        back = tuckfold.unpack(expected, codec.text, shape=piece.shape, dtype=name)
        if not np.array_equal(np.asarray(back).view(values.dtype), on_host(y[part])):
            raise WrongError("unpacked values are not those of the CPU")


def on_host(x: torch.Tensor) -> np.ndarray:
    """As numpy has it: bf16 as its bits."""
    x = x.contiguous().cpu()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def quality(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Of all values, in f64, piece by piece."""
    a, b = x.reshape(-1), y.reshape(-1)
    squares = error = most = 0.0
    low, high = (float(v) for v in a.aminmax())
    for start in range(0, a.numel(), PIECE):
        values = a[start : start + PIECE].double()
        squares += float(values.square().sum())
        values -= b[start : start + PIECE].double()
        error += float(values.square().sum())
        most = max(most, float(values.abs().max()))  # a NaN shows in rms_error
    rms_error = math.sqrt(error / a.numel()) if not math.isnan(error) else math.nan
    about = {"rms": math.sqrt(squares / a.numel()), "rms_error": rms_error, "max_error": most}
    psnr = 20 * math.log10((high - low) / rms_error) if rms_error > 0 else math.inf
    return about | {"range": high - low, "psnr_db": psnr}
