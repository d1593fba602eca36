"""A file whose last append cannot be read says so, whatever reads it."""

import os

import numpy as np
import pytest
from program import ramp

READERS = {
    "unpack": ("unpack", "d.tuck", "-o", "x.npy"),
    "slice": ("slice", "d.tuck", "0:2", "-o", "x.npy"),
    "cat": ("cat", "d.tuck"),
    "convert": ("convert", "d.tuck", "-o", "x.tuck"),
    "convert to npy": ("convert", "d.tuck", "-o", "x.npy"),
    "diff": ("diff", "d.tuck", "a.npy"),
    "diff, original": ("diff", "a.npy", "d.tuck"),
    "view": ("view", "d.tuck", "-o", "x.png"),
    "info": ("info", "d.tuck"),
    "info --json": ("info", "d.tuck", "--json"),
}


@pytest.fixture(params=["flipped bit", "cut short"])
def damaged(request, tool):
    """Five samples of nine: the trailer of an append is broken, or its end is missing."""
    np.save(tool.folder / "a.npy", ramp(5))
    np.save(tool.folder / "b.npy", ramp(4, start=99))
    tool.run("pack", "a.npy", "-o", "d.tuck")
    tool.run("pack", "b.npy", "-o", "d.tuck", "--append")
    file = tool.folder / "d.tuck"
    if request.param == "flipped bit":
        data = bytearray(file.read_bytes())
        data[-30] ^= 4
        file.write_bytes(data)
    else:
        os.truncate(file, file.stat().st_size - 70)
    return tool


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_warns(damaged, reader):
    done = damaged.run(*READERS[reader], text=False)
    warning = done.stderr.decode()
    assert "warning" in warning and "d.tuck" in warning and "missing" in warning


@pytest.mark.parametrize("reader", [*READERS, "verify"])
def test_strict_refuses(damaged, reader):
    args = READERS.get(reader, ("verify", "d.tuck"))
    before = damaged.files()
    done = damaged.run(*args, "--strict", exit=3)
    assert "d.tuck" in done.stderr and "missing" in done.stderr
    assert damaged.files() == before


@pytest.mark.parametrize("reader", READERS)
def test_a_whole_file_is_read_without_a_word(tool, reader):
    np.save(tool.folder / "a.npy", ramp(5))
    tool.run("pack", "a.npy", "-o", "d.tuck")
    done = tool.run(*READERS[reader], "--strict", text=False)
    assert done.stderr == b""


def test_shards(tool):
    np.save(tool.folder / "a.npy", ramp(10))
    np.save(tool.folder / "b.npy", ramp(10, start=50))
    tool.run("pack", "a.npy", "-o", "d.tuck", "--shards", "2")
    with (tool.folder / "d-00001-of-00002.tuck").open("ab") as file:
        file.write(b"x" * 100)
    done = tool.run("unpack", "d.tuck", "-o", "x.npy")
    assert "d-00001-of-00002.tuck" in done.stderr and "warning" in done.stderr
    assert np.array_equal(np.load(tool.folder / "x.npy"), ramp(10))
    tool.run("unpack", "d.tuck", "-o", "x.npy", "-f", "--strict", exit=3)
