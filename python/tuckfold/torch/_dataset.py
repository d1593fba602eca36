"""Samples and batches of a file as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tuckfold
from tuckfold import _dataset
from tuckfold._file import FileArray
from tuckfold.torch._library import DTYPES


def read_tensor(array: FileArray, samples: Any, pin_memory: bool = False) -> torch.Tensor:
    """Samples of an array, read straight into a tensor's memory."""
    shape = (len(samples), *array.shape[1:])
    tensor = torch.empty(shape, dtype=DTYPES[array.stored], pin_memory=pin_memory)
    bits = tensor.view(torch.uint16) if array.stored == "bf16" else tensor  # numpy has no bf16
    array.read(samples, out=bits.numpy())
    return tensor


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

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]  # also negative ones; IndexError ends a loop over it
        tensors = [read_tensor(array, range(index, index + 1)) for array in self._data.arrays]
        return self._data._shaped([tensor[0] for tensor in tensors])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples as a list, read together; torch's ``DataLoader`` asks for them so."""
        places = [range(len(self))[index] for index in indices]
        rows = [read_tensor(array, places) for array in self._data.arrays]
        return [self._data._shaped(values) for values in zip(*rows, strict=True)]

    def __repr__(self) -> str:
        return repr(self._data)


class DataLoader(_dataset.Batches):
    """Batches of tensors from a .tuck file, read ahead by threads: no worker processes are needed.

    Each ``iter()`` is the next epoch, in an order that follows from seed and epoch alone. ``state_dict()``
    and ``load_state_dict()`` save and restore the position in the middle of an epoch. In a process group of
    ``torch.distributed`` each rank reads samples of its own: each sample is in one batch of one rank. Batches
    are on the CPU; the library's threads unpack them.

    Args:
        data: a path, or a :class:`Dataset`.
        batch_size: samples of a batch; the last one may have fewer.
        arrays: as for :class:`Dataset`, if data is a path.
        shuffle: a new order in each epoch, instead of that of the file.
        seed: of the orders.
        drop_last: leave out what does not fill a batch on every rank.
        rank: of this process; that of ``torch.distributed`` unless given, else 0.
        world_size: how many processes share the samples; likewise.
        prefetch: batches to read ahead, each on a thread; 0: none.
        pin_memory: in memory from which copies to a GPU run asynchronously.
        transform: called with each batch, on these threads; what it returns is given out.

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
        super().__init__(
            lambda samples: self.dataset.read(samples, pin_memory=pin_memory),
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
