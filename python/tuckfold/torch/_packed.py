"""A packed tensor that knows itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tuckfold._spec import CodecSpec, spec_of
from tuckfold.torch import _functions as functions
from tuckfold.torch import _library as ops
from tuckfold.torch._memory import flat, is_dense
from tuckfold.torch._then import Then, rows_of_channel


class Packed:
    """The bytes of a tensor with what unpacking them takes: codec, dtype, shape and strides.

    It comes back with the strides that it had, so that channels_last stays channels_last. It pickles,
    is saved by ``torch.save`` and loaded with ``weights_only=True``, and moves between devices.

    Args:
        bytes: uint8, of one axis.
        spec: the codec that packed them.
        dtype: of the tensor.
        shape: of the tensor.
        strides: of the tensor; row-major unless given.
        order: ``"logical"``: the bytes of :func:`pack`. ``"storage"``: those of the values in the
            order of the tensor's memory, as one row.

    >>> x = torch.rand(4, 16, 8, 8).to(memory_format=torch.channels_last)
    >>> packed = tuckfold.torch.Packed.pack(x, "block_quant(bits=4)", order="storage")
    >>> packed
    Packed(block_quant(bits=4), torch.float32, (4, 16, 8, 8), 2112 bytes, storage)
    >>> packed.unpack().is_contiguous(memory_format=torch.channels_last)
    True
    >>> round(packed.ratio, 1)
    7.8
    """

    __slots__ = ("bytes", "dtype", "order", "shape", "spec", "strides")

    bytes: Tensor
    spec: CodecSpec
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    order: str

    def __init__(
        self,
        bytes: Tensor,
        spec: str | CodecSpec,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        order: str = "logical",
    ) -> None:
        if order not in ("logical", "storage"):
            raise ValueError(f"[Packed] order must be logical or storage, got {order!r}")
        if not isinstance(bytes, Tensor):
            ops.check_tensor("Packed", "bytes", bytes)
        self.bytes, self.spec, self.dtype, self.order = bytes, spec_of(spec), dtype, order
        self.shape = tuple(int(n) for n in shape)
        if strides is None:
            strides = torch.empty(self.shape, device="meta").stride()
        self.strides = tuple(int(n) for n in strides)

    @classmethod
    def pack(
        cls, x: Tensor, spec: str | CodecSpec, *, seed: int = 0, order: str = "logical"
    ) -> Packed:
        """Packs a tensor; gradients end here.

        Args:
            x: on the CPU or a CUDA device.
            spec: the codec, or its text.
            seed: for stochastic rounding; give each tensor its own.
            order: ``"storage"`` packs a dense tensor of any memory format as one row, which suits
                codecs of groups of values: ``block_quant``, ``nonzero_quant``, ``bits``, ``mask``,
                ``bytes_of`` and ``bounded``. Where the tensor has gaps or overlaps the order is logical.
        """
        if not isinstance(x, Tensor) or x.is_nested or x.layout is not torch.strided:
            ops.check_tensor("pack", "x", x)
        x = x.detach()
        dense = is_dense(x)
        if order == "storage" and dense:
            packed = functions.pack(flat(x), spec, seed=seed)
        else:
            packed, order = (
                functions.pack(x, spec, seed=seed),
                "logical" if order == "storage" else order,
            )
        return cls(packed, spec, x.dtype, x.shape, x.stride() if dense else None, order)

    def unpack(self, *, out: Tensor | None = None, then: Then | None = None) -> Tensor:
        """The tensor with its own strides, or out, of any strides, filled with it.

        Args:
            out: a tensor to fill.
            then: a normalization and an activation of what is unpacked, as for :func:`unpack`.
        """
        if out is not None and not isinstance(out, Tensor):
            ops.check_tensor("unpack", "out", out)
        if out is not None and tuple(out.shape) != self.shape:  # copy_ would repeat values
            raise ValueError(f"[unpack] out has shape {tuple(out.shape)}, not {self.shape}")
        if then is not None:
            return self._unpack_then(then, out)
        if self.order == "logical":
            if out is None:
                out = self._empty()
            return functions.unpack(self.bytes, self.spec, self.shape, self.dtype, out=out)
        mine = self._empty()
        functions.unpack(self.bytes, self.spec, dtype=self.dtype, out=flat(mine))
        return mine if out is None else out.copy_(mine)

    def _unpack_then(self, then: Then, out: Tensor | None) -> Tensor:
        axis = then.axis(self.shape)
        if self.order == "logical":
            inner = rows_of_channel(self.shape, axis)
            mine = then.unpack(self.bytes, str(self.spec), self.shape, self.dtype, inner)
            if self._is_row_major():
                return mine if out is None else out.copy_(mine)
            return (self._empty() if out is None else out).copy_(mine)
        # Within a dense storage an axis repeats with its stride.
        size, inner = math.prod(self.shape), self.strides[axis] if self.shape[axis] > 1 else 1
        mine = then.unpack(self.bytes, str(self.spec), (size,), self.dtype, inner)
        mine = mine.as_strided(self.shape, self.strides)
        return mine if out is None else out.copy_(mine)

    def _is_row_major(self) -> bool:
        return self.strides == torch.empty(self.shape, device="meta").stride()

    def _empty(self) -> Tensor:
        return torch.empty_strided(
            self.shape, self.strides, dtype=self.dtype, device=self.bytes.device
        )

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Packed:
        """The same with its bytes on another device."""
        moved = self.bytes.to(device, non_blocking=non_blocking)
        return Packed(moved, self.spec, self.dtype, self.shape, self.strides, self.order)

    @property
    def device(self) -> torch.device:
        """Where the bytes are."""
        return self.bytes.device

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return self.bytes.nbytes

    @property
    def ratio(self) -> float:
        """How many times smaller they are than the tensor."""
        whole = math.prod(self.shape) * self.dtype.itemsize
        return whole / self.nbytes if self.nbytes else 1.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packed):
            return NotImplemented
        mine = (self.spec, self.dtype, self.shape, self.strides, self.order)
        theirs = (other.spec, other.dtype, other.shape, other.strides, other.order)
        return mine == theirs and torch.equal(self.bytes, other.bytes)

    def __hash__(self) -> int:
        return id(self)  # as a tensor's

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (
            self.bytes,
            str(self.spec),
            self.dtype,
            self.shape,
            self.strides,
            self.order,
        )

    def __repr__(self) -> str:
        order = ", storage" if self.order == "storage" else ""
        return f"Packed({self.spec}, {self.dtype}, {self.shape}, {self.nbytes} bytes{order})"


torch.serialization.add_safe_globals([Packed])
