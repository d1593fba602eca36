"""Writing .tuck files."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuckfold import _library as lib
from tuckfold._errors import DataWarning
from tuckfold._file import File
from tuckfold._progress import pieces
from tuckfold._remote import is_url
from tuckfold._spec import CodecSpec, list_codecs, spec_of

if TYPE_CHECKING:
    import numpy as np

_MEASURE, _BOUND = 1, 2
_CREATE, _RESUME, _APPEND = 0, 1, 2


@dataclass(frozen=True)
class SavedArray:
    """What became of an array in a file."""

    name: str
    codec: CodecSpec
    packed_bytes: int  #: its mask of fill values included
    measured: int  #: samples that were compared with what was given; the figures are of these
    psnr: float | None  #: in dB; None where nothing was measured, or a finite value was lost
    max_error: float | None
    lost: int  #: finite values that came back as NaN or infinity
    changed: int  #: values that are NaN or infinite, and something else in the file
    stored_raw: int  #: samples stored as they are: too few for the codec, or past max_error


@dataclass(frozen=True)
class Saved:
    """What :func:`save` and :meth:`Writer.finish` wrote."""

    path: str
    samples: int  #: in the file
    arrays: tuple[SavedArray, ...]

    def __getitem__(self, name: str) -> SavedArray:
        return next(array for array in self.arrays if array.name == name)


@dataclass
class Column:
    """An array to write: of which dtype and shape, and how."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    codec: str
    fill: tuple[float, ...] = ()
    max_error: float | None = None
    measure: bool = False
    samples_per_chunk: int = 0

    def for_c(self) -> lib.FileArray:
        check = _BOUND if self.max_error is not None else _MEASURE if self.measure else 0
        return lib.FileArray(
            name=lib.encoded(self.name, "name"),
            codec=lib.encoded(self.codec),
            dtype=lib.DTYPES.index(self.dtype),
            rank=len(self.shape),
            shape=ctypes.cast(lib.axes(self.shape), ctypes.POINTER(ctypes.c_int64)),
            samples_per_chunk=self.samples_per_chunk,
            fill=(ctypes.c_double * len(self.fill))(*self.fill),
            fill_count=len(self.fill),
            check=check,
            max_error=self.max_error or 0.0,
        )


def of_array(value: Any, name: str, default: Any = None) -> Any:
    """What an argument that is one value, or a mapping of names to values, says for an array."""
    return value.get(name, default) if isinstance(value, Mapping) else value


def check_names(what: str, argument: str, value: Any, names: Sequence[str]) -> None:
    """Refuses a mapping with a name that no array has."""
    for name in value if isinstance(value, Mapping) else ():
        if name not in names:
            raise ValueError(
                f"[{what}] {argument} names '{name}', and the arrays are {', '.join(names)}"
            )


def fill_of(value: Any, name: str, dtype: str) -> tuple[float, ...]:
    """The fill values of an array: one, or a sequence of them. Values that are given for all arrays are
    for those whose dtype has them."""
    found = of_array(value, name)
    if found is None:
        return ()
    values = tuple(float(v) for v in found) if isinstance(found, Sequence) else (float(found),)
    return values if isinstance(value, Mapping) else tuple(v for v in values if _may_be(v, dtype))


def _may_be(value: float, dtype: str) -> bool:
    """Whether a dtype has the value; of floats, all."""
    if dtype in ("f64", "f32", "f16", "bf16"):
        return True
    if dtype == "bool" or not value.is_integer():
        return dtype == "bool" and value in (0, 1)
    bits = int(dtype[1:])
    low, high = (0, 1 << bits) if dtype[0] == "u" else (-1 << (bits - 1), 1 << (bits - 1))
    return low <= value < high


