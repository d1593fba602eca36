"""A file that is cut while it is read ends in an error that names it."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest


def test_cat(tool):
    values = np.random.default_rng(1).integers(0, 2**62, (4000, 32, 32))
    np.save(tool.folder / "a.npy", values)
    tool.run("pack", "a.npy", "-o", "d.tuck", "--codec", "raw")
    process = tool.start("cat", "d.tuck")
    process.stdout.read(1000)  # the pipe is full by now, and the rest not read
    os.truncate(tool.folder / "d.tuck", 64)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 5, error
    assert b"d.tuck" in error and b"shrank" in error and error.startswith(b"tuckfold: [io]")
    assert error.count(b"\n") == 1


@pytest.mark.parametrize("threads", ["1", "4"])
def test_pack(tool, threads):
    """The input is mapped, and packed where it is."""
    path = tool.folder / "a.npy"
    np.save(path, np.random.default_rng(1).random((20_000, 32, 32), dtype=np.float32))
    for delay in (0.005, 0.02, 0.05, 0.1, 0.2):
        copy = tool.folder / "b.npy"
        copy.write_bytes(path.read_bytes())
        process = tool.start("pack", "b.npy", "-o", "d.tuck", "-f", "--threads", threads)
        time.sleep(delay)
        os.truncate(copy, 200)
        out, error = process.communicate(timeout=60)
        assert process.returncode in (0, 3, 5), (process.returncode, error)
        if process.returncode == 5:
            assert b"b.npy" in error and b"shrank" in error
            assert not (tool.folder / "d.tuck").exists()
            return
    pytest.skip("the program was faster than the cut")


def test_other_bus_errors_stay_signals(tool):
    process = tool.start("cat", "-", stdin=subprocess.PIPE)
    time.sleep(0.2)
    process.send_signal(signal.SIGBUS)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGBUS
