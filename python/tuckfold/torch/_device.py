"""Batches on a GPU: packed samples are read to pinned memory, moved in a stream of their own, and unpacked
there by kernels, which also crop, mirror, scale and convert images."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
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
_unpack = torch.ops.tuckfold.unpack.default
_ALIGN = 256  # bytes; kernels read packed bytes 16 at a time
_LEAST_BYTES = (
    1024  # of a sample; smaller ones, such as labels, are unpacked by the CPU in less time
)
# That copy packed samples: the others are for threads that queue work, and for the driver's.
_THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
_MOST_PARTS = 4  # codecs of a batch that are expected at first
# The driver takes so many bytes at once from any memory; pinned memory costs more than they do.
_FEW_BYTES = 64 << 10
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
    """Samples on their way: in pinned memory, with windows and places of images before them if there are windows.
    A batch takes a quarter of a millisecond, so that each operator counts."""

    def __init__(
        self,
        array: FileArray,
        numbers: np.ndarray,
        packed: bool,
        pin_memory: bool,
        windows: np.ndarray | None = None,
    ) -> None:
        count = len(numbers)
        self.count, self._pin_memory = count, pin_memory
        self._head = 0 if windows is None else -(-16 * count // _ALIGN) * _ALIGN
        if packed:
            self._read_packed(array, numbers)
        else:
            self._make(array._sample_bytes * count)
            array._read_to(numbers, self._address)
            self.parts = [("raw", 0, count, self._head, self._head + self._bytes)]
        if windows is not None:
            self._put_windows(windows)

    def _read_packed(self, array: FileArray, numbers: np.ndarray) -> None:
        import numpy as np

        room, most = array._packed_sample_bytes * self.count, _MOST_PARTS
        if self._head == 0:
            self._places = np.empty(self.count, np.int32)
        while True:
            self._make(room)
            if self._head == 0:
                places = lib.address_of(self._places) if self.count else 0
            else:
                places = self._address - self._head + 12 * self.count
            parts, found, needed = array._read_packed(
                numbers, self._address, room, places, most, lib.get_num_threads() or _THREADS
            )
            if found <= most and needed <= room:
                break
            room, most = max(room, needed), max(most, found)
        if needed < self._bytes:
            self._memory = self._memory[: self._head + needed]
        self.parts = []
        first = 0
        for part in parts:
            begin = self._head + part.offset
            self.parts.append((part.codec.decode(), first, first + part.samples, begin, begin + part.bytes))  # fmt: skip
            first += part.samples

    def _make(self, room: int) -> None:
        self._bytes = room
        self._memory = torch.empty(self._head + room, dtype=torch.uint8, pin_memory=self._pin_memory)  # fmt: skip
        self._address = self._memory.data_ptr() + self._head

    @property
    def many(self) -> bool:
        """Whether samples are in parts, which are not in the order that was asked for."""
        return len(self.parts) > 1

    def _put_windows(self, windows: np.ndarray) -> None:
        """Top, left and mirrored for each sample, in the order of the parts."""
        import numpy as np

        head = self._memory.numpy()[: 16 * self.count].view(np.int32)
        if self.many:
            windows = windows[head[3 * self.count :]]
        head[: 3 * self.count] = windows.reshape(-1)

    def move(self, device: torch.device) -> torch.Tensor:
        """All of it there, once the current stream has come so far."""
        return self._memory.to(device, non_blocking=True)

    def windows_of(self, moved: torch.Tensor) -> torch.Tensor:
        return moved[: 12 * self.count].view(torch.int32).view(-1, 3)

    def places_of(self, moved: torch.Tensor) -> torch.Tensor:
        if self._head == 0:
            places = torch.from_numpy(self._places)
            places = places.pin_memory() if self._pin_memory else places
            return places.to(moved.device, non_blocking=True)
        return moved[12 * self.count : 16 * self.count].view(torch.int32)


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
        self._thread = threading.local()  # has `inside` where the stream is current for good
        self._events: deque[Any] = deque()  # to be used again
        self._queueing = threading.Lock()
        with self._in_stream():
            self._factors = [
                None if r is None else tuple(torch.tensor(f, dtype=torch.float32, device=device) for f in (r.scale, r.add))
                for r in readers
            ]  # fmt: skip
            self._nothing = torch.empty(0, dtype=torch.int32, device=device)

    def _in_stream(self) -> Any:
        if self._stream is None or hasattr(self._thread, "inside"):
            return contextlib.nullcontext()
        return torch.cuda.stream(self._stream)

    def enter_thread(self) -> None:
        """Makes the stream current for all that this thread will do."""
        if self._stream is not None:
            torch.cuda.set_stream(self._stream)
            self._thread.inside = True

    def _recorded(self) -> Any:
        """An event after what is in the stream."""
        if self._stream is None:
            return None
        try:
            event = self._events.pop()
        except IndexError:
            event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def make(
        self, samples: Any, bits: np.ndarray | None, finish: Callable[[list[torch.Tensor]], Any]
    ) -> tuple[Any, Any]:
        """A batch, which `finish` makes of tensors, and the event after which it can be used."""
        numbers = numbers_of(samples)
        read = [self._read(i, numbers, bits) for i in range(len(self._arrays))]
        with self._in_stream():
            # Threads that queue at once would pass Python's lock to and fro at every operator.
            with self._queueing:
                tensors = [self._queue(i, one) for i, one in enumerate(read)]
            batch = finish(tensors)
            return batch, self._recorded()

    def give(self, made: tuple[Any, Any]) -> Any:
        """The batch, for the stream that is current here."""
        batch, event = made
        if event is None:
            return batch
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        self._events.append(event)  # the stream waits for what it was then
        plain = type(batch) is tuple and all(type(part) is torch.Tensor for part in batch)
        for tensor in batch if plain else tree_leaves(batch):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                tensor.record_stream(current)  # its memory is not used again before that
        return batch

    def _read(
        self, number: int, numbers: np.ndarray, bits: np.ndarray | None
    ) -> torch.Tensor | _Staged:
        """What is to be moved."""
        array, reader, packed = self._arrays[number], self._readers[number], self._packed[number]
        if reader is not None and self._kernels:
            windows = None if reader.whole else reader.windows(len(numbers), bits)
            return _Staged(array, numbers, packed, self._cuda, windows)
        if reader is not None:
            return reader.read(numbers, bits, self._cuda)
        if packed and array._sample_bytes >= _LEAST_BYTES and str(array.codec) != "raw":
            return _Staged(array, numbers, True, self._cuda)
        few = len(numbers) * array._sample_bytes <= _FEW_BYTES
        return read_tensor(array, numbers, self._cuda and not few)

    def _queue(self, number: int, read: torch.Tensor | _Staged) -> torch.Tensor:
        """The batch on the device, once the current stream has come so far."""
        if isinstance(read, torch.Tensor):
            return read.to(self._device, non_blocking=True)
        if self._readers[number] is not None:
            return self._images(number, read)
        return self._values(number, read)

    def _images(self, number: int, staged: _Staged) -> torch.Tensor:
        array, reader = self._arrays[number], self._readers[number]
        count, dtype = staged.count, DTYPES[array.stored]
        moved = staged.move(self._device)
        windows = self._nothing if reader.whole else staged.windows_of(moved)
        scale, add = self._factors[number]
        out = reader.empty(count, device=self._device)
        if not staged.many:
            ((codec, _, _, begin, past),) = staged.parts
            packed = moved if reader.whole else moved[begin:past]
            shape = [count, *array._about["shape"]]
            call(
                _unpack_images, packed, codec, shape, dtype, windows, self._nothing, scale, add, reader.hwc, out
            )  # fmt: skip
            return out
        places = staged.places_of(moved)
        for codec, first, end, begin, past in staged.parts:
            shape = [end - first, *array._about["shape"]]
            call(
                _unpack_images, moved[begin:past], codec, shape, dtype, windows[first:end],
                places[first:end], scale, add, reader.hwc, out
            )  # fmt: skip
        return out

    def _values(self, number: int, staged: _Staged) -> torch.Tensor:
        array = self._arrays[number]
        dtype = DTYPES[array.stored]
        moved = staged.move(self._device)

        def unpacked(part: tuple[str, int, int, int, int]) -> torch.Tensor:
            codec, first, end, begin, past = part
            shape = [end - first, *array._about["shape"]]
            return call(_unpack, moved[begin:past], codec, shape, dtype)

        if not staged.many:
            return unpacked(staged.parts[0])
        places = staged.places_of(moved)
        shape = (staged.count, *array._about["shape"])
        out = torch.empty(shape, dtype=dtype, device=self._device)
        for part in staged.parts:
            out[places[part[1] : part[2]].long()] = unpacked(part)
        return out
