"""Messages that cannot be written change neither the work nor the exit status."""

import subprocess

import numpy as np
import pytest
from program import ramp

SINKS = {"full": "2>/dev/full", "closed": "2>&-"}


def shell(tool, sink: str, *args) -> int:
    command = " ".join(f"'{word}'" for word in tool.command(*args))
    done = subprocess.run(
        ["bash", "-c", f"{command} {SINKS[sink]} >/dev/null"], cwd=tool.folder, check=False
    )
    return done.returncode


@pytest.mark.parametrize("sink", SINKS)
def test_errors_keep_their_status(tool, sink):
    assert shell(tool, sink, "info", "nosuch.tuck") == 5
    assert shell(tool, sink, "info", "nosuch.tuck", "other.tuck") == 5
    assert shell(tool, sink, "pack") == 2
    assert shell(tool, sink) == 2
    assert shell(tool, sink, "nosuchverb") == 2


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("more", [(), ("--shards", 3)], ids=["file", "shards"])
def test_warnings_do_not_end_the_work(tool, sink, more):
    values = np.random.default_rng(0).normal(size=(40, 16, 16)).astype(np.float32)
    values[7, 3, 3] = np.nan
    np.save(tool.folder / "a.npy", values)
    args = ("pack", "a.npy", "--codec", "dct_quant(rate=4)", *more)
    tool.run(*args, "-o", "said.tuck")
    assert shell(tool, sink, *args, "-o", "q.tuck") == 0
    tool.run("diff", "q.tuck", "said.tuck", "--fail-below", 1000)
    tool.run("verify", "q.tuck", "--strict")
    assert (
        shell(tool, sink, "convert", "q.tuck", "-o", "c.tuck", "--codec", "dct_quant(rate=2)") == 0
    )
    tool.run("verify", "c.tuck", "--strict")
    assert shell(tool, sink, "diff", "c.tuck", "a.npy", "--fail-below", 1000) == 1
    assert shell(tool, sink, "repair", "q.tuck", "-o", "r.tuck") == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_files_do_not_take_the_place_of_closed_streams(tool, closed):
    """A file that is opened first gets the lowest number, which may be that of a closed stream."""
    np.save(tool.folder / "a.npy", ramp(200))
    tool.run("pack", "a.npy", "-o", "said.tuck")
    command = " ".join(tool.command("pack", "a.npy", "-o", "q.tuck"))
    done = subprocess.run(
        ["bash", "-c", f"{command} {closed}"], cwd=tool.folder, check=False, capture_output=True
    )
    assert done.returncode == (5 if ">&-" in closed.replace("2>&-", "") else 0)
    said = (tool.folder / "said.tuck").read_bytes()
    assert (tool.folder / "q.tuck").read_bytes() == said


def test_a_limit_on_sizes_is_an_error_of_output(tool):
    np.save(tool.folder / "a.npy", np.random.default_rng(0).random((200, 32, 32)))
    command = " ".join(tool.command("pack", "a.npy", "-o", "q.tuck"))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; {command}"],
        cwd=tool.folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 5 and "File too large" in done.stderr
    tool.run("pack", "a.npy", "-o", "q.tuck", "--resume")
    tool.run("verify", "q.tuck")
