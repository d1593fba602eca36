"""Batches on a GPU: packed samples are read to pinned memory, moved in a stream of their own, and unpacked
there by kernels, which also crop, mirror, scale and convert images."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

import tuckfold
from tuckfold import _library as lib
from tuckfold._file import _AT_ONCE_BYTES, FileArray, numbers_of
from tuckfold._spec import spec_of
from tuckfold.torch._images import Reader
from tuckfold.torch._library import DTYPES, call

if TYPE_CHECKING:
    import numpy as np

_unpack_images = torch.ops.tuckfold.unpack_images.default
_read_images = torch.ops.tuckfold._read_images.default
_read_values = torch.ops.tuckfold._read_values.default
_unpack = torch.ops.tuckfold.unpack.default
_ALIGN = 256  # bytes; kernels read packed bytes 16 at a time
_LEAST_BYTES = (
    1024  # of a sample; smaller ones, such as labels, are unpacked by the CPU in less time
)
_MOST_PARTS = 4  # codecs of a batch that are expected at first
_KERNELS = ("f32", "f16", "bf16", "f64", "u8", "i32", "i64")  # dtypes that codecs take on a GPU


def device_of(device: torch.device | str | int) -> torch.device:
    """The device, with its number if it is a GPU.

    Raises:
        NotImplementedError: there is no such device here.
        ValueError: no device has that name.
    """
    try:
        place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"[DataLoader] device must be one of torch's, such as 'cuda:0', got {device!r}"
        ) from None
    if place.type != "cuda":
        try:
            torch.empty(0, device=place)
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            raise NotImplementedError(
                f"[DataLoader] torch cannot use device={str(place)!r} here; leave device out to read to "
                "the CPU"
            ) from error
        return place
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0 or (place.index or 0) >= count:
        raise NotImplementedError(
            f"[DataLoader] device={str(place)!r}, and torch finds {count} GPUs here; leave device out to "
            "read to the CPU"
        )
    return torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)


def read_tensor(array: FileArray, samples: Any, pin_memory: bool = False) -> torch.Tensor:
    """Samples of an array, read straight into a tensor's memory."""
    if not isinstance(samples, range):
        samples = numbers_of(samples)
    shape = (len(samples), *array._about["shape"])
    tensor = torch.empty(shape, dtype=DTYPES[array.stored], pin_memory=pin_memory)
    if tensor.nbytes <= _AT_ONCE_BYTES:
        array._read_to(samples, tensor.data_ptr())
        return tensor
    bits = tensor.view(torch.uint16) if array.stored == "bf16" else tensor  # numpy has no bf16
    array.read(samples, out=bits.numpy())
    return tensor


