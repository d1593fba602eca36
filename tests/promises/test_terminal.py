"""What a narrow terminal shows: no line is longer than it, so that none is left behind or broken."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import numpy as np
import pytest


def on_terminal(tool, columns: int, *args) -> str:
    """What the program writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        tool.command(*args), cwd=tool.folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert process.wait(60) == 0, text
    return text.decode()


def lines(text: str) -> list[str]:
    return re.split(r"[\r\n]+", text.replace("\x1b[K", ""))


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_progress_fits_the_terminal(tool, columns):
    rng = np.random.default_rng(0)
    np.save(tool.folder / "x.npy", rng.normal(size=(600, 128, 128)).astype(np.float32))
    args = ("pack", "x.npy", "-o", "x.tuck", "--codec", "shuffle | zstd(level=9)", "--threads", 1)
    text = on_terminal(tool, columns, *args)
    shown = [line for line in lines(text) if "%" in line]
    assert shown and "\x1b[K" in text
    assert max(map(len, shown)) < columns


@pytest.mark.parametrize("columns", [40, 200])
def test_tables_that_do_not_fit_are_lists(tool, columns):
    field = np.random.default_rng(0).normal(size=(4, 16, 16)).astype(np.float32)
    np.save(tool.folder / "x.npy", field)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--codec", "dct_quant(rate=4)")
    text = on_terminal(tool, columns, "diff", "x.tuck", "x.npy")
    assert max(map(len, lines(text))) <= columns
    assert ("worst sample  " in text) == (columns == 40) or "worst sample  its PSNR" in text
    if columns == 40:
        assert re.search(r"^PSNR dB +\d", "\n".join(lines(text)), re.MULTILINE)
    # Not on a terminal the table is the same at any width.
    assert "worst sample  its PSNR" in tool.run("diff", "x.tuck", "x.npy").stdout


def test_help_of_a_narrow_terminal_is_not_a_column_of_ten(tool):
    text = "\n".join(lines(on_terminal(tool, 40, "pack", "--help")))
    options = text.split("Options:")[1].split("Example")[0]
    words = [line for line in options.splitlines() if line.startswith("      ")]
    assert words and sum(len(line.strip()) for line in words) / len(words) > 20


def test_verbs_of_the_python_package_say_where_they_are(tool):
    for verb in ("activations", "factorize", "study"):
        done = tool.run(verb, exit=2, env={"PATH": "/nonexistent"})
        assert "Python package" in done.stderr and f"tuckfold-{verb}" in done.stderr
    for words in (("--dask", "tcp://host:1"), ("--dask=scheduler.json",)):
        done = tool.run(
            "pack", "x.npy", *words, "-o", "x.tuck", exit=2, env={"PATH": "/nonexistent"}
        )
        assert "Python package" in done.stderr and "tuckfold-pack-dask" in done.stderr


def test_complex_arrays_are_not_advised_to_lose_half(tool):
    np.save(tool.folder / "x.npy", np.zeros((2, 3), np.complex64))
    done = tool.run("pack", "x.npy", "-o", "x.tuck", exit=4)
    assert ".imag" in done.stderr and "astype" not in done.stderr
