#!/usr/bin/env python3
"""Writes a manifest of .tuck files in one folder, as docs/format.md has it: make_manifest.py OUT FILE..."""

import json
import sys
from pathlib import Path


def entry(path: Path) -> dict:
    data = path.read_bytes()
    number = lambda at, size: int.from_bytes(data[at : at + size], "little")  # noqa: E731
    trailer = len(data) - 64
    return {
        "file": path.name,
        "samples": number(trailer + 24, 8),
        "bytes": len(data),
        "index_crc": f"{number(number(trailer, 8) + 20, 4):08x}",
    }


out, *files = sys.argv[1:]
shards = [entry(Path(file)) for file in files]
Path(out).write_text(json.dumps({"tuckfold_manifest": 1, "shards": shards}))
