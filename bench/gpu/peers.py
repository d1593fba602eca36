"""Others on the same tensors: torch, and libraries that the environment names by path.

TUCKFOLD_CUSZP, TUCKFOLD_ZFP_CUDA and TUCKFOLD_NVCOMP are the paths of shared libraries: of cuSZp's
kernels called through C functions that allocate nothing (peer_cuszp1_… for 1-D, peer_cuszp2_… for 2-D), of zfp
built with CUDA, and of libnvcomp. Who names none gets no figures against them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable
from ctypes import POINTER, byref, c_double, c_float, c_int, c_size_t, c_uint, c_void_p

import torch

import tuckfold
from bench.gpu.clock import Clock
from bench.gpu.codec import clock_bytes


@functools.cache
def library(variable: str) -> ctypes.CDLL | None:
    path = os.environ.get(variable)
    if not path:
        return None
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        print(f"FAILED {variable}: {error}", flush=True)
        return None


def pointer(x: torch.Tensor) -> c_void_p:
    return c_void_p(x.data_ptr())


# ---- torch


class Matmuls:
    """The paper's form of dct_chop, matmul(LHS, matmul(A, RHS)), into memory made beforehand."""

    def __init__(self, clock: Clock, x: torch.Tensor, keep: int, shape: tuple[int, ...]) -> None:
        n = x.shape[-1]
        form = tuckfold.matmul_form(f"dct_chop(keep={keep})", n, n)
        matrices = (form.lhs, form.rhs, form.back_lhs, form.back_rhs)
        self.lhs, self.rhs, self.back_lhs, self.back_rhs = (
            torch.from_numpy(m).to(clock.device, x.dtype) for m in matrices
        )
        self.kept = self.lhs.shape[0]
        planes = math.prod(shape[:-2])
        self.planes = (planes, n, n)
        self.half = torch.empty(planes, n, self.kept, dtype=x.dtype, device=x.device)
        self.half_back = torch.empty(planes, self.kept, n, dtype=x.dtype, device=x.device)

    def packed(self, count: int) -> torch.Tensor:
        shape = (count, self.planes[0], self.kept, self.kept)
        return torch.empty(shape, dtype=self.half.dtype, device=self.half.device)

    def packer(self, x: torch.Tensor, out: torch.Tensor) -> Callable[[], object]:
        x = x.view(self.planes)

        def call() -> None:
            torch.matmul(self.lhs, torch.matmul(x, self.rhs, out=self.half), out=out)

        return call

    def unpacker(self, packed: torch.Tensor, out: torch.Tensor) -> Callable[[], object]:
        out = out.view(self.planes)

        def call() -> None:
            half = torch.matmul(packed, self.back_rhs, out=self.half_back)
            torch.matmul(self.back_lhs, half, out=out)

        return call


