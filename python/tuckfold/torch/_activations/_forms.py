"""The exact forms of a saved tensor. None of them waits for a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._activations._saved import Handle
from tuckfold.torch._memory import flat

_pack = torch.ops.tuckfold.pack.default
_pack_checked = torch.ops.tuckfold.pack_checked.default
_unpack = torch.ops.tuckfold.unpack_into.default


def unpack_into(packed: Tensor, spec: str, out: Tensor) -> None:
    """Into memory that nobody has seen, so that autograd need not hear of it: its part is in Python."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _unpack(packed, spec, out)


class Nothing:
    """For tensors whose values backward never reads, only their sizes and strides."""

    label = "nothing"
    whole = False
    nbytes = 0

    def decode(self, handle: Handle) -> Tensor:
        return handle.empty()


class Bits:
    """One bit a value, which comes back as one of two values.

    The values of a bool mask, of a mask of 0 and one other value, or two that an operator's
    backward takes for the ones that were there.
    """

    def __init__(
        self, bits: Tensor, label: str, low: float = 0, high: float = 1, whole: bool = False
    ) -> None:
        """Args: bits: dense; 1 bit is stored, as the codec `positive` does."""
        self.whole = whole
        source = bits.view(torch.uint8) if bits.dtype == torch.bool else bits
        self.bytes = _pack(flat(source), "positive", 0)
        self.label, self.low, self.high = label, low, high

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes

    def decode(self, handle: Handle) -> Tensor:
        from tuckfold.torch._activations import _gates as gates

        if (made := gates.read(handle, self)) is not None:
            return made
        out = handle.empty()
        values = flat(out)
        unpack_into(
            self.bytes, "positive", values.view(torch.uint8) if out.dtype == torch.bool else values
        )
        if (self.low, self.high) != (0, 1):
            high, low = (
                torch.full((), value, dtype=out.dtype, device=out.device)
                for value in (self.high, self.low)
            )
            out = torch.where(out > 0, high, low)
        return out


class Regions:
    """Whether values are inside or outside of a range, or NaN: 2 bits. Each comes back as one such."""

    label = "2 bits"
    whole = False

    def __init__(self, x: Tensor, low: float, high: float, middle: float) -> None:
        inside = ((x > low) & (x < high)).view(torch.uint8)
        code = inside.add_(x.isnan().view(torch.uint8), alpha=2)
        self.bytes, self.high, self.middle = _pack_small(flat(code), 2), high, middle

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes

    def decode(self, handle: Handle) -> Tensor:
        out = handle.empty().fill_(self.high)
        code = _unpack_small(self.bytes, 2, out.numel()).as_strided(out.shape, out.stride())
        out.masked_fill_(code == 1, self.middle)
        # Some kernels pass the gradient where a value is NaN, others do not.
        return out.masked_fill_(code == 2, float("nan"))


class Narrow:
    """Whole numbers in a smaller integer type that holds all of them."""

    label = "narrow"
    whole = True

    def __init__(self, values: Tensor, dtype: torch.dtype) -> None:
        self.values = values.to(dtype)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def decode(self, handle: Handle) -> Tensor:
        return handle.empty().copy_(self.values)


def narrowest(low: int, high: int) -> torch.dtype:
    """The smallest integer type for low..high."""
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        info = torch.iinfo(dtype)
        if info.min <= low and high <= info.max:
            return dtype
    return torch.int64


class Image:
    """Whole numbers of 0..255, or those over 255, a byte each; see `image`."""

    label = "u8"
    whole = True

    def __init__(self, values: Tensor, back: Callable[[Tensor], Tensor]) -> None:
        self.values, self.back = values, back

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def decode(self, handle: Handle) -> Tensor:
        return self.back(handle.empty().copy_(self.values))


# How an image of floats was made of bytes. On a GPU torch divides by multiplying with 1/255.
_SCALES: tuple[tuple[int, Callable[[Tensor], Tensor]], ...] = (
    (255, lambda x: x.div_(255)),
    (255, lambda x: x.mul_(torch.tensor(1, dtype=x.dtype) / 255)),
    (1, lambda x: x),
)


def image(x: Tensor) -> Image | None:
    """The values as bytes, if that loses no bit. It looks at them, so it is for the CPU."""
    for scale, back in _SCALES:
        as_bytes = (x * scale).round_().clamp_(0, 255).to(torch.uint8)
        if _same_bits(back(as_bytes.to(x.dtype)), x):
            return Image(as_bytes, back)
    return None


