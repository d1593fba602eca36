"""Saving arrays that are there as a whole."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Mapping
from typing import Any

from tuckfold import _library as lib
from tuckfold._choose import (
    exact_codec,
    note_on_exact,
    search,
    source_of,
    target_of,
    trial_part,
)
from tuckfold._errors import DataWarning
from tuckfold._outliers import note_on_outliers, without_fill
from tuckfold._progress import Progress, Reporter, pieces
from tuckfold._spec import CodecSpec, spec_of
from tuckfold._writer import (
    Column,
    Saved,
    Writer,
    check_fill,
    check_local,
    check_names,
    fill_of,
    note_on_unused,
    of_array,
)

_TRIAL_VALUES = 4_000_000


def _column(
    name: str,
    source: Any,
    dtype: str,
    codec: Any,
    target: tuple[str, float] | None,
    fill: tuple[float, ...],
    notes: list[str],
) -> Column:
    """How to pack an array: as asked for; by a codec that reaches the target; or without loss. Adds what is
    wise to know to the notes."""
    shape = tuple(source.shape[1:])
    named = of_array(codec, name) if isinstance(codec, Mapping) else None
    for_all = None if isinstance(codec, Mapping) else codec
    is_field, any_values = len(shape) >= 2, math.prod(source.shape) > 0
    column = Column(name, dtype, shape, "zstd", fill)
    spec = named if named is not None else for_all if is_field else None
    if target is not None and (is_field or spec is not None):  # also with a codec of its own
        column.max_error = target[1] if target[0] == "max_error" else None
        column.measure = is_field or column.max_error is not None
    is_searched = is_field and spec is None and any_values
    if is_searched and target is not None and target != ("max_error", 0):  # which is as no target
        part, valid = without_fill(trial_part(source, _TRIAL_VALUES), dtype, fill)
        if target[0] == "psnr":
            notes.append(note_on_outliers(name, part if valid is None else part[valid]))
        notes.append(note_on_exact(f"'{name}'", dtype, target))
        spec = search(part, dtype, *target, for_the_rest=True, valid=valid).codec
    if spec is not None:
        column.codec = str(spec_of(spec))
    elif any_values:
        column.codec = exact_codec(source, dtype)
    return column


def _sources(arrays: Mapping[str, Any], dtype: Any) -> dict[str, tuple[Any, str]]:
    if not arrays:
        raise ValueError("[save] give arrays by name: save('x.tuck', image=images)")
    check_names("save", "dtype", dtype, list(arrays))
    sources = {
        name: source_of("save", array, of_array(dtype, name)) for name, array in arrays.items()
    }
    for name, (source, _) in sources.items():
        if not source.shape:
            raise ValueError(f"[save] '{name}' must have a leading axis of samples")
    counts = {name: source.shape[0] for name, (source, _) in sources.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"[save] arrays must have as many samples each, got {counts}")
    return sources


def save(
    path: Any,
    arrays: Mapping[str, Any] | None = None,
    /,
    *,
    codec: str | CodecSpec | Mapping[str, str | CodecSpec] | None = None,
    max_error: float | None = None,
    psnr: float | None = None,
    fill: Any = None,
    metadata: Mapping[str, Any] | None = None,
    force: bool = False,
    shards: int = 0,
    samples_per_chunk: int = 0,
    seed: int = 0,
    dtype: Mapping[str, Any] | None = None,
    sync: bool = True,
    progress: Progress = None,
    **named: Any,
) -> Saved:
    """Saves arrays, whose first axis is the sample, in a .tuck file.

    Without codec, max_error and psnr nothing is lost: exact codecs are tried on a part of each array, and
    the smallest is taken. All three are for arrays whose samples have two axes or more; others, such as
    labels, lose nothing unless a mapping names a codec for them, and dtypes other than floats, u8 and u16
    never do. A :class:`DataWarning` says where one has no effect. The file appears under its name when it is
    complete; if anything fails, nothing is left, and a file of that name stays.

    Args:
        path: of the file, or of the manifest if there are shards.
        arrays: by name, where a name is no Python word or that of an argument; else as keywords. numpy
            arrays, what :func:`pack` takes, and what is sliced to arrays: a :class:`FileArray`, or h5py's.
        codec: a spec, or a mapping of names to specs.
        max_error: a bound for every value. Chunks in which a value differs by more are stored as they are.
            Without codec, the smallest codec that promises it is searched.
        psnr: a goal in dB, for which a codec is searched. What all samples reach is measured; a miss is a
            :class:`DataWarning`.
        fill: values that stand for missing ones and come back exactly: a number or several, for arrays whose
            dtype has them, or a mapping.
        metadata: a dict to keep in the file.
        force: replace a file that exists, and what a stopped writer left.
        shards: write so many files and a manifest.
        samples_per_chunk: samples that are packed together; 0: what suits the codec.
        seed: for stochastic rounding.
        dtype: a mapping; ``"bf16"`` where a uint16 array holds bits of bf16.
        sync: whether to wait for the disk, so that a finished file survives a loss of power.
        progress: a function of the bytes that are done and all of them, or True for a bar of tqdm.

    >>> images = np.linspace(0, 1, 20 * 32 * 32, dtype=np.float32).reshape(20, 32, 32)
    >>> saved = tuckfold.save("some.tuck", image=images, label=np.arange(20), codec="dct_quant(rate=4)")
    >>> saved.samples, saved["image"].codec, saved["label"].codec
    (20, dct_quant(rate=4), zstd(level=1))
    >>> with tuckfold.open("some.tuck") as f:
    ...     bool(np.abs(f["image"][3] - images[3]).max() < 0.01)
    True
    """
    check_local("save", path)
    for name in named.keys() & (arrays or {}).keys():
        raise ValueError(f"[save] '{name}' is given twice; drop one")
    sources = _sources({**(arrays or {}), **named}, dtype)
    target = target_of("save", max_error=max_error, psnr=psnr)
    if codec is not None and not isinstance(codec, Mapping) and psnr is not None:
        raise ValueError("[save] psnr searches for a codec; leave out codec, or name arrays in it")
    names = list(sources)
    check_names("save", "codec", codec, names)
    check_names("save", "fill", fill, names)
    notes: list[str] = []
    columns = [
        _column(name, source, kind, codec, target, fill_of(fill, name, kind), notes)
        for name, (source, kind) in sources.items()
    ]
    check_fill("save", fill, columns)
    notes.append(note_on_unused(codec, target, columns))
    for note in filter(None, notes):
        warnings.warn(f"[save] {note}", DataWarning, stacklevel=2)
    for column in columns:
        column.samples_per_chunk = operator.index(samples_per_chunk)
    views = [source for source, _ in sources.values()]
    samples = views[0].shape[0]
    writer = Writer._of_columns(
        path, columns, force=force, metadata=metadata, shards=shards, samples=samples, seed=seed,
        sync=sync,
    )  # fmt: skip
    try:
        _write_all(writer, columns, views, progress)
        saved = writer.finish()
    except BaseException:
        writer.discard()
        raise
    for array in saved.arrays:
        if psnr is not None and array.measured and (array.psnr is None or array.psnr < psnr):
            reached = "none" if array.psnr is None else f"{array.psnr:.2f} dB"
            warnings.warn(
                f"[save] '{array.name}' has a PSNR of {reached} over all samples, where {psnr} was asked "
                "for; ask for more",
                DataWarning,
                stacklevel=2,
            )
    return saved


def _write_all(writer: Writer, columns: list[Column], views: list[Any], progress: Progress) -> None:
    from tuckfold import _arrays

    samples = views[0].shape[0]
    each = sum(math.prod(c.shape) * lib.DTYPE_BYTES[c.dtype] for c in columns)
    with Reporter("save", progress, samples * each) as report:
        for begin, end in pieces(samples, each):
            parts = [_arrays.array_of("save", view[begin:end]) for view in views]
            for column, view, part in zip(columns, views, parts, strict=True):
                _check_part(column.name, view, part, (end - begin, *column.shape))
            writer._write_views(parts)
            report.add((end - begin) * each)


def _check_part(name: str, source: Any, part: Any, shape: tuple[int, ...]) -> None:
    """What a source gives for a slice must be what it said of itself."""
    if part.shape != shape or part.dtype != source.dtype:
        raise ValueError(
            f"[save] '{name}' gave a slice of {part.dtype} {part.shape}, where its dtype and shape promise "
            f"{source.dtype} {shape}"
        )
