"""Writing .tuck files from Dask arrays: each task packs a block to a file of its own.

>>> import dask.array, tuckfold.dask
>>> x = dask.array.random.random((100, 32, 32), chunks=(25, 32, 32)).astype("float32")
>>> with tuckfold.dask.pack("dask.tuck", image=x, codec="dct_quant(rate=4)") as f:
...     f.samples, f["image"].shape
(100, (100, 32, 32))

Reading needs nothing of this: ``dask.array.from_array(tuckfold.open("dask.tuck")["image"])``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array

from tuckfold import _library as lib
from tuckfold._errors import DataWarning
from tuckfold._file import File
from tuckfold._file import open as open_file
from tuckfold._spec import CodecSpec
from tuckfold._writer import (
    Saved,
    Writer,
    check_local,
    check_names,
    is_exact,
    note_on_bounds,
    note_on_unused,
    values_lost,
)

__all__ = ["pack"]


def pack(
    path: Any,
    arrays: Mapping[str, Any] | None = None,
    /,
    *,
    codec: str | CodecSpec | Mapping[str, str | CodecSpec] | None = None,
    max_error: float | Mapping[str, float] | None = None,
    fill: Any = None,
    metadata: Mapping[str, Any] | None = None,
    force: bool = False,
    samples_per_chunk: int = 0,
    seed: int = 0,
    sync: bool = True,
    scheduler: Any = None,
    **named: Any,
) -> File:
    """Packs Dask arrays, whose first axis is the sample, in a manifest and a shard for each block of it.

    It computes the arrays, with the scheduler that is in use: with a ``distributed.Client`` on its workers,
    which must see the folder of the path. A task writes a shard under a name of its own and then renames
    it, so that a task may be run again, also if its worker was killed, and twice at a time. The manifest is
    written when all shards are complete: until then there is no dataset at the path, or the one before.

    Args:
        path: of the manifest; shards are beside it.
        arrays: by name, or as keywords. Blocks along other axes than the first are joined, and blocks of
            samples become those of the first array.
        codec, max_error, fill, metadata, samples_per_chunk, seed, sync: as for :class:`tuckfold.Writer`.
        force: replace a dataset that exists.
        scheduler: as for ``dask.compute``.

    Returns:
        The dataset, opened.

    Raises:
        FileExistsError: there is a file at the path, and not force.
    """
    found = _blocks_of({**(arrays or {}), **named})
    for argument, value in (("codec", codec), ("max_error", max_error), ("fill", fill)):
        check_names("pack", argument, value, list(found))
    check_local("pack", path)
    columns = [
        Writer._column(
            name, (a.dtype, a.shape[1:]), codec, max_error, fill, samples_per_chunk, None
        )
        for name, a in found.items()
    ]
    for note in (note_on_unused(codec, None, columns), note_on_bounds(max_error, columns)):
        if note:
            warnings.warn(f"[pack] {note}", DataWarning, stacklevel=2)
    where = Path(os.fspath(path)).absolute()
    before = _shards_at(where)
    if where.exists() and not force:
        raise FileExistsError(f"[pack] '{where}' exists; pass force=True to replace it")
    sizes = [size for size in next(iter(found.values())).chunks[0] if size > 0]
    if not sizes:
        raise ValueError("[pack] arrays must have at least one sample")
    shards = _shard_paths(where, len(sizes))
    run = uuid.uuid4().hex[:12]
    blocks = {
        name: [b for b, size in zip(a.to_delayed().ravel(), a.chunks[0], strict=True) if size]
        for name, a in found.items()
    }
    options = {  # named for each array, so that workers do not warn again
        "codec": {c.name: c.codec for c in columns},
        "max_error": {
            c.name: c.max_error
            for c in columns
            if c.max_error is not None and not is_exact(c.codec)
        },
        "fill": fill,
        "metadata": metadata,
        "samples_per_chunk": samples_per_chunk,
        "sync": sync,
    }
    write = dask.delayed(_write_shard, pure=False)
    tasks = [
        write(str(shard), run, {name: blocks[name][i] for name in found}, options | {"seed": seed + i})
        for i, shard in enumerate(shards)
    ]  # fmt: skip
    try:
        written = dask.compute(*tasks, **({} if scheduler is None else {"scheduler": scheduler}))
        counts = [shard.samples for shard in written]
        if counts != sizes:
            raise RuntimeError(f"[pack] shards have {counts} samples, and blocks {sizes}")
        names = (ctypes.c_char_p * len(shards))(*[lib.path_of(shard) for shard in shards])
        lib.call("write_manifest", lib.path_of(where), names, len(shards))
    except BaseException:
        for shard in shards:
            shard.unlink(missing_ok=True)
        raise
    finally:
        for left in where.parent.glob(
            f".{_escaped(where.stem)}*.{run}-*"
        ):  # by workers that were killed
            left.unlink(missing_ok=True)
    for old in before - set(shards):
        old.unlink(missing_ok=True)
    _warn(written, sum(sizes))
    return open_file(str(where))


def _blocks_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays in equal blocks of samples, each whole along the other axes."""
    if not arrays:
        raise ValueError("[pack] give arrays by name: pack('x.tuck', image=images)")
    made = {
        name: a if isinstance(a, dask.array.Array) else dask.array.from_array(a)
        for name, a in arrays.items()
    }
    for name, array in made.items():
        if array.ndim == 0:
            raise ValueError(f"[pack] '{name}' must have a leading axis of samples")
    first = next(iter(made.values()))
    if any(size != size for size in first.chunks[0]):  # NaN
        raise ValueError(
            "[pack] the sizes of blocks must be known; call compute_chunk_sizes() first"
        )
    counts = {name: array.shape[0] for name, array in made.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"[pack] arrays must have as many samples each, got {counts}")
    return {
        name: array.rechunk({0: first.chunks[0], **dict.fromkeys(range(1, array.ndim), -1)})
        for name, array in made.items()
    }