def check_fill(what: str, value: Any, columns: Sequence[Column]) -> None:
    """Refuses a fill value that no array has."""
    if value is None or isinstance(value, Mapping):
        return
    for number in value if isinstance(value, Sequence) else (value,):
        if not any(_may_be(float(number), column.dtype) for column in columns):
            dtypes = ", ".join(dict.fromkeys(column.dtype for column in columns))
            raise ValueError(f"[{what}] fill={number}: no array has that value; they are {dtypes}")


def check_local(what: str, path: Any) -> None:
    """Refuses a URL."""
    if is_url(path):
        raise ValueError(
            f"[{what}] '{path}' is a URL, and only open takes those; write a file here, and copy it there"
        )


def note_on_unused(codec: Any, target: tuple[str, float] | None, columns: Sequence[Column]) -> str:
    """What to say of a codec or target for all arrays that suits none of them; else nothing."""
    named = codec if isinstance(codec, Mapping) else {}
    given = "a codec without a name" if codec is not None and not named else None
    if given is None and target is not None and target != ("max_error", 0):
        given = f"{target[0]}={target[1]:g}"
    unbound = next((c for c in columns if c.name not in named), None)
    if given is None or unbound is None or any(len(c.shape) >= 2 for c in columns):
        return ""
    whole = "x[None] makes one sample of a field x, and " if len(unbound.shape) == 1 else ""
    return (
        f"{given} is for samples with two axes or more, and no array has such; nothing is lost "
        f"({whole}codec={{'{unbound.name}': …}} binds one)"
    )


def is_exact(codec: str) -> bool:
    """Whether every bit comes back."""
    exact = {row.name for row in list_codecs() if row.exact}
    return all(stage.name in exact for stage in spec_of(codec).stages)


def note_on_bounds(max_error: Any, columns: Sequence[Column]) -> str:
    """What to say where max_error bounds nothing, since no codec that it is for loses anything."""
    asked = [c for c in columns if of_array(max_error, c.name)]
    if not asked or any(c.max_error and not is_exact(c.codec) for c in asked):
        return ""
    return (
        f"max_error bounds what codecs lose, and {', '.join(dict.fromkeys(c.codec for c in asked))} loses "
        "nothing; codec= names another, and save() searches one"
    )


def _columns_of(path: Any, strict: bool) -> dict[str, Column]:
    """The arrays of a file. Warns of missing samples: an append drops what is left of them."""
    with File(path, strict=strict) as file:
        return {
            name: Column(
                name,
                array.stored,
                array.shape[1:],
                str(array.codec),
                array.fill,
                samples_per_chunk=array.samples_per_chunk,
            )
            for name, array in file.items()
        }


