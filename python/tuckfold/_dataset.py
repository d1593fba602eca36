"""Samples and batches of a file, for training."""

from __future__ import annotations

import itertools
import operator
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tuckfold._file import File, FileArray, numbers_of
from tuckfold._file import open as open_file
from tuckfold._library import address_of

if TYPE_CHECKING:
    import numpy as np


class Dataset:
    """The samples of a .tuck file, or of a manifest, as numpy arrays.

    A sample is a dict of all arrays; the array itself, if ``arrays`` is one name; or a tuple in the order of
    several names. Indexed by a slice or several numbers it gives a batch: the same with a leading axis. It
    pickles, and its samples are read in the children of forks and in spawned processes alike.

    Args:
        path: of the file, or a :class:`File`.
        arrays: a name, several, or None for all.
        strict: refuse a file of which samples may be missing.

    >>> data = tuckfold.Dataset("doc.tuck", ("image", "label"))
    >>> image, label = data[42]
    >>> len(data), image.shape, int(label)
    (100, (8, 8), 2)
    >>> data[::10][0].shape
    (10, 8, 8)
    """

    def __init__(
        self, path: Any, arrays: str | Sequence[str] | None = None, *, strict: bool = False
    ) -> None:
        self._file = path if isinstance(path, File) else open_file(path, strict=strict)
        self._kind = "dict" if arrays is None else "one" if isinstance(arrays, str) else "tuple"
        names = (
            [arrays] if isinstance(arrays, str) else list(self._file if arrays is None else arrays)
        )
        if not names:
            raise ValueError("[dataset] arrays must name at least one")
        self._arrays = [self._file[name] for name in names]

    @property
    def file(self) -> File:
        """The file that is read."""
        return self._file

    @property
    def arrays(self) -> tuple[FileArray, ...]:
        """Those that a sample has, in order."""
        return tuple(self._arrays)

    def _shaped(self, values: Sequence[Any]) -> Any:
        """Values of each array as a sample has them."""
        if self._kind == "one":
            return values[0]
        if self._kind == "tuple":
            return tuple(values)
        return {array.name: value for array, value in zip(self._arrays, values, strict=True)}

    def read(self, samples: Any) -> Any:
        """A batch: samples in any order, as :meth:`FileArray.read` takes them."""
        if samples is None or isinstance(samples, (slice, range)):
            return self._shaped([array.read(samples) for array in self._arrays])
        numbers = numbers_of(samples)
        address = address_of(numbers)
        return self._shaped([array._read_batch(numbers, address) for array in self._arrays])

    def __len__(self) -> int:
        return self._file.samples

    def __getitem__(self, index: Any) -> Any:
        return self._shaped([array[index] for array in self._arrays])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples as a list, read together."""
        rows = [array[list(indices)] for array in self._arrays]
        return [self._shaped(values) for values in zip(*rows, strict=True)]

    def __iter__(self) -> Iterator[Any]:
        return (self._shaped(values) for values in zip(*self._arrays, strict=True))

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
        transform: Callable[[Any], Any] | None = None,
    ) -> Batches:
        """Batches for one epoch after the other; arguments as for :class:`Batches`.

        >>> data = tuckfold.Dataset("doc.tuck", ("image", "label"))
        >>> for images, labels in data.batches(32, shuffle=True, seed=1):
        ...     print(images.shape, labels[:3])
        (32, 8, 8) [3 1 5]
        (32, 8, 8) [9 2 8]
        (32, 8, 8) [6 0 0]
        (4, 8, 8) [4 9 9]
        """
        return Batches(
            self.read,
            len(self),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            prefetch=prefetch,
            transform=transform,
        )

    def __repr__(self) -> str:
        names = ", ".join(array.name for array in self._arrays)
        return f"<dataset of {self._file.path}: {len(self)} samples of {names}>"


def bits_of(samples: int, seed: int, epoch: int, stream: int = 0) -> np.ndarray:
    """64 random bits for each sample, the same with every version of numpy."""
    import numpy as np

    key = [seed, epoch, stream] if stream else [seed, epoch]
    return np.random.PCG64(key).random_raw(samples)


def order_of(samples: int, shuffle: bool, seed: int, epoch: int) -> np.ndarray:
    """The samples of an epoch in order. A shuffled one follows from seed and epoch alone, with every
    version of numpy: the stream of its bit generators does not change, that of permutations may."""
    import numpy as np

    if not shuffle:
        return np.arange(samples)
    return np.argsort(bits_of(samples, seed, epoch), kind="stable")


def ranges_of(samples: int, batch_size: int, world_size: int, rank: int, drop_last: bool) -> list[tuple[int, int]]:  # fmt: skip
    """Where the batches of a rank begin and end among its samples. Ranks have equally many, so that none
    waits for others; a last batch may be one smaller for that."""
    if drop_last:
        return [(i * batch_size, (i + 1) * batch_size) for i in range(samples // (batch_size * world_size))]  # fmt: skip
    mine, most = len(range(rank, samples, world_size)), -(-samples // world_size)
    count = -(-most // batch_size)
    ends = [min(mine, (i + 1) * batch_size) for i in range(count)]
    if count > 1 and mine == (count - 1) * batch_size and batch_size > 1:
        ends[-2] -= 1  # one sample for a last batch
    return [(a, b) for a, b in itertools.pairwise([0, *ends]) if b > a]


class Batches:
    """Batches of samples, read ahead by threads, for one epoch after the other.

    Each ``iter()`` is the next epoch. Its order follows from seed and epoch alone. :meth:`state_dict` holds
    the position, counted in batches that were given out, and :meth:`load_state_dict` goes on there. With
    several ranks each sample is in one batch of one rank, and ranks have equally many batches, unless
    there are fewer samples than that takes. An iterator is for one thread.

    Args:
        read: makes a batch of an array of sample numbers.
        samples: how many there are.
        batch_size: samples of a batch; the last one may have fewer.
        shuffle: a new order in each epoch, instead of that of the file.
        seed: of the orders; 0 or more.
        drop_last: leave out what does not fill a batch on every rank.
        rank: of this process.
        world_size: how many processes share the samples.
        prefetch: batches to read ahead, each on a thread; 0: none.
        transform: called with each batch, on these threads; what it returns is given out.
    """

    def __init__(
        self,
        read: Callable[[Any], Any],
        samples: int,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("world_size", world_size, 1), ("prefetch", prefetch, 0), ("seed", seed, 0)):  # fmt: skip
            if operator.index(value) < least:
                raise ValueError(f"[batches] {name} must be {least} or more, got {value}")
        if not 0 <= operator.index(rank) < world_size:
            raise ValueError(f"[batches] rank must be 0..{world_size - 1}, got {rank}")
        self._read, self._transform = read, transform
        self._samples, self._rank, self._prefetch = samples, rank, prefetch
        self._identity = {
            "samples": samples,
            "batch_size": batch_size,
            "shuffle": bool(shuffle),
            "seed": seed,
            "drop_last": bool(drop_last),
            "world_size": world_size,
        }
        self._ranges = ranges_of(samples, batch_size, world_size, rank, drop_last)
        self._next = self._position = (0, 0)  # an epoch, and a batch of it
        self._turn = 0  # of the latest iter(), whose batches are counted

    @property
    def epoch(self) -> int:
        """The epoch that the next ``iter()`` begins, or goes on with."""
        return self._next[0]

    def set_epoch(self, epoch: int) -> None:
        """Lets the next ``iter()`` begin this epoch."""
        if operator.index(epoch) < 0:
            raise ValueError(f"[batches] epoch must be 0 or more, got {epoch}")
        self._next = self._position = (epoch, 0)
        self._turn += 1

    def state_dict(self) -> dict[str, Any]:
        """The position, after the batches that were given out: numbers alone."""
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch, **self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Lets the next ``iter()`` go on where :meth:`state_dict` was called.

        Raises:
            ValueError: the state is that of other samples or options, and names which.
        """
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise ValueError(
                    f"[batches] the state has {name}={state.get(name)}, and these batches {value}"
                )
        epoch, batch = operator.index(state["epoch"]), operator.index(state["batch"])
        if epoch < 0 or not 0 <= batch <= len(self._ranges):
            raise ValueError(
                f"[batches] the state has epoch={epoch} and batch={batch}, and an epoch here has batches "
                f"0..{len(self._ranges)}"
            )
        self._next = self._position = (epoch, batch)
        self._turn += 1

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[Any]:
        self._position = self._next
        self._next = (self._next[0] + 1, 0)
        self._turn += 1
        return _Epoch(self, *self._position)  # which ends its threads when it is dropped

    def _make(self, samples: np.ndarray, epoch: int) -> Any:
        """A batch, on a thread that reads ahead."""
        return self._transformed(self._read(samples))

    def _transformed(self, batch: Any) -> Any:
        try:
            return batch if self._transform is None else self._transform(batch)
        except StopIteration as error:  # which would end the epoch
            raise RuntimeError("[batches] transform raised StopIteration") from error

    def _give(self, made: Any) -> Any:
        """What was made, on the thread that asked for it."""
        return made


