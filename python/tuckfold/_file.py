"""Reading .tuck files."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import math
import operator
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tuckfold import _library as lib
from tuckfold._errors import DataWarning
from tuckfold._progress import Progress, Reporter, pieces
from tuckfold._remote import Remote, is_url
from tuckfold._spec import CodecSpec, spec_of

if TYPE_CHECKING:
    import numpy as np

_BLOCK_BYTES = 4 << 20  # that iteration reads ahead
_AT_ONCE_BYTES = 4 << 20  # that are read without a look at signals
_PART_BYTES = 64 << 20  # that are unpacked at a time if an index takes a part of each sample


class _Handle:
    """A reader of the C API. Calls hold this object, so that close() does not end one in another
    thread."""

    def __init__(self, path: str, strict: bool) -> None:
        handle = ctypes.c_void_p()
        lib.call("reader_open", lib.path_of(path), int(strict), ctypes.byref(handle))
        self.value = handle

    def __del__(self, close: Any = lib.reader_close) -> None:  # the module may be gone by then
        if getattr(self, "value", None):
            close(self.value)


def size_text(size: float) -> str:
    """As the command line prints it: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@functools.cache
def _of_numpy() -> Any:
    """What needs numpy, imported when it is first used; later this is faster than an import."""
    from tuckfold import _arrays

    return _arrays


def numbers_of(samples: Any) -> np.ndarray:
    """Numbers of samples as one row. A mask is refused: its booleans would be the numbers 0 and 1."""
    import numpy as np

    numbers = np.asarray(samples)
    if numbers.ndim == 1 and numbers.dtype == np.int64 and numbers.flags.c_contiguous:
        return numbers
    if numbers.ndim != 1:
        raise ValueError(f"[read] samples must have one axis, got {numbers.ndim}")
    if numbers.size and numbers.dtype.kind not in "iu":
        raise TypeError(
            f"[read] samples must be whole numbers, got {numbers.dtype}; "
            "numpy.flatnonzero makes numbers of a mask"
        )
    return np.ascontiguousarray(numbers, np.int64)