def _metadata_text(metadata: Mapping[str, Any]) -> str:
    """As JSON. Its keys are texts: of 1 and "1" one would be lost."""
    rule = "[write] metadata must be what JSON holds: texts, numbers, lists, dicts whose keys are texts"
    try:
        text = json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{rule}; {error}") from None

    def check(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, below in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{rule}; got the key {key!r}")
                check(below)
        elif isinstance(value, (list, tuple)):
            for below in value:
                check(below)

    check(metadata)
    return text


class Writer:
    """Writes a .tuck file batch by batch, with the promises of ``tuckfold pack``.

    The file appears under its name when it is complete: at the end of the ``with`` block, or with
    :meth:`finish`. What was packed before an error or a kill stays in ``PATH.partial``, and ``resume=True``
    goes on with it: write again from sample :attr:`samples` on. Another file of that name stays until then.

    Args:
        path: of the file, or of the manifest if there are shards.
        arrays: for each name the dtype and shape of a sample, as in ``("f32", (3, 32, 32))``, or an array
            with a leading axis of samples, such as a first batch. Not needed with ``append``, where they
            and their codec, fill and samples_per_chunk are those of the file; others are refused.
        codec: a spec for arrays whose samples have two axes or more, or a mapping of names to specs.
            Others are packed by ``zstd``.
        max_error: a number, or a mapping. Chunks in which a value differs by more are stored as they are.
        fill: values that stand for missing ones and come back exactly: a number or several, for arrays whose
            dtype has them, or a mapping.
        metadata: a dict to keep in the file.
        append: add to the samples of a file, or a shard to a manifest. Until all is written, readers see
            what was there.
        resume: go on with what a stopped writer of the same left; without any, begin.
        force: replace a file that exists, and what a stopped writer left.
        shards: write so many files and a manifest.
        samples: how many will be written, if there are two shards or more.
        samples_per_chunk: samples that are packed together; 0: what suits the codec.
        seed: for stochastic rounding.
        origin: a text that identifies the inputs; resume refuses another.
        sync: whether to wait for the disk, so that a finished file survives a loss of power.
        strict: refuse to append to a file of which samples may be missing; else that is a
            :class:`DataWarning`, and what is left of them is dropped.

    >>> with tuckfold.Writer("stream.tuck", {"x": ("f32", (8, 8))}, codec="dct_quant(rate=4)") as w:
    ...     for i in range(3):
    ...         w.write(x=np.full((10, 8, 8), i, np.float32))
    >>> tuckfold.open("stream.tuck").samples
    30
    """

    def __init__(
        self,
        path: Any,
        arrays: Mapping[str, Any] | None = None,
        *,
        codec: str | CodecSpec | Mapping[str, str | CodecSpec] | None = None,
        max_error: float | Mapping[str, float] | None = None,
        fill: Any = None,
        metadata: Mapping[str, Any] | None = None,
        append: bool = False,
        resume: bool = False,
        force: bool = False,
        shards: int = 0,
        samples: int = 0,
        samples_per_chunk: int = 0,
        seed: int = 0,
        origin: str | None = None,
        sync: bool = True,
        strict: bool = False,
    ) -> None:
        if append and resume:
            raise ValueError("[write] append and resume exclude each other; drop one")
        check_local("write", path)
        there = _columns_of(path, strict) if append else {}
        names = list(arrays or there)
        for argument, value in (("codec", codec), ("max_error", max_error), ("fill", fill)):
            check_names("write", argument, value, names)
        columns = [
            self._column(name, about, codec, max_error, fill, samples_per_chunk, there.get(name))
            for name, about in (arrays or {n: (c.dtype, c.shape) for n, c in there.items()}).items()
        ]
        check_fill("write", fill, columns)
        for note in (note_on_unused(codec, None, columns), note_on_bounds(max_error, columns)):
            if note:
                warnings.warn(f"[write] {note}", DataWarning, stacklevel=2)
        if not columns and not append:
            raise ValueError("[write] give the arrays: {'image': ('f32', (3, 32, 32))}")
        mode = _APPEND if append else _RESUME if resume else _CREATE
        self._begin(path, columns, mode, force, metadata, shards, samples, seed, origin, sync)

    @staticmethod
    def _column(
        name: str,
        about: Any,
        codec: Any,
        max_error: Any,
        fill: Any,
        samples_per_chunk: int,
        there: Column | None,
    ) -> Column:
        """An array as asked for; what is not said is as in the file that is appended to."""
        from tuckfold import _arrays

        if isinstance(about, tuple):
            if len(about) != 2:
                raise ValueError(f"[write] '{name}' must be an array or (dtype, shape)")
            dtype, shape = _arrays.dtype_name("write", about[0]), tuple(about[1])
        else:
            view = _arrays.array_of("write", about)
            if view.ndim == 0:
                raise ValueError(f"[write] '{name}' must have a leading axis of samples")
            dtype, shape = _arrays.stored_dtype("write", view, None), view.shape[1:]
        shape = tuple(operator.index(n) for n in shape)
        named = isinstance(codec, Mapping)
        given = of_array(codec, name) if named or len(shape) >= 2 else None
        column = Column(
            name,
            dtype,
            shape,
            str(spec_of(given)) if given is not None else "zstd",
            fill_of(fill, name, dtype),
            samples_per_chunk=operator.index(samples_per_chunk),
        )  # fmt: skip
        if there is not None:
            column.codec = column.codec if given is not None else there.codec
            column.fill = column.fill or there.fill
            column.samples_per_chunk = column.samples_per_chunk or there.samples_per_chunk
        # One number is for all arrays but those, such as labels, that lose nothing anyway.
        if isinstance(max_error, Mapping) or len(shape) >= 2 or column.codec != "zstd":
            column.max_error = of_array(max_error, name)
        return column

    @classmethod
    def _of_columns(cls, path: Any, columns: list[Column], **options: Any) -> Writer:
        """For those who have settled every array; options as for _begin."""
        writer = cls.__new__(cls)
        writer._begin(path, columns, **options)
        return writer

    def _begin(
        self,
        path: Any,
        columns: list[Column],
        mode: int = _CREATE,
        force: bool = False,
        metadata: Mapping[str, Any] | None = None,
        shards: int = 0,
        samples: int = 0,
        seed: int = 0,
        origin: str | None = None,
        sync: bool = True,
    ) -> None:
        self._handle: ctypes.c_void_p | None = None
        self._path = os.fsdecode(path)
        self._append, self._wrote = mode == _APPEND, mode != _CREATE
        digest = hashlib.blake2b(origin.encode(), digest_size=8).digest() if origin else b""
        text = None if metadata is None else _metadata_text(metadata)
        options = lib.WriteOptions(
            struct_bytes=ctypes.sizeof(lib.WriteOptions),
            mode=mode,
            force=int(force),
            threads=lib.get_num_threads(),
            shards=operator.index(shards),
            samples=operator.index(samples),
            metadata=None if text is None else text.encode(),
            seed=lib.seed_of(seed) & (2**64 - 1),
            origin=int.from_bytes(digest, "little"),
            no_sync=int(not sync),
        )
        rows = (lib.FileArray * len(columns))(*[column.for_c() for column in columns])
        handle = ctypes.c_void_p()
        lib.call(
            "writer_open",
            lib.path_of(path),
            rows,
            len(columns),
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        self._handle = handle
        about = self._about()
        self._names = [array["name"] for array in about["arrays"]]
        self._dtypes = [array["dtype"] for array in about["arrays"]]
        self._sample_bytes = sum(
            math.prod(array["shape"]) * lib.DTYPE_BYTES[array["dtype"]] for array in about["arrays"]
        )
        self._bounds = {column.name: column.max_error for column in columns}
        self._began_at = about["samples"]

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError(f"[write] the writer of '{self._path}' is closed; open another")
        return self._handle

    def _about(self) -> dict[str, Any]:
        about = json.loads(lib.writer_json(self._open_handle()))
        if not about:  # such as in a forked child
            lib.check(lib.last_status())
        return about

    @property
    def samples(self) -> int:
        """The number of the next sample: 0 for a new file."""
        return self._about()["samples"]

    def write(self, batch: Mapping[str, Any] | None = None, /, **arrays: Any) -> None:
        """Adds samples: for each array of the file one with a leading axis of samples.

        A batch may be large, and is packed in pieces. After a KeyboardInterrupt :attr:`samples` says how
        many samples were taken.
        """
        from tuckfold import _arrays

        given = {**(batch or {}), **arrays}
        if set(given) != set(self._names):
            raise ValueError(
                f"[write] a batch has {', '.join(self._names)}, got {', '.join(given) or 'nothing'}"
            )
        views = [
            _arrays.array_of("write", given[name])
            for name in self._names
        ]  # fmt: skip
        for name, dtype, view in zip(self._names, self._dtypes, views, strict=True):
            stored = _arrays.stored_dtype("write", view, "bf16" if dtype == "bf16" else None)
            if stored != dtype:
                raise ValueError(f"[write] '{name}' is of {dtype} in the file, got {stored}")
            if view.ndim == 0:
                raise ValueError(f"[write] '{name}' must have a leading axis of samples")
        counts = {view.shape[0] for view in views}
        if len(counts) != 1:
            raise ValueError(f"[write] arrays must have as many samples each, got {sorted(counts)}")
        for begin, end in pieces(counts.pop(), self._sample_bytes):
            self._write_views([view[begin:end] for view in views])

    def _write_views(self, views: Sequence[np.ndarray]) -> None:
        """One call of the C API: an array for each of the file's, in order."""
        from tuckfold import _arrays

        tensors = [
            _arrays.whole_tensor("write", view, dtype)
            for view, dtype in zip(views, self._dtypes, strict=True)
        ]
        row = (lib.Tensor * len(tensors))(*tensors)
        lib.call("writer_write", self._open_handle(), row, len(tensors))
        self._wrote = True

    def finish(self) -> Saved:
        """Writes the rest; then the file has its name. Warns of values that are not what they were."""
        handle = self._open_handle()
        lib.call("writer_finish", handle)
        about = self._about()
        self._handle = None
        lib.writer_close(handle, 1)
        new = about["samples"] - self._began_at
        for array in about["arrays"]:
            for text in warnings_on(array, self._bounds.get(array["name"]), new):
                warnings.warn(f"[write] {text}", DataWarning, stacklevel=3)
        return Saved(
            self._path,
            about["samples"],
            tuple(saved_array(array) for array in about["arrays"]),
        )

    def close(self) -> None:
        """Ends writing without :meth:`finish`: what was packed stays in ``PATH.partial`` for ``resume``;
        a file that was appended to is as it was."""
        self._end(keep=True)

    def discard(self) -> None:
        """The same, but nothing is left."""
        self._end(keep=False)

    def _end(self, keep: bool) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            lib.writer_close(handle, int(keep))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._handle is None:
            return
        if kind is None:
            self.finish()
        else:
            self._end(keep=self._append or self._wrote)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Writer cannot be pickled: one process writes a file")

    def __del__(self, close: Any = lib.writer_close) -> None:  # the module may be gone by then
        if getattr(self, "_handle", None) is not None:
            close(self._handle, 1)

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{self.samples} samples"
        return f"<writer of {self._path}: {', '.join(self._names)}; {state}>"


def saved_array(about: dict[str, Any]) -> SavedArray:
    """From the C API's JSON. Its null stands for an infinite PSNR where no value is lost."""
    any_measured, lost = about["measured"] > 0, about["lost"] > 0
    psnr = about["psnr_db"]
    exact = about["max_error"] == 0 and about["changed"] == 0
    return SavedArray(
        name=about["name"],
        codec=spec_of(about["codec"]),
        packed_bytes=about["packed_bytes"],
        measured=about["measured"],
        psnr=(math.inf if psnr is None and exact else psnr) if any_measured and not lost else None,
        max_error=about["max_error"] if any_measured else None,
        lost=about["lost"],
        changed=about["changed"],
        stored_raw=about["too_few"] + about["past_bound"],
    )


def warnings_on(about: dict[str, Any], bound: float | None, samples: int) -> list[str]:
    """What a user should know of an array that was written; the command line says the same."""
    name, codec = about["name"], about["codec"]
    lines = values_lost(name, codec, about["changed"], about["lost"])
    raw = f"of {samples} samples of '{name}' are stored as they are"
    if about["past_bound"]:
        lines.append(f"{about['past_bound']} {raw}: {codec} does not keep max_error={bound}")
    if about["too_few"]:
        lines.append(f"{about['too_few']} {raw}: {codec} does not make so few smaller")
    return lines


def values_lost(name: str, codec: str, changed: int, lost: int) -> list[str]:
    """A warning of values that a codec did not keep, or none."""
    what = []
    if changed:
        what.append(f"{changed} values that are NaN or infinite came back otherwise")
    if lost:
        what.append(f"{lost} finite values came back as NaN or infinity")
    if not what:
        return []
    return [
        f"'{name}': {', and '.join(what)} with {codec}; fill= keeps such values apart, and "
        "max_error= and exact codecs keep all"
    ]