def two_values(x: Tensor) -> Bits | None:
    """A mask of 0 and one positive value, as dropout on the CPU multiplies by. Looks at the values."""
    high = x.max()
    if high > 0 and high.isfinite():
        rebuilt = torch.where(x > 0, high, torch.zeros((), dtype=x.dtype))
        if _same_bits(rebuilt, x):
            return Bits(x, "mask", 0, float(high), whole=True)
    return None


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_bits(x: Tensor) -> Tensor:
    """Its bits as integers of the same size, so that NaN equals itself and -0 is not 0."""
    return x.view(_INTEGERS[x.dtype.itemsize])


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(as_bits(a), as_bits(b))


class Codec:
    """By a codec that takes these values; its word on whether it does is not waited for."""

    whole = True

    def __init__(self, x: Tensor, spec: str, label: str) -> None:
        self.bytes, self.spec, self.label = _pack_checked(x, spec, 0)[0], spec, label

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes

    def decode(self, handle: Handle) -> Tensor:
        out = handle.empty()
        unpack_into(self.bytes, self.spec, _planes(out)[0])
        return out


def _planes(x: Tensor) -> tuple[Tensor, str]:
    """Rows that are contiguous: channels_last with the channels as the last axis."""
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.permute(0, 2, 3, 1), "last"
    return x, "first"


def pool_index(
    indices: Tensor,
    width: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> PoolIndex | Codec:
    """The indices of a max pooling as places in windows.

    Args:
        width: of the plane that the indices count in.
    """
    square = all(a == b for a, b in (kernel, stride, padding))
    if square and dilation == (1, 1) and kernel[0] <= 16 and stride[0] <= 64 and width <= 1 << 24:
        planes, channels = _planes(indices)
        spec = f"pool_index(kernel={kernel[0]}, stride={stride[0]}, padding={padding[0]}, width={width}, channels={channels})"
        return Codec(planes, spec, "pool index")
    return PoolIndex(indices, width, kernel, stride, padding, dilation)


class PoolIndex:
    """Any window, by operators of torch: 2 bits for 2 x 2, 4 for 3 x 3, 8 up to 16 x 16."""

    label = "pool index"
    whole = True

    def __init__(
        self,
        indices: Tensor,
        width: int,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
    ) -> None:
        self.width, self.kernel, self.dilation = width, kernel, dilation
        self.stride, self.padding = stride, padding
        index = indices.to(torch.int32)
        rows, columns = self._corner(indices.shape, indices.device)
        down = index.div(width, rounding_mode="floor")
        across = index.sub_(down * width).sub_(columns)
        down.sub_(rows)
        if dilation[0] > 1:
            down = down.div(dilation[0], rounding_mode="floor")
        if dilation[1] > 1:
            across = across.div(dilation[1], rounding_mode="floor")
        place = down.mul_(kernel[1]).add_(across).to(torch.uint8)
        self.bits = _bits_for(kernel)
        self.bytes = _pack_small(flat(place), self.bits)
        self.strides = place.stride()

    def _corner(self, shape: torch.Size, device: torch.device) -> tuple[Tensor, Tensor]:
        """The row and column of each window's first place; the padding makes some negative."""
        down, across = shape[-2], shape[-1]
        rows = torch.arange(down, device=device, dtype=torch.int32)
        columns = torch.arange(across, device=device, dtype=torch.int32)
        rows = rows.mul_(self.stride[0]).sub_(self.padding[0]).unsqueeze(1)
        return rows, columns.mul_(self.stride[1]).sub_(self.padding[1])

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes

    def decode(self, handle: Handle) -> Tensor:
        values = _unpack_small(self.bytes, self.bits, math.prod(handle.shape))
        place = values.as_strided(handle.shape, self.strides).to(torch.int32)
        rows, columns = self._corner(handle.shape, handle.device)
        down = place.div(self.kernel[1], rounding_mode="floor")
        across = place.sub_(down * self.kernel[1])
        down.mul_(self.dilation[0]).add_(rows)
        across.mul_(self.dilation[1]).add_(columns)
        return handle.empty().copy_(down.mul_(self.width).add_(across))


def _bits_for(kernel: tuple[int, int]) -> int:
    places = kernel[0] * kernel[1]
    return next(bits for bits in (1, 2, 4, 8) if places <= 1 << bits)


def _pack_small(values: Tensor, bits: int) -> Tensor:
    """u8 values below 2^bits. Byte i takes value i of each 8/bits-th part, so that reads coalesce."""
    count = 8 // bits
    if count == 1:
        return values
    part = -(-len(values) // count)
    packed = values[:part].clone()
    for i in range(1, count):
        piece = values[i * part : (i + 1) * part]
        packed[: len(piece)] |= piece << (i * bits)
    return packed


def _unpack_small(packed: Tensor, bits: int, length: int) -> Tensor:
    count = 8 // bits
    if count == 1:
        return packed
    mask = (1 << bits) - 1
    parts = [(packed >> (i * bits)) & mask for i in range(count)]
    return torch.cat(parts)[:length]