class FileArray:
    """One array of a :class:`File`: samples are read, and unpacked, when they are asked for.

    It is indexed as a numpy array is, by numbers, slices, arrays of numbers and masks, and gives numpy
    arrays. ``numpy.asarray`` reads all of it, and iteration sample after sample. Only the chunks that
    have the samples asked for are read.

    >>> with tuckfold.open("doc.tuck") as f:
    ...     images = f["image"]
    ...     images.shape, images[-2:].shape, images[[5, 0, 5], 0].shape
    ((100, 8, 8), (2, 8, 8), (3, 8))
    """

    def __init__(self, file: File, number: int, about: dict[str, Any]) -> None:
        self._file, self._number, self._about = file, number, about
        self._dtype: np.dtype | None = None
        self._dtype_number = lib.DTYPES.index(about["dtype"])
        self._sample_bytes = math.prod(about["shape"]) * lib.DTYPE_BYTES[about["dtype"]]
        self._shapes = file._shapes[number]

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self._about["name"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples, then the axes of one sample."""
        return (self._file.samples, *self._about["shape"])

    @property
    def dtype(self) -> np.dtype:
        """The dtype of what reading gives. bf16 is ml_dtypes' where that is installed, else uint16."""
        if self._dtype is None:
            from tuckfold import _arrays

            self._dtype = _arrays.empty((0,), self._about["dtype"]).dtype
        return self._dtype

    @property
    def stored(self) -> str:
        """The dtype in the file: ``"f32"``, ``"bf16"`` …"""
        return self._about["dtype"]

    @property
    def ndim(self) -> int:
        """How many axes there are, that of the samples included."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many values there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all samples, unpacked."""
        return self.size * lib.DTYPE_BYTES[self.stored]

    @property
    def packed_bytes(self) -> int:
        """Bytes that they take in the file."""
        return self._about["packed_bytes"]

    @property
    def ratio(self) -> float:
        """How many times smaller that is."""
        return self.nbytes / self.packed_bytes if self.packed_bytes else 1.0

    @property
    def codec(self) -> CodecSpec:
        """The codec that packs it."""
        return spec_of(self._about["codec"])

    @property
    def samples_per_chunk(self) -> int:
        """Samples that are packed together."""
        return self._about["samples_per_chunk"]

    @property
    def fill(self) -> tuple[float, ...]:
        """Values that stand for missing ones, and come back exactly."""
        return tuple(float(value) for value in self._about["fill"])

    def read(
        self, samples: Any = None, *, out: Any = None, progress: Progress = None
    ) -> np.ndarray:
        """Reads samples.

        Args:
            samples: a range, a slice or numbers in any order, not negative; all unless given.
            out: an array to fill, of any strides, instead of a new one.
            progress: a function of the bytes that are done and all of them, or True for a bar of tqdm.

        Raises:
            CorruptDataError: a chunk is damaged; the message names file, array and samples.

        >>> out = np.empty((2, 8, 8), np.float32)
        >>> with tuckfold.open("doc.tuck") as f:
        ...     f["image"].read([7, 3], out=out) is out
        True
        """
        if samples is None or isinstance(samples, slice):
            samples = range(*(samples or slice(None)).indices(self.shape[0]))
        if not isinstance(samples, range):
            samples = numbers_of(samples)
        _arrays = _of_numpy()
        count = len(samples)
        shape = (count, *self._about["shape"])
        each = self._sample_bytes
        if out is None:
            result = _arrays.empty(shape, self._about["dtype"])
            if progress is None and count * each <= _AT_ONCE_BYTES:
                self._read_to(samples, lib.address_of(result))
                return result
        else:
            result = out
        view = _arrays.array_of("read", result)
        if view.shape != shape:
            raise ValueError(f"[read] {shape} must fit out, which has shape {view.shape}")
        name = self.stored if view.dtype == "u2" and self.stored == "bf16" else None
        if _arrays.stored_dtype("read", view, name) != self.stored:
            raise ValueError(f"[read] '{self.name}' is of {self.stored}, and out of {view.dtype}")
        if not view.flags.writeable:
            raise ValueError("[read] out must be writeable")
        with Reporter("read", progress, each * count) as report:
            for begin, end in pieces(count, each):
                self._read_piece(samples[begin:end], view[begin:end])
                report.add((end - begin) * each)
        return result

    def _read_batch(self, numbers: np.ndarray, address: int) -> np.ndarray:
        """The same of what numbers_of gave, which begins at the address, for batches one after the other: as
        little as can be done for each."""
        count, about = len(numbers), self._about
        if count * self._sample_bytes > _AT_ONCE_BYTES or self._file._remote is not None:
            return self.read(numbers)
        result = _of_numpy().empty((count, *about["shape"]), about["dtype"])
        tensor = lib.Tensor(
            lib.address_of(result), self._dtype_number, 1 + len(about["shape"]), self._shape_of(count), None
        )  # fmt: skip
        handle = self._file._open_handle()  # held during the call
        if lib.reader_gather(handle.value, self._number, address, count, tensor, lib._threads) != 0:
            self._file._fail()
        return result

    def _read_piece(self, samples: Any, out: np.ndarray) -> None:
        from tuckfold import _arrays

        self._call(samples, _arrays.whole_tensor("read", out, self.stored))

    def _read_to(self, samples: Any, address: int) -> None:
        """Reads a range, or an array of int64, to row-major memory: the caller has checked all else."""
        rank, shape = 1 + len(self._about["shape"]), self._shape_of(len(samples))
        self._call(samples, lib.Tensor(address, self._dtype_number, rank, shape, None))

    def _shape_of(self, count: int) -> Any:
        """Of a batch, for C."""
        shape = self._shapes.get(count)
        if shape is None:
            if len(self._shapes) > 100:  # batches have one size, or two
                self._shapes.clear()
            sides = lib.axes((count, *self._about["shape"]))
            shape = self._shapes[count] = ctypes.cast(sides, ctypes.POINTER(ctypes.c_int64))
        return shape

    def _handle_for(self, numbers: np.ndarray) -> _Handle:
        """The reader, which is held during a call that reads samples of these numbers."""
        handle = self._file._open_handle()
        if self._file._remote is not None:
            self._file._remote.fetch(handle.value, self._number, self.name, numbers)
        return handle

    def _call(self, samples: Any, out: lib.Tensor) -> None:
        handle = self._file._open_handle()  # held during the call
        threads = lib.get_num_threads()
        remote = self._file._remote
        if isinstance(samples, range) and samples.step == 1:
            if remote is not None:
                remote.fetch(handle.value, self._number, self.name, samples)
            status = lib.reader_read(handle.value, self._number, samples.start, len(samples), out, threads)  # fmt: skip
        else:
            numbers = numbers_of(samples) if isinstance(samples, range) else samples
            if remote is not None:
                remote.fetch(handle.value, self._number, self.name, numbers)
            address = lib.address_of(numbers)
            status = lib.reader_gather(handle.value, self._number, address, len(numbers), out, threads)  # fmt: skip
        if status != 0:
            self._file._fail()

    def _read_images(
        self, numbers: np.ndarray, windows: np.ndarray, options: lib.ImageOptions, out: lib.Tensor
    ) -> None:
        handle = self._handle_for(numbers)
        places = [lib.address_of(array) for array in (numbers, windows)]
        status = lib.reader_gather_images(
            handle.value, self._number, places[0], len(numbers), places[1], options, out, lib.get_num_threads()
        )  # fmt: skip
        if status != 0:
            self._file._fail()

    @functools.cached_property
    def _packed_sample_bytes(self) -> int:
        """Of a sample that its codec suits; others are stored as they are."""
        from tuckfold._codec import layout

        try:
            shape = (2, *self._about["shape"])
            return layout(self._about["codec"], self.stored, shape).max_bytes // 2
        except ValueError:
            return self._sample_bytes

    def _read_packed(
        self, numbers: np.ndarray, room: int, room_bytes: int, places: int, most: int
    ) -> tuple[list[lib.PackedPart], int, int]:
        """Packed samples to memory at `room`, and numbers of int32 to that at `places`: the parts, how many
        there are and the bytes that they take. Nothing is written if either is more than there is room
        for."""
        handle = self._handle_for(numbers)
        parts = (lib.PackedPart * most)()
        found, needed = ctypes.c_size_t(), ctypes.c_size_t()
        status = lib.reader_gather_packed(
            handle.value, self._number, lib.address_of(numbers), len(numbers), room, room_bytes,
            places, parts, most, found, needed, lib.get_num_threads()
        )  # fmt: skip
        if status != 0:
            self._file._fail()
        return list(parts[: found.value]), found.value, needed.value

    def __getitem__(self, key: Any) -> Any:
        from tuckfold._index import select

        each = self.nbytes // max(1, len(self))
        return select(self.shape, key, self.read, max(1, _PART_BYTES // max(1, each)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"[read] '{self.name}' is packed, so that an array of it is a copy")
        whole = self.read()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        each = max(1, self.nbytes // max(1, len(self)))
        block = max(1, _BLOCK_BYTES // each)
        for begin in range(0, len(self), block):
            yield from self.read(range(begin, min(begin + block, len(self))))

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self._file, self.name)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.shape} {self.stored}, {self.codec}, {self.ratio:.1f} times smaller>"


class File(Mapping[str, FileArray]):
    """A .tuck file, or a manifest of several, that :func:`tuckfold.open` has opened.

    A mapping of names to :class:`FileArray`. Any number of threads may read at once. It pickles: what
    is unpickled opens the file again, and refuses one that has changed. Children of a fork may use it.

    >>> f = tuckfold.open("doc.tuck")
    >>> print(f)
    doc.tuck: 100 samples, 2.8 kB
      image  f32  (8, 8)  dct_quant(rate=2)  15.2x
      label  i64  ()      bits(width=4)       6.6x
    metadata: {'source': 'synthetic'}
    >>> f.samples, list(f), "label" in f
    (100, ['image', 'label'], True)
    >>> f.close()
    """

    def __init__(
        self, path: Any, *, strict: bool = False, storage_options: dict[str, Any] | None = None
    ) -> None:
        self._path = os.fspath(path)
        if isinstance(self._path, bytes):
            self._path = os.fsdecode(self._path)
        self._strict, self._storage_options = strict, storage_options
        self._remote: Remote | None = None
        if is_url(self._path):
            self._remote, self._where = Remote(self._path, storage_options), self._path
        elif storage_options:
            raise ValueError(f"[open] '{self._path}' is a local file, which has no storage_options")
        else:
            self._where = str(
                Path(self._path).absolute()
            )  # also after chdir, and in other processes
        self._handle: _Handle | None = None
        if self._remote is None:
            self._handle = _Handle(self._where, strict)
        else:
            try:
                self._handle = _Handle(self._remote.local, strict)
            except Exception as error:
                self._remote.close()
                raise type(error)(self._remote.readable(str(error))) from None
        text = lib.reader_json(self._handle.value)
        self._identity = hashlib.blake2b(text, digest_size=16).hexdigest()
        self._about = json.loads(text)
        self._numbers = {about["name"]: i for i, about in enumerate(self._about["arrays"])}
        # Of batches of each array, as C wants them.
        self._shapes: list[dict[int, Any]] = [{} for _ in self._numbers]
        for warning in self._about["warnings"]:
            if self._remote is not None:
                warning = self._remote.readable(warning)
            warnings.warn(f"[open] {warning}", DataWarning, stacklevel=3)

    def _fail(self) -> NoReturn:
        """Raises the library's last error, with the name by which the user knows the file."""
        text = lib.last_error().decode()
        if self._remote is not None:
            text = self._remote.readable(text)
        raise lib.error_of(lib.last_status(), text)

    def _open_handle(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise ValueError(f"[read] '{self._path}' is closed; open it again")
        return handle

    @property
    def path(self) -> str:
        """As it was given."""
        return self._path

    @property
    def samples(self) -> int:
        """How many samples each array has."""
        return self._about["samples"]

    @property
    def nbytes(self) -> int:
        """Bytes of the file, or of all shards."""
        return self._about["bytes"]

    @property
    def metadata(self) -> dict[str, Any]:
        """What was saved with it."""
        return self._about["metadata"]

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._handle is None

    def close(self) -> None:
        """Ends reading; what other threads are reading is read to its end."""
        self._handle = None
        if self._remote is not None:
            self._remote.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> FileArray:
        try:
            number = self._numbers[name]
        except KeyError:
            names = ", ".join(self._numbers)
            raise KeyError(f"'{self._path}' has no array '{name}', but {names}") from None
        # Made anew, since it holds the file: one that the file held would keep it open when it is dropped.
        return FileArray(self, number, self._about["arrays"][number])

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        self._open_handle()
        return _reopen, (self._where, self._strict, self._identity, self._storage_options)

    def __repr__(self) -> str:
        rows = [
            (a.name, a.stored, str(a.shape[1:]), str(a.codec), f"{a.ratio:.1f}x")
            for a in self.values()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  " + "  ".join(text.ljust(width) for text, width in zip(row[:-1], widths, strict=False))
            + "  " + row[-1].rjust(widths[-1])
            for row in rows
        ]  # fmt: skip
        what = f"{self._path}: {self.samples} samples, {size_text(self.nbytes)}"
        if self.metadata:
            lines.append(f"metadata: {self.metadata}")
        return "\n".join([what, *lines])


def _reopen(
    path: str, strict: bool, identity: str, storage_options: dict[str, Any] | None = None
) -> File:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # its first opening has warned
        file = File(path, strict=strict, storage_options=storage_options)
    if file._identity != identity:
        raise ValueError(f"[open] '{path}' has changed since it was pickled; open it again")
    return file


def open(  # noqa: A001
    path: Any, *, strict: bool = False, storage_options: dict[str, Any] | None = None
) -> File:
    """Opens a .tuck file, or a manifest of shards, to read samples.

    Args:
        path: a text or a ``pathlib.Path``; or a URL of a file system that fsspec knows, such as
            ``s3://bucket/train.tuck``. Of a remote file the index is fetched, and then the chunks whose
            samples are read, to the temporary folder.
        strict: refuse a file of which samples may be missing; else that is a :class:`DataWarning`.
        storage_options: arguments of the file system, for a URL.

    Raises:
        CorruptDataError: the file is damaged, so that it cannot be opened. ``tuckfold repair`` may help.
        OSError: there is no such file, or a part of it cannot be fetched.

    >>> with tuckfold.open("doc.tuck") as f:
    ...     batch = f["image"][10:14]
    ...     labels = f["label"][10:14]
    >>> batch.shape, batch.dtype, labels.tolist()
    ((4, 8, 8), dtype('float32'), [0, 1, 2, 3])
    """
    return File(path, strict=strict, storage_options=storage_options)