class _Epoch(Iterator[Any]):
    """One pass over the batches of an epoch."""

    def __init__(self, batches: Batches, epoch: int, first: int) -> None:
        self._batches, self._epoch, self._turn = batches, epoch, batches._turn
        about = batches._identity
        order = order_of(batches._samples, about["shuffle"], about["seed"], epoch)
        self._mine = order[batches._rank :: about["world_size"]]
        self._given = self._asked = first
        self._waiting: deque[Future[Any]] = deque()
        self._threads: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def _samples(self, number: int) -> np.ndarray:
        begin, end = self._batches._ranges[number]
        return self._mine[begin:end]

    def __next__(self) -> Any:
        batches = self._batches
        if self._process != os.getpid():
            raise RuntimeError(
                "[batches] threads do not survive a fork; call iter() in this process"
            )
        count, ahead = len(batches._ranges), batches._prefetch
        if self._given >= count:
            self.close()
            raise StopIteration
        try:
            if ahead == 0:
                made = batches._make(self._samples(self._given), self._epoch)
            else:
                self._threads = self._threads or ThreadPoolExecutor(ahead, "tuckfold-batches")
                while self._asked < min(count, self._given + ahead + 1):
                    samples = self._samples(self._asked)
                    self._waiting.append(self._threads.submit(batches._make, samples, self._epoch))
                    self._asked += 1
                made = self._waiting.popleft().result()
            batch = batches._give(made)
        except BaseException:
            self._given = count  # what follows would be out of order
            self.close()
            raise
        self._given += 1
        if batches._turn == self._turn:
            done = self._given == count
            batches._position = (self._epoch + 1, 0) if done else (self._epoch, self._given)
        return batch

    def close(self) -> None:
        """Ends the threads."""
        threads, self._threads = self._threads, None
        self._waiting.clear()
        if threads is not None and self._process == os.getpid():
            threads.shutdown(wait=False, cancel_futures=True)

    def __del__(self) -> None:
        if getattr(self, "_threads", None) is not None:
            self.close()
