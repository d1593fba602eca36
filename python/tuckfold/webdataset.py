"""Members of WebDataset's tar files: ``.tuck`` members become arrays, and arrays ``.tuck`` members.

A member is one array, the bytes of :func:`tuckfold.dumps`, or a whole .tuck file:

>>> import io, webdataset, tuckfold.webdataset
>>> tar = io.BytesIO()
>>> x = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)
>>> with webdataset.TarWriter(tar, encoder=tuckfold.webdataset.encoder("dct_quant(rate=4)")) as writer:
...     size = writer.write({"__key__": "000000", "image.tuck": x, "cls": 7})
>>> samples = webdataset.tariterators.tar_file_expander([{"url": "-", "stream": io.BytesIO(tar.getvalue())}])
>>> samples = map(webdataset.Decoder([tuckfold.webdataset.decode]), webdataset.tariterators.group_by_keys(samples))
>>> sample = next(samples)
>>> sample["image.tuck"].shape, sample["cls"]
((64, 64), 7)

With a data set of files: ``webdataset.WebDataset(urls).decode(tuckfold.webdataset.decode)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tuckfold._file import open as open_file
from tuckfold._packed import dumps, loads
from tuckfold._spec import CodecSpec

__all__ = ["decode", "encoder"]


def decode(key: str, data: Any) -> Any:
    """A handler for WebDataset's ``decode``: what a member with the extension ``.tuck`` holds.

    Args:
        key: the member's extensions, as ``.image.tuck``.
        data: its bytes.

    Returns:
        An array; of a whole .tuck file a dict of its arrays; None for other members, which other handlers
        decode.

    Raises:
        CorruptDataError: the member is damaged. WebDataset names the tar file and the sample.
    """
    if key.rpartition(".")[2].lower() != "tuck":
        return None
    if bytes(data[:8]) != b"TuckFile":
        return loads(data)
    file = os.memfd_create("tuckfold")  # the library maps files
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(data)
        with open_file(f"/proc/self/fd/{file}", strict=True) as arrays:
            return {name: np.asarray(array) for name, array in arrays.items()}
    finally:
        os.close(file)


def encoder(spec: str | CodecSpec = "zstd") -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An encoder for WebDataset's writers: members ``.tuck`` of arrays are packed with the codec, and all
    others as WebDataset does it.

    Args:
        spec: the codec, or its text.
    """
    from webdataset.writer import default_handlers, make_encoder

    return make_encoder({**default_handlers, "tuck": lambda array: dumps(array, spec)})
