"""Metadata are JSON in UTF-8, or refused."""

import json

import numpy as np
import pytest
from program import ramp

BAD = {
    "latin1": b'{"name": "caf\xe9"}',
    "overlong": b'{"name": "\xc0\xaf"}',
    "surrogate": b'{"name": "\xed\xa0\x80"}',
    "beyond unicode": b'{"name": "\xf4\x90\x80\x80"}',
    "cut": b'{"name": "\xe2\x82"}',
    "in a key": b'{"caf\xe9": 1}',
    "no object": b"[1]",
    "too large a number": b'{"a": 1e999}',
}


@pytest.mark.parametrize("bad", BAD)
def test_refused_at_the_door(tool, bad):
    np.save(tool.folder / "a.npy", ramp(3))
    (tool.folder / "m.json").write_bytes(BAD[bad])
    done = tool.run("pack", "a.npy", "-o", "d.tuck", "--metadata", "@m.json", exit=2)
    assert "metadata" in done.stderr
    tool.run("pack", "a.npy", "-o", "d.tuck", "--metadata", BAD[bad], exit=2)
    assert tool.files() == {"a.npy", "m.json"}


def test_utf8_is_kept(tool):
    np.save(tool.folder / "a.npy", ramp(3))
    metadata = {"name": "café €\U0001f600", "n": 1e300, "big": 12345678901234567890}
    (tool.folder / "m.json").write_text(json.dumps(metadata, ensure_ascii=False), "utf-8")
    tool.run("pack", "a.npy", "-o", "d.tuck", "--metadata", "@m.json")
    assert json.loads(tool.run("info", "d.tuck", "--json").stdout)[0]["metadata"] == metadata


def test_readers_name_it(tool):
    """A file with such metadata, every checksum of it right."""
    np.save(tool.folder / "a.npy", ramp(3))
    tool.run("pack", "a.npy", "-o", "d.tuck", "--metadata", '{"name": "cafQ"}')
    data = bytearray((tool.folder / "d.tuck").read_bytes())
    while (at := data.find(b"cafQ")) >= 0:
        data[at + 3] = 0xE9
    seal(data)
    (tool.folder / "d.tuck").write_bytes(data)
    for args in (("info", "d.tuck"), ("info", "d.tuck", "--json"), ("verify", "d.tuck")):
        done = tool.run(*args, exit=3)
        assert "UTF-8" in done.stderr and "d.tuck" in done.stderr


def test_names_of_arrays(tool):
    name = "caf\udce9.npy"  # latin1, as the file system may have it
    np.save(tool.folder / "a.npy", ramp(3))
    (tool.folder / "a.npy").rename(tool.folder / name)
    done = tool.run("pack", name, "-o", "d.tuck", "--side-by-side", exit=2)
    assert "UTF-8" in done.stderr and "--rename" in done.stderr


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def seal(data: bytearray) -> None:
    """Makes the checksums of schema and index records right again, as docs/format.md has them."""
    for at in range(64, len(data), 64):
        if data[at : at + 4] != b"TkRc" or int.from_bytes(data[at + 24 : at + 32], "little") != at:
            continue
        if int.from_bytes(data[at + 4 : at + 8], "little") not in (1, 3):
            continue
        size = int.from_bytes(data[at + 8 : at + 16], "little")
        data[at + 20 : at + 24] = crc32c(data[at + 32 : at + 32 + size]).to_bytes(4, "little")
        head = data[at : at + 16] + bytes(4) + data[at + 20 : at + 32]
        data[at + 16 : at + 20] = crc32c(bytes(head)).to_bytes(4, "little")