def _warn(shards: Sequence[Saved], samples: int) -> None:
    """What workers say of their shards, of all of them together."""
    for name in (array.name for array in shards[0].arrays):
        parts = [shard[name] for shard in shards]
        lost, changed = sum(part.lost for part in parts), sum(part.changed for part in parts)
        raw = sum(part.stored_raw for part in parts)
        for text in values_lost(name, str(parts[0].codec), changed, lost):
            warnings.warn(f"[pack] {text}", DataWarning, stacklevel=3)
        if raw:
            text = f"{raw} of {samples} samples of '{name}' are stored as they are: {parts[0].codec} does not make them smaller or does not keep max_error"  # fmt: skip
            warnings.warn(f"[pack] {text}", DataWarning, stacklevel=3)


def _write_shard(shard: str, run: str, arrays: dict[str, Any], options: dict[str, Any]) -> Saved:
    """Writes a shard."""
    path = Path(shard)
    mine = path.with_name(f".{path.name}.{run}-{uuid.uuid4().hex[:12]}")
    try:
        with Writer(mine, arrays, force=True, **options) as writer:
            writer.write(arrays)
            saved = writer.finish()
        mine.replace(path)
    except BaseException:
        for left in (mine, mine.with_name(mine.name + ".partial")):
            left.unlink(missing_ok=True)
        raise
    return saved


def _shard_paths(manifest: Path, count: int) -> list[Path]:
    """Names for the shards, none of which exists: readers of a dataset that is replaced keep theirs."""
    token = ""
    while True:
        paths = [
            manifest.with_name(f"{manifest.stem}{token}-{i:05}-of-{count:05}.tuck")
            for i in range(count)
        ]
        if not any(path.exists() for path in paths):
            return paths
        token = f"-{uuid.uuid4().hex[:6]}"


def _shards_at(manifest: Path) -> set[Path]:
    """The shards of a dataset that is to be replaced."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        listed = json.loads(manifest.read_bytes())["shards"]
        return {manifest.with_name(Path(shard["file"]).name) for shard in listed}
    return set()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