class _Staged:
    """Samples on their way: in pinned memory, with windows and places of images before them."""

    def __init__(
        self, array: FileArray, numbers: np.ndarray, packed: bool, pin_memory: bool
    ) -> None:
        count = len(numbers)
        self._count = count
        self._places_at = 12 * count
        self._head = -(-16 * count // _ALIGN) * _ALIGN
        if not packed:
            self._make(array._sample_bytes * count, pin_memory)
            array._read_to(numbers, self._address)
            self.parts = [("raw", 0, count, self._head, self._head + self._bytes)]
            return
        room, most = array._packed_sample_bytes * count, _MOST_PARTS
        while True:
            self._make(room, pin_memory)
            places = self._memory.data_ptr() + self._places_at
            parts, found, needed = array._read_packed(numbers, self._address, room, places, most)
            if found <= most and needed <= room:
                break
            room, most = max(room, needed), max(most, found)
        self._bytes = needed
        self.parts = []
        first = 0
        for part in parts:
            begin = self._head + part.offset
            self.parts.append((part.codec.decode(), first, first + part.samples, begin, begin + part.bytes))  # fmt: skip
            first += part.samples

    def _make(self, room: int, pin_memory: bool) -> None:
        self._bytes = room
        self._memory = torch.empty(self._head + room, dtype=torch.uint8, pin_memory=pin_memory)
        self._address = self._memory.data_ptr() + self._head

    @property
    def many(self) -> bool:
        """Whether samples are in parts, which are not in the order that was asked for."""
        return len(self.parts) > 1

    def put_windows(self, windows: np.ndarray) -> None:
        """Top, left and mirrored for each sample, in the order of the parts."""
        import numpy as np

        head = self._memory.numpy()[: 16 * self._count].view(np.int32)
        if self.many:
            windows = windows[head[3 * self._count :]]
        head[: 3 * self._count] = windows.reshape(-1)

    def move(self, device: torch.device) -> torch.Tensor:
        """All of it there, once the current stream has come so far."""
        return self._memory[: self._head + self._bytes].to(device, non_blocking=True)

    def windows_of(self, moved: torch.Tensor) -> torch.Tensor:
        return moved[: 12 * self._count].view(torch.int32).view(-1, 3)

    def places_of(self, moved: torch.Tensor) -> torch.Tensor:
        return moved[12 * self._count : 16 * self._count].view(torch.int32)


def _has_kernels(array: FileArray) -> bool:
    """Whether a GPU unpacks the array's samples, each alone."""
    there = {codec.name for codec in tuckfold.list_codecs() if codec.cuda}
    specs = [spec_of(text) for text in array._about["codecs"]]
    names = {stage.name for spec in specs for stage in spec.stages}
    return array._about["packed_alone"] and names <= there and (
        array.stored in _KERNELS or names <= {"raw"}
    )  # fmt: skip


class Mover:
    """Makes batches on a device.

    On a GPU work is queued in a stream of the loader's, by the threads that read ahead; the stream that is
    current where a batch is asked for waits for it, not the host. Where there are no kernels for it, the CPU
    makes the batch, which is then moved.
    """

    def __init__(
        self,
        device: torch.device,
        arrays: Sequence[FileArray],
        readers: Sequence[Reader | None],
        kernels: bool | None = None,
    ) -> None:
        self._device, self._arrays, self._readers = device, arrays, readers
        self._cuda = device.type == "cuda"
        self._kernels = (self._cuda and tuckfold.has_cuda()) if kernels is None else kernels
        # Those whose packed bytes are moved; the CPU unpacks others.
        self._packed = [
            self._kernels and (_has_kernels(a) if self._cuda else a._about["packed_alone"])
            for a in arrays
        ]
        self._stream = torch.cuda.Stream(device) if self._cuda else None
        with self._in_stream():
            self._factors = [
                None if r is None else tuple(torch.tensor(f, dtype=torch.float32, device=device) for f in (r.scale, r.add))
                for r in readers
            ]  # fmt: skip
            self._nothing = torch.empty(0, dtype=torch.int32, device=device)

    def _in_stream(self) -> Any:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def make(
        self, samples: Any, bits: np.ndarray | None, finish: Callable[[list[torch.Tensor]], Any]
    ) -> tuple[Any, Any]:
        """A batch, which `finish` makes of tensors, and the event after which it can be used."""
        numbers = numbers_of(samples)
        with self._in_stream():
            batch = finish([self._tensor(i, numbers, bits) for i in range(len(self._arrays))])
            return batch, None if self._stream is None else self._stream.record_event()

    def give(self, made: tuple[Any, Any]) -> Any:
        """The batch, for the stream that is current here."""
        batch, event = made
        if event is None:
            return batch
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for tensor in tree_leaves(batch):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                tensor.record_stream(current)  # its memory is not used again before that
        return batch

    def _tensor(self, number: int, numbers: np.ndarray, bits: np.ndarray | None) -> torch.Tensor:
        array, reader = self._arrays[number], self._readers[number]
        if reader is not None and self._kernels:
            return self._images(number, numbers, bits)
        large = array._sample_bytes >= _LEAST_BYTES and str(array.codec) != "raw"
        if reader is None and large and self._packed[number]:
            return self._values(number, numbers)
        if reader is not None:
            tensor = reader.read(numbers, bits, self._cuda)
            return tensor.to(self._device, non_blocking=True)
        count = len(numbers)
        small = count * array._sample_bytes <= _AT_ONCE_BYTES
        if not self._kernels or not small or array._file._remote is not None:
            return read_tensor(array, numbers, self._cuda).to(self._device, non_blocking=True)
        shape = (count, *array._about["shape"])
        tensor = torch.empty(shape, dtype=DTYPES[array.stored], device=self._device)
        handle = array._handle_for(numbers)  # held during the call
        call(
            _read_values, handle.value.value, array._number, lib.address_of(numbers), count,
            lib.get_num_threads(), tensor
        )  # fmt: skip
        return tensor

    def _images(self, number: int, numbers: np.ndarray, bits: np.ndarray | None) -> torch.Tensor:
        array, reader = self._arrays[number], self._readers[number]
        count, dtype = len(numbers), DTYPES[array.stored]
        if self._packed[number] and array._file._remote is None:
            return self._packed_images(number, numbers, bits)
        staged = _Staged(array, numbers, self._packed[number], self._cuda)
        if not reader.whole:
            staged.put_windows(reader.windows(count, bits))
        moved = staged.move(self._device)
        windows = self._nothing if reader.whole else staged.windows_of(moved)
        places = staged.places_of(moved) if staged.many else self._nothing
        scale, add = self._factors[number]
        out = reader.empty(count, device=self._device)
        for codec, first, end, begin, past in staged.parts:
            shape = [end - first, *array._about["shape"]]
            call(
                _unpack_images, moved[begin:past], codec, shape, dtype, windows[first:end],
                places[first:end], scale, add, reader.hwc, out
            )  # fmt: skip
        return out

    def _packed_images(
        self, number: int, numbers: np.ndarray, bits: np.ndarray | None
    ) -> torch.Tensor:
        """By one operator, which Python's lock is given up for once."""
        array, reader = self._arrays[number], self._readers[number]
        count = len(numbers)
        windows = None if reader.whole else reader.windows(count, bits)
        scale, add = self._factors[number]
        out = reader.empty(count, device=self._device)
        handle = array._handle_for(numbers)  # held during the call
        call(
            _read_images, handle.value.value, array._number, lib.address_of(numbers), count,
            array._about["shape"], DTYPES[array.stored], array._packed_sample_bytes * count,
            0 if windows is None else lib.address_of(windows), scale, add, reader.hwc,
            lib.get_num_threads(), out
        )  # fmt: skip
        return out

    def _values(self, number: int, numbers: np.ndarray) -> torch.Tensor:
        array = self._arrays[number]
        dtype = DTYPES[array.stored]
        staged = _Staged(array, numbers, True, self._cuda)
        moved = staged.move(self._device)

        def unpacked(part: tuple[str, int, int, int, int]) -> torch.Tensor:
            codec, first, end, begin, past = part
            shape = [end - first, *array._about["shape"]]
            return call(_unpack, moved[begin:past], codec, shape, dtype)

        if len(staged.parts) == 1:
            return unpacked(staged.parts[0])
        places = staged.places_of(moved)
        shape = (len(numbers), *array._about["shape"])
        out = torch.empty(shape, dtype=dtype, device=self._device)
        for part in staged.parts:
            out[places[part[1] : part[2]].long()] = unpacked(part)
        return out
