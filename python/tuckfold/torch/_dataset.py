"""Samples and batches of a file as tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import tuckfold
from tuckfold import _dataset
from tuckfold.torch._device import Mover, device_of, read_tensor
from tuckfold.torch._images import Images, Reader

if TYPE_CHECKING:
    import numpy as np


class Dataset(torch.utils.data.Dataset[Any]):
    """The samples of a .tuck file as tensors: a map-style dataset for torch's own ``DataLoader``, its
    samplers, collate functions and workers, forked or spawned. It reads the samples of a batch together.

    Args: as for :class:`tuckfold.Dataset`.

    >>> data = tuckfold.torch.Dataset("doc.tuck", ("image", "label"))
    >>> loader = torch.utils.data.DataLoader(data, batch_size=50)
    >>> [images.shape for images, labels in loader]
    [torch.Size([50, 8, 8]), torch.Size([50, 8, 8])]
    """

    def __init__(
        self, path: Any, arrays: str | Sequence[str] | None = None, *, strict: bool = False
    ) -> None:
        self._data = tuckfold.Dataset(path, arrays, strict=strict)

    @property
    def file(self) -> tuckfold.File:
        """The file that is read."""
        return self._data.file

    def read(self, samples: Any, *, pin_memory: bool = False) -> Any:
        """A batch: samples in any order, as :meth:`tuckfold.FileArray.read` takes them."""
        tensors = [read_tensor(array, samples, pin_memory) for array in self._data.arrays]
        return self._data._shaped(tensors)

    def __len__(self) -> int:
        return len(self._data)

    def _place(self, index: int) -> int:
        """Also of negative ones. IndexError ends a loop over the samples."""
        try:
            return range(len(self))[index]
        except IndexError:
            raise IndexError(
                f"[dataset] there are {len(self)} samples, got number {index}"
            ) from None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read(range(len(self))[index])
        index = self._place(index)
        tensors = [read_tensor(array, range(index, index + 1)) for array in self._data.arrays]
        return self._data._shaped([tensor[0] for tensor in tensors])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples as a list, read together; torch's ``DataLoader`` asks for them so."""
        places = [self._place(index) for index in indices]
        rows = [read_tensor(array, places) for array in self._data.arrays]
        return [self._data._shaped(values) for values in zip(*rows, strict=True)]

    def __repr__(self) -> str:
        return repr(self._data)


class DataLoader(_dataset.Batches):
    """Batches of tensors from a .tuck file, read ahead by threads: no worker processes are needed.

    Each ``iter()`` is the next epoch, in an order that follows from seed and epoch alone. ``state_dict()``
    and ``load_state_dict()`` save and restore the position in the middle of an epoch. In a process group of
    ``torch.distributed`` each rank reads samples of its own: each sample is in one batch of one rank. Batches
    are on the CPU, where the library's threads unpack them, unless a device is given. To a GPU packed bytes
    are moved, and unpacked there: the values are those of the CPU.

    Args:
        data: a path, or a :class:`Dataset`.
        batch_size: samples of a batch; the last one may have fewer.
        arrays: as for :class:`Dataset`, if data is a path.
        shuffle: a new order in each epoch, instead of that of the file.
        seed: of the orders; 0 or more.
        drop_last: leave out what does not fill a batch on every rank.
        rank: of this process; that of ``torch.distributed`` unless given, else 0.
        world_size: how many processes share the samples; likewise.
        prefetch: batches to read ahead, each on a thread; 0: none.
        pin_memory: in memory from which copies to a GPU run asynchronously.
        device: where batches are, such as ``"cuda"``; the CPU unless given. They are ready for work in
            the stream that is current where they are asked for.
        images: for the names of arrays how to crop, mirror, scale and convert them: :class:`Images`.
        transform: called with each batch, on these threads; what it returns is given out. On a GPU it
            runs in a stream of the loader's.

    >>> loader = tuckfold.torch.DataLoader("doc.tuck", 32, arrays=("image", "label"), shuffle=True)
    >>> for images, labels in loader:
    ...     print(images.shape, labels.dtype)
    torch.Size([32, 8, 8]) torch.int64
    torch.Size([32, 8, 8]) torch.int64
    torch.Size([32, 8, 8]) torch.int64
    torch.Size([4, 8, 8]) torch.int64
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        *,
        arrays: str | Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
        device: torch.device | str | int | None = None,
        images: Mapping[str, Images] | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if isinstance(data, Dataset) and arrays is not None:
            raise ValueError("[DataLoader] arrays are those of the dataset; leave them out")
        if (rank is None) != (world_size is None):
            raise ValueError("[DataLoader] give both rank and world_size, or neither")
        self.dataset: Dataset = data if isinstance(data, Dataset) else Dataset(data, arrays)
        if rank is None or world_size is None:
            group = torch.distributed.is_available() and torch.distributed.is_initialized()
            rank = torch.distributed.get_rank() if group else 0
            world_size = torch.distributed.get_world_size() if group else 1
        if pin_memory and not torch.cuda.is_available():
            warnings.warn(
                "[DataLoader] pin_memory=True, and torch finds no GPU; batches are not pinned",
                stacklevel=2,
            )
        self._pin_memory = pin_memory and torch.cuda.is_available()
        self._readers = self._readers_of(images or {})
        self._bits: tuple[int, Any] = (-1, None)  # of an epoch
        self._mover = None
        if device is not None and (place := device_of(device)).type != "cpu":
            self._mover = Mover(place, self.dataset._data.arrays, self._readers)
        super().__init__(
            self.dataset.read,
            len(self.dataset),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            prefetch=prefetch,
            transform=transform,
        )

    def _readers_of(self, images: Mapping[str, Images]) -> list[Reader | None]:
        arrays = self.dataset._data.arrays
        for name in images:
            if name not in [array.name for array in arrays]:
                names = ", ".join(array.name for array in arrays)
                raise ValueError(f"[DataLoader] images names '{name}', and the arrays are {names}")
        return [
            Reader(array, images[array.name]) if array.name in images else None for array in arrays
        ]

    def _bits_of(self, samples: np.ndarray, epoch: int) -> np.ndarray | None:
        """64 random bits for each sample, if windows need them."""
        if any(reader is not None and reader.draws for reader in self._readers):
            known, all_bits = self._bits
            if known != epoch:
                all_bits = _dataset.bits_of(self._samples, self._identity["seed"], epoch, stream=1)
                self._bits = (epoch, all_bits)
            return all_bits[samples]
        return None

    def _make(self, samples: np.ndarray, epoch: int) -> Any:
        bits = self._bits_of(samples, epoch)
        if self._mover is not None:
            return self._mover.make(samples, bits, self._finished)
        return self._finished([
            read_tensor(array, samples, self._pin_memory)
            if reader is None
            else reader.read(samples, bits, self._pin_memory)
            for array, reader in zip(self.dataset._data.arrays, self._readers, strict=True)
        ])  # fmt: skip

    def _finished(self, tensors: Sequence[torch.Tensor]) -> Any:
        return self._transformed(self.dataset._data._shaped(tensors))

    def _give(self, made: Any) -> Any:
        return made if self._mover is None else self._mover.give(made)
