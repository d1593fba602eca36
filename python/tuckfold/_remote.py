"""Files on other machines, by fsspec: only the parts that are read are fetched.

A remote file has a local one of the same size, empty at first, in the temporary folder. Its index is
fetched when it is opened, and chunks when samples of theirs are first read. The library reads the local
file, with all its checks, so that a part that arrives damaged is an error as it is on a disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tuckfold import _library as lib
from tuckfold._errors import CorruptDataError

_HEAD_BYTES = 4096  # the start; small files and most manifests are no longer
_TAIL_BYTES = 64  # the trailer, see docs/format.md
_GAP_BYTES = 64 << 10  # parts that are nearer to each other are fetched as one


def is_url(path: Any) -> bool:
    """Whether a path names a file of another file system, as ``s3://bucket/train.tuck`` does."""
    return isinstance(path, str) and "://" in path


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # the child of a fork leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)


class Remote:
    """A remote .tuck file, or a manifest and its shards, and the local files that hold what was fetched."""

    def __init__(self, url: str, storage_options: dict[str, Any] | None) -> None:
        try:
            import fsspec
        except ImportError:
            raise ValueError(f"[open] '{url}' needs fsspec; install it, or copy the file") from None
        self.url, self.options = url, dict(storage_options or {})
        self._fsspec: Any = fsspec
        self._connect()
        self._folder = tempfile.mkdtemp(prefix="tuckfold-")
        self._finalizer = weakref.finalize(self, _remove, self._folder, os.getpid())
        self._chunks: dict[tuple[int, bool], Any] = {}  # of an array, or its mask
        self._have: dict[tuple[int, bool], Any] = {}
        try:
            self._files = (
                self._open_all()
            )  # (remote path, local path), in the order of the manifest
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        # An instance that another process has made may wait for a thread that this one does not have.
        self._system, self._path = self._fsspec.core.url_to_fs(
            self.url, skip_instance_cache=True, **self.options
        )

    @property
    def local(self) -> str:
        """What the library opens."""
        return str(Path(self._folder) / self._path.rpartition("/")[2])

    def close(self) -> None:
        """Removes what was fetched; the library may still read what it has mapped."""
        self._finalizer()

    def readable(self, text: str) -> str:
        """An error's text, with the names of remote files."""
        remote = self.url.rpartition("/")[0]
        return text.replace(self._folder, remote)

    # ---- opening

    def _open_all(self) -> list[tuple[str, str]]:
        head, size = self._begin(self._path)
        if not head.startswith(b"{"):
            self._fetch_index(self._path, self.local, size)
            return [(self._path, self.local)]
        text = self._get(self._path, [(0, size)], "the manifest")[0]
        Path(self.local).write_bytes(text)
        folder = self._path.rpartition("/")[0]
        files = []
        for name in _shard_names(text):
            path, local = f"{folder}/{name}", str(Path(self._folder) / name)
            _, size = self._begin(path)
            self._fetch_index(path, local, size)
            files.append((path, local))
        return files

    def _begin(self, path: str) -> tuple[bytes, int]:
        """The first bytes of a file, and its size; makes the local one."""
        try:
            size = self._system.size(path)
        except Exception as error:
            raise OSError(f"[open] cannot open '{self._shown(path)}': {_reason(error)}") from error
        if size is None:
            raise OSError(f"[open] '{self._shown(path)}' has no known size; copy the file")
        local = Path(self._folder) / path.rpartition("/")[2]
        with local.open("wb") as file:
            file.truncate(size)
        head = self._get(path, [(0, min(size, _HEAD_BYTES))], "the start")[0]
        self._put(str(local), 0, head)
        return head, size

    def _fetch_index(self, path: str, local: str, size: int) -> None:
        start = max(0, size - _TAIL_BYTES)
        tail = self._get(path, [(start, size)], "the trailer")[0]
        begin = int.from_bytes(tail[:8], "little")
        whole = len(tail) == _TAIL_BYTES and tail.endswith(b"TuckEnd.")
        # Where the last bytes are no trailer, the library searches the file for one.
        begin = begin if whole and begin < start else 0
        self._put(local, begin, self._get(path, [(begin, size)], "the index")[0])

    # ---- reading

    def fetch(self, handle: Any, number: int, name: str, samples: Any) -> None:
        """Brings the chunks of these samples, a range or sorted numbers, to the local files."""
        import numpy as np

        if self._process != os.getpid():
            self._connect()
        if len(samples) == 0:
            return
        with self._lock:
            for mask in (False, True):
                chunks, have = self._table(handle, number, mask)
                if len(chunks) == 0:
                    continue
                if isinstance(samples, range) and samples.step == 1:
                    ends = np.searchsorted(chunks["first"], [samples[0], samples[-1]], "right") - 1
                    wanted = np.arange(ends[0], ends[1] + 1)
                else:
                    wanted = np.unique(np.searchsorted(chunks["first"], samples, "right") - 1)
                wanted = wanted[
                    (wanted >= 0) & ~have[wanted]
                ]  # the library refuses samples below 0
                if len(wanted):
                    self._fetch_chunks(chunks[wanted], name)
                    have[wanted] = True

    def _table(self, handle: Any, number: int, mask: bool) -> tuple[Any, Any]:
        import numpy as np

        key = (number, mask)
        if key not in self._chunks:
            count = ctypes.c_size_t()
            lib.call("reader_chunks", handle, number, int(mask), None, 0, ctypes.byref(count))
            names = ("first", "samples", "file", "offset", "bytes")
            chunks = np.zeros(count.value, [(field, np.int64) for field in names])
            address = chunks.__array_interface__["data"][0]
            lib.call("reader_chunks", handle, number, int(mask), address, len(chunks), ctypes.byref(count))  # fmt: skip
            self._chunks[key], self._have[key] = chunks, np.zeros(len(chunks), bool)
        return self._chunks[key], self._have[key]

    def _fetch_chunks(self, chunks: Any, name: str) -> None:
        for file in sorted(set(chunks["file"].tolist())):
            some = chunks[chunks["file"] == file]
            path, local = self._files[file]
            first, last = some[0], some[-1]
            what = f"samples {first['first']} to {last['first'] + last['samples'] - 1} of '{name}'"
            ranges = _joined(
                (int(chunk["offset"]), int(chunk["offset"] + chunk["bytes"])) for chunk in some
            )
            for (begin, _), data in zip(ranges, self._get(path, ranges, what), strict=True):
                self._put(local, begin, data)

    def _get(self, path: str, ranges: list[tuple[int, int]], what: str) -> list[bytes]:
        shown = self._shown(path)
        try:
            parts = self._system.cat_ranges(
                [path] * len(ranges), [a for a, _ in ranges], [b for _, b in ranges]
            )
        except Exception as error:
            raise OSError(f"[read] '{shown}': cannot fetch {what}: {_reason(error)}") from error
        for (begin, end), part in zip(ranges, parts, strict=True):
            if isinstance(part, BaseException):
                raise OSError(f"[read] '{shown}': cannot fetch {what}: {_reason(part)}") from part
            if len(part) != end - begin:
                raise CorruptDataError(
                    f"[read] '{shown}': cannot fetch {what}: {end - begin} bytes from {begin} on were asked "
                    f"for, and {len(part)} came; the file has been truncated or replaced since it was opened"
                )
        return [bytes(part) for part in parts]

    @staticmethod
    def _put(local: str, at: int, data: bytes) -> None:
        with Path(local).open("r+b") as file:
            file.seek(at)
            file.write(data)

    def _shown(self, path: str) -> str:
        return f"{self.url.rpartition('/')[0]}/{path.rpartition('/')[2]}"


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return f"{type(error).__name__}: {error}"


def _shard_names(text: bytes) -> list[str]:
    """The files of a manifest; none where it is no manifest, which the library then says."""
    try:
        names = [shard["file"] for shard in json.loads(text)["shards"]]
    except (ValueError, KeyError, TypeError):
        return []
    plain = [name for name in names if isinstance(name, str) and "/" not in name]
    return plain if plain == names else []


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with those joined that are near to each other."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin - found[-1][1] <= _GAP_BYTES:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