def group_quantizer(bits: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """As ActNN packs activations: groups of 256, a minimum and a scale each, codes packed to bytes."""
    levels, per_byte = (1 << bits) - 1, 8 // bits

    def pack(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        groups = x.view(-1, 256)
        low = groups.amin(1, keepdim=True)
        scale = (groups.amax(1, keepdim=True) - low).clamp_min(1e-8) / levels
        noise = torch.rand_like(groups) - 0.5
        codes = ((groups - low) / scale + noise).round().clamp(0, levels).to(torch.uint8)
        if bits == 8:
            return codes, scale.bfloat16(), low.bfloat16()
        codes = codes.view(-1, 256 // per_byte, per_byte)
        out = codes[..., 0]
        for place in range(1, per_byte):
            out = out | (codes[..., place] << (place * bits))
        return out, scale.bfloat16(), low.bfloat16()

    return pack


# ---- libraries


class CuSZp:
    """cuSZp's kernels with buffers made beforehand, the zeroing of their offsets included."""

    MODES = ("fixed", "plain", "outlier")

    def __init__(self, clock: Clock, x: torch.Tensor, bound: float) -> None:
        self.library = library("TUCKFOLD_CUSZP")
        self.clock, self.x, self.bound = clock, x, c_float(bound)
        ny, nx = x.shape[-2:]
        self.sides = tuple(map(c_size_t, (nx, ny, x.numel() // (nx * ny))))
        for dims in (1, 2):
            for name in ("work", "size"):
                self._function(dims, name).restype = c_size_t
        self.work = clock_bytes(clock, max(self._function(d, "work")(*self.sides) for d in (1, 2)))
        self.out = clock_bytes(clock, 2 * x.numel() * 4)

    def _function(self, dims: int, name: str) -> Callable:
        return getattr(self.library, f"peer_cuszp{dims}_{name}")

    def packer(self, dims: int, mode: int) -> Callable[[], None]:
        return lambda: self._run(dims, "compress", mode, self.x, self.out)

    def unpacker(self, dims: int, mode: int, y: torch.Tensor, zero: bool) -> Callable[[], None]:
        """It does not write blocks without bits, so a fair call zeroes the output first."""

        def call() -> None:
            if zero:
                y.zero_()
            self._run(dims, "decompress", mode, y, self.out)

        return call

    def packed_bytes(self, dims: int, mode: int) -> int:
        self.packer(dims, mode)()
        stream = c_void_p(self.clock.stream())
        return self._function(dims, "size")(pointer(self.work), *self.sides, stream)

    def _run(self, dims: int, way: str, mode: int, a: torch.Tensor, b: torch.Tensor) -> None:
        stream = c_void_p(self.clock.stream())
        buffers = (pointer(a), pointer(b), pointer(self.work))
        status = self._function(dims, way)(mode, *buffers, *self.sides, self.bound, stream)
        if status != 0 and not self.clock.dry:
            raise RuntimeError(f"cuSZp: CUDA error {status}")


class Zfp:
    """zfp of fixed rate on planes of two dimensions; it uses the default stream and waits."""

    FLOAT = 3
    SERIAL, CUDA = 0, 2

    def __init__(self, clock: Clock, x: torch.Tensor, rate: int) -> None:
        z = self.library = library("TUCKFOLD_ZFP_CUDA")
        for name in ("zfp_stream_open", "zfp_field_2d", "stream_open"):
            getattr(z, name).restype = c_void_p
        for name in ("zfp_compress", "zfp_decompress"):
            getattr(z, name).restype = c_size_t
        z.zfp_stream_set_rate.restype = c_double
        self.clock, self.x = clock, x
        self.bytes = x.numel() * rate // 8
        self.out = clock_bytes(clock, self.bytes + 4096).zero_()
        self.stream = c_void_p(z.zfp_stream_open(None))
        z.zfp_stream_set_rate(self.stream, c_double(rate), c_int(self.FLOAT), c_uint(2), c_int(0))
        z.zfp_stream_set_execution(self.stream, c_int(self.SERIAL if clock.dry else self.CUDA))
        bits = c_void_p(z.stream_open(pointer(self.out), c_size_t(self.out.numel())))
        z.zfp_stream_set_bit_stream(self.stream, bits)

    def _call(self, function: Callable, x: torch.Tensor) -> Callable[[], None]:
        nx = x.shape[-1]
        sides = (c_size_t(nx), c_size_t(x.numel() // nx))
        field = c_void_p(self.library.zfp_field_2d(pointer(x), c_int(self.FLOAT), *sides))

        def call(keep: torch.Tensor = x) -> None:
            self.library.zfp_stream_rewind(self.stream)
            if function(self.stream, field) == 0:
                raise RuntimeError("zfp failed")

        return call

    def packer(self) -> Callable[[], None]:
        return self._call(self.library.zfp_compress, self.x)

    def unpacker(self, y: torch.Tensor) -> Callable[[], None]:
        return self._call(self.library.zfp_decompress, y)


class Bitcomp:
    """nvCOMP's bitcomp with a bound on the error, by its plans. It halves the bound where that is no
    power of two, so it keeps more than was asked."""

    ALGORITHMS = ("default", "sparse")
    FP32, LOSSY_SIGNED = 9, 1

    def __init__(self, clock: Clock, x: torch.Tensor, bound: float, algorithm: int) -> None:
        b = self.library = library("TUCKFOLD_NVCOMP")
        b.bitcompMaxBuflen.restype = c_size_t
        self.clock, self.x, self.delta = clock, x, c_float(2 * bound)
        self.plan = c_void_p()
        size = c_size_t(x.numel() * 4)
        kind = (c_int(self.FP32), c_int(self.LOSSY_SIGNED), c_int(algorithm))
        self._check(b.bitcompCreatePlan(byref(self.plan), size, *kind))
        self.out = clock_bytes(clock, b.bitcompMaxBuflen(size))
        if clock.dry:
            self.compress, self.expand = b.bitcompHostCompressLossy_fp32, b.bitcompHostUncompress
        else:
            self.compress, self.expand = b.bitcompCompressLossy_fp32, b.bitcompUncompress
            self._check(b.bitcompSetStream(self.plan, c_void_p(clock.stream())))

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"bitcomp: status {status}")

    def packer(self) -> Callable[[], None]:
        arguments = (self.plan, pointer(self.x), pointer(self.out), self.delta)
        return lambda: self._check(self.compress(*arguments))

    def unpacker(self, y: torch.Tensor) -> Callable[[], None]:
        arguments = (self.plan, pointer(self.out), pointer(y))
        return lambda: self._check(self.expand(*arguments))

    def packed_bytes(self) -> int:
        self.packer()()
        self.clock.wait()
        size = c_size_t()
        function = self.library.bitcompGetCompressedSize
        function.argtypes = [c_void_p, POINTER(c_size_t)]
        self._check(function(self.out.data_ptr(), byref(size)))
        return size.value

    def close(self) -> None:
        self.library.bitcompDestroyPlan(self.plan)
