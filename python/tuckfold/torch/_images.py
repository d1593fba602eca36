"""Images of a file as a network takes them: cropped, mirrored, scaled and converted while they are read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tuckfold import _library as lib
from tuckfold._file import FileArray, numbers_of

if TYPE_CHECKING:
    import numpy as np

_OUTPUTS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Images:
    """How :class:`DataLoader` makes batches of images: N × C × H × W, in one pass over the pixels.

    A pixel p of channel c becomes ``(p - mean[c]) / std[c]``, computed in float32 as ``p * (1 / std) - mean / std``:
    so pixels that differ from a large mean by little lose digits. Where windows are random, that of a sample
    follows from seed, epoch and the sample's number alone, whatever the batches and ranks are.

    Args:
        mean: a number, or one for each channel, in the units of the array: 0 to 255 for images of bytes.
        std: likewise.
        crop: height and width of the window that is taken, or one number for both; None: all.
        pad: zeros around the image, before the window of ``crop`` is taken.
        random: take windows at random places; else from the middle.
        flip: mirror half of the images, chosen at random.
        dtype: ``torch.float32``, ``torch.float16`` or ``torch.bfloat16``.
        channels_last: whether batches are in ``torch.channels_last``.
        layout: of the samples in the file, ``"CHW"`` or ``"HWC"``. With two axes they are ``"HW"``.

    >>> images = tuckfold.torch.Images(mean=0.5, std=0.25, crop=6, flip=True)
    >>> loader = tuckfold.torch.DataLoader("doc.tuck", 50, arrays="image", images={"image": images})
    >>> next(iter(loader)).shape
    torch.Size([50, 1, 6, 6])
    """

    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    crop: int | tuple[int, int] | None = None
    pad: int = 0
    random: bool = True
    flip: bool = False
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    layout: str = "CHW"

    def __post_init__(self) -> None:
        if self.dtype not in _OUTPUTS:
            raise ValueError(
                f"[images] dtype must be float32, float16 or bfloat16, got {self.dtype}"
            )
        if self.layout not in ("CHW", "HWC"):
            raise ValueError(f"[images] layout must be CHW or HWC, got {self.layout}")
        if self.pad < 0:
            raise ValueError(f"[images] pad must be 0 or more, got {self.pad}")
        if self.pad > 0 and self.crop is None:
            raise ValueError(f"[images] pad={self.pad} needs crop, the window that is taken")


class Reader:
    """Reads batches of one array so."""

    def __init__(self, array: FileArray, images: Images) -> None:
        self._array, self._images = array, images
        shape = array.shape[1:]
        if len(shape) == 2:
            channels, rows, cols = 1, *shape
        elif len(shape) == 3:
            channels, rows, cols = shape if images.layout == "CHW" else (shape[2], *shape[:2])
        else:
            raise ValueError(f"[images] '{array.name}' must have two or three axes, got {shape}")
        crop = images.crop
        sides = (rows, cols) if crop is None else (crop, crop) if isinstance(crop, int) else crop
        # How far a window can move, and where it is in the middle.
        self._spare = tuple(
            have + 2 * images.pad - want for have, want in zip((rows, cols), sides, strict=True)
        )
        if min(sides) < 1 or min(self._spare) < 0:
            raise ValueError(
                f"[images] crop must be 1 … {rows + 2 * images.pad} x {cols + 2 * images.pad} for "
                f"'{array.name}', got {sides}"
            )
        self._shape = (channels, *sides)
        self.scale: list[float]
        self.add: list[float]
        self._options = self._for_c(channels)

    def _for_c(self, channels: int) -> lib.ImageOptions:
        factors = []
        for name, value in (("mean", self._images.mean), ("std", self._images.std)):
            values = list(value) if isinstance(value, Sequence) else [value] * channels
            if len(values) != channels:
                raise ValueError(
                    f"[images] '{self._array.name}' has {channels} channels, got {name} of {len(values)}"
                )
            factors.append([float(v) for v in values])
        means, stds = factors
        if any(std == 0 for std in stds):
            raise ValueError("[images] std must not be 0")
        # A pixel p becomes p * scale + add, each rounded to f32.
        self.scale = scale = [1 / std for std in stds]
        self.add = add = [-mean / std for mean, std in zip(means, stds, strict=True)]
        return lib.ImageOptions(
            struct_bytes=ctypes.sizeof(lib.ImageOptions),
            channels_last=int(self._images.layout == "HWC"),
            channels=channels,
            scale=(ctypes.c_float * channels)(*scale),
            add=(ctypes.c_float * channels)(*add),
        )

    @property
    def draws(self) -> bool:
        """Whether windows need random bits."""
        images = self._images
        return images.flip or (images.random and max(self._spare) > 0)

    @property
    def whole(self) -> bool:
        """Whether every window is all of its image."""
        return not self._images.flip and self._spare == (0, 0) and self._images.pad == 0

    def windows(self, count: int, bits: np.ndarray | None) -> np.ndarray:
        """Top, left and mirrored for each sample; bits: 64 random ones each, or None."""
        import numpy as np

        images = self._images
        windows = np.empty((count, 3), np.int32)
        for axis, spare in enumerate(self._spare):
            if bits is None or not images.random:
                windows[:, axis] = spare // 2
            else:
                some = (bits >> np.uint64(20 * axis)) & np.uint64(0xFFFFF)
                windows[:, axis] = (some * np.uint64(spare + 1)) >> np.uint64(20)
        windows[:, :2] -= images.pad
        windows[:, 2] = 0 if bits is None or not images.flip else bits >> np.uint64(63)
        return windows

    @property
    def hwc(self) -> bool:
        """Whether the channels of a pixel are together in the file."""
        return self._images.layout == "HWC"

    def empty(self, count: int, **options: Any) -> torch.Tensor:
        """A batch to fill; options as for ``torch.empty``."""
        last = self._images.channels_last
        return torch.empty(
            (count, *self._shape),
            dtype=self._images.dtype,
            memory_format=torch.channels_last if last else torch.contiguous_format,
            **options,
        )

    def read(self, samples: Any, bits: np.ndarray | None, pin_memory: bool) -> torch.Tensor:
        numbers = numbers_of(samples)
        images = self._images
        windows = self.windows(len(numbers), bits)
        out = self.empty(len(numbers), pin_memory=pin_memory)
        pointer = ctypes.POINTER(ctypes.c_int64)
        tensor = lib.Tensor(
            out.data_ptr(),
            lib.DTYPES.index(_OUTPUTS[images.dtype]),
            4,
            ctypes.cast(lib.axes(tuple(out.shape)), pointer),
            ctypes.cast(lib.axes(out.stride()), pointer),
        )
        self._array._read_images(numbers, windows, self._options, tensor)
        return out
