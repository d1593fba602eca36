"""Indexing as numpy does it, for arrays of which only some samples are to be read.

The samples that an index needs are read as one block, and numpy applies the rest of the index to that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Read = Callable[[Any], np.ndarray]  #: a range or an array of sample numbers to a block of them


def _parts(shape: tuple[int, ...], key: Any) -> list[Any]:
    """The parts of an index: None, Ellipsis, slices, ints, arrays of ints. A mask becomes the places
    of what it selects, one array for each of its axes, which means the same to numpy."""
    keys = key if isinstance(key, tuple) else (key,)
    if sum(part is Ellipsis for part in keys) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    parts: list[Any] = []
    axis = 0
    for number, part in enumerate(keys):
        if part is None or part is Ellipsis or isinstance(part, slice):
            parts.append(part)
            axis += isinstance(part, slice)
            continue
        if not isinstance(part, (bool, np.bool_, np.ndarray)):
            try:
                parts.append(operator.index(part))
                axis += 1
                continue
            except TypeError:
                pass
        array = np.asarray(part)
        if array.size == 0 and not isinstance(part, np.ndarray):
            array = array.astype(np.intp)  # [] selects nothing
        if array.dtype != bool:
            parts.append(array)
            axis += 1
            continue
        if any(p is Ellipsis for p in keys[:number]):
            axis = len(shape) - sum(map(_axes, keys[number:]))
        _nothing(shape[max(axis, 0) :])[array]  # numpy refuses another shape
        parts.extend(array.nonzero())
        axis += array.ndim
    return parts


def _axes(part: Any) -> int:
    """How many axes a part of an index takes."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, slice):
        return 1
    array = np.asarray(part)
    return array.ndim if array.dtype == bool else 1


def _is_truth(part: Any) -> bool:
    """Whether it is one boolean: to numpy a mask of no axes, which adds one to the result."""
    return isinstance(part, (bool, np.bool_)) or (
        isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype == bool
    )


def _nothing(shape: tuple[int, ...]) -> np.ndarray:
    """An array of that shape that takes no memory, to have numpy check an index."""
    return np.broadcast_to(np.empty((), np.uint8), shape)


def _place(shape: tuple[int, ...], parts: list[Any]) -> int | None:
    """Which part selects samples; None: all samples are selected."""
    used = sum(part is not None and part is not Ellipsis for part in parts)
    for number, part in enumerate(parts):
        if part is None or (part is Ellipsis and used == len(shape)):
            continue
        return None if part is Ellipsis else number
    return None


def select(shape: tuple[int, ...], key: Any, read: Read, most: int) -> Any:
    """What numpy's ``array[key]`` would give for an array of that shape, whose samples are read: at
    most so many at a time, where a slice of samples is taken a part of each."""
    if any(map(_is_truth, key if isinstance(key, tuple) else (key,))):
        _nothing(shape)[key]  # numpy's own IndexError
        return read(range(shape[0]))[key]
    parts = _parts(shape, key)
    place = _place(shape, parts)
    samples: Any = slice(None) if place is None else parts[place]
    if isinstance(samples, np.ndarray):
        return _select_places(shape, parts, place, read)
    if isinstance(samples, slice):
        wanted: Any = range(*samples.indices(shape[0]))
        within: Any = slice(None)
    else:
        _nothing(shape[:1])[samples]  # numpy's own IndexError
        wanted, within = range(samples % shape[0], samples % shape[0] + 1), 0
    if place is not None:
        parts[place] = within
    if all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts):
        _nothing(shape)[tuple(parts)]  # too many indices
        return read(wanted)
    if isinstance(samples, slice) and len(wanted) > most:
        return _select_in_parts(shape, parts, place, wanted, read, most)
    return read(wanted)[tuple(parts)]


def _select_in_parts(
    shape: tuple[int, ...],
    parts: list[Any],
    place: int | None,
    wanted: range,
    read: Read,
    most: int,
) -> Any:
    """For a slice of samples, where nothing but the parts that are wanted is to stay in memory."""
    key = tuple(parts)
    if any(isinstance(part, np.ndarray) for part in parts) or (place is None and None in parts):
        return read(wanted)[key]  # the samples may be on another axis of the result
    before = (slice(None),) * sum(part is None for part in parts[: place or 0])
    result = None
    for begin in range(0, len(wanted), most):
        rows = read(wanted[begin : begin + most])[key]
        if result is None:
            size = _nothing((len(wanted), *shape[1:]))[key].shape
            result = np.empty(size, rows.dtype)
        result[(*before, slice(begin, begin + most))] = rows
    return result


def _select_places(shape: tuple[int, ...], parts: list[Any], place: int | None, read: Read) -> Any:
    assert place is not None
    places = parts[place]
    _nothing(shape[:1])[places]  # dtype and bounds
    places = np.where(places < 0, places + shape[0], places).astype(np.int64)
    others = parts[:place] + parts[place + 1 :]
    if places.ndim == 1 and all(part is Ellipsis for part in others):
        return read(places)
    needed, inverse = np.unique(places, return_inverse=True)
    parts[place] = inverse.reshape(places.shape)
    return read(needed)[tuple(parts)]
