"""Every verb that writes, killed at random moments: nothing lost, nothing mixed.

What is left is judged by tuck_ref.py and numpy. The long runs are `pytest -m slow tests/promises`.
"""

import os
import random
import signal
import time

import numpy as np
import pytest
import tuck_ref
from program import ramp

SAMPLES = 3000
SHAPE = (32, 16)
PACK = ("--codec", "raw", "--samples-per-chunk", "50", "--threads", "2")
OLD, NEW = ramp(SAMPLES, 0, SHAPE), ramp(SAMPLES, 10**9, SHAPE)
runs = pytest.mark.parametrize(
    "kills", [4, pytest.param(100, marks=pytest.mark.slow)], ids=["few", "hundred"]
)


class Killer:
    """Runs a command, and kills it at a random moment of the time it took undisturbed."""

    def __init__(self, tool, seed):
        self.tool = tool
        self.random = random.Random(seed)
        self.seconds = {}

    def time(self, *args):
        start = time.monotonic()
        self.tool.run(*args)
        self.seconds[args[0]] = time.monotonic() - start

    def kill(self, *args, seconds=None) -> bool:
        """Whether it was killed before it ended."""
        process = self.tool.start(*args)
        time.sleep(self.random.uniform(0, 1.1 * (seconds or self.seconds[args[0]])))
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), (args, error)
        return process.returncode != 0


@pytest.fixture
def killer(tool, request):
    np.save(tool.folder / "old.npy", OLD)
    np.save(tool.folder / "new.npy", NEW)
    return Killer(tool, request.node.name)


def names(tool) -> set[str]:
    return {f for f in tool.files() if not f.endswith(".npy")}


def is_one_of(values, *wanted) -> bool:
    return any(np.array_equal(values, one) for one in wanted)


@runs
def test_pack_and_resume(killer, kills):
    tool = killer.tool
    out = tool.folder / "d.tuck"
    pack = ("pack", "in.npy", "-o", "d.tuck", *PACK)
    link = tool.folder / "in.npy"
    os.link(tool.folder / "old.npy", link)
    killer.time(*pack)
    whole = out.read_bytes()
    out.unlink()
    killed = refused = 0
    while killed < kills:
        killed += killer.kill(*pack, "--resume")
        if out.exists():
            assert np.array_equal(tuck_ref.read(out), OLD)
            out.unlink()
            continue
        if killer.random.random() < 0.3:  # other inputs: refused, or all of the file is theirs
            link.unlink()
            os.link(tool.folder / "new.npy", link)
            done = tool.run(*pack, "--resume", exit=None)
            assert done.returncode in (0, 2), done.stderr
            refused += done.returncode == 2
            if done.returncode == 0:
                assert np.array_equal(tuck_ref.read(out), NEW)
                out.unlink()
            else:
                assert not out.exists()
            link.unlink()
            os.link(tool.folder / "old.npy", link)
        if killer.random.random() < 0.5:
            tool.run(*pack, "--resume")
            assert out.read_bytes() == whole
            out.unlink()
        assert names(tool) <= {"d.tuck.partial"}
    assert refused > 0 or kills < 10


@runs
def test_shards_replaced(killer, kills):
    tool = killer.tool
    out = tool.folder / "d.tuck"
    pack = lambda name, shards: (  # noqa: E731
        *("pack", f"{name}.npy", "-o", "d.tuck", *PACK, "--shards", str(shards)),
    )
    killer.time(*pack("old", 5))
    partial = tool.folder / "d.tuck.partial"
    killed = 0
    while killed < kills:
        name = killer.random.choice(["old", "new"])
        shards = killer.random.randint(1, 7)
        command = pack(name, shards)
        others = partial.exists()  # an earlier command's, which one killed at once leaves there
        if killer.kill(*command, "-f"):
            killed += 1
            assert is_one_of(tuck_ref.read(out), OLD, NEW)
            tool.run("verify", "d.tuck")
        if killer.random.random() < 0.5:
            done = tool.run(*command, "--resume", "-f", exit=None)
            if done.returncode != 0:
                assert others and done.returncode == 2 and "begun with something" in done.stderr
                done = tool.run(*command, "-f")
            wanted = OLD if name == "old" else NEW
            assert np.array_equal(tuck_ref.read(out), wanted), done.stdout
            listed = {s["file"] for s in tuck_ref.json.loads(out.read_text())["shards"]}
            assert names(tool) == {"d.tuck", *listed}
        elif partial.exists():  # others are refused
            other = pack("new" if name == "old" else "old", shards)
            done = tool.run(*other, "--resume", "-f", exit=None)
            assert done.returncode == 2 or is_one_of(tuck_ref.read(out), OLD, NEW)
            assert is_one_of(tuck_ref.read(out), OLD, NEW)
    tool.run(*pack("new", 2), "-f")
    assert np.array_equal(tuck_ref.read(out), NEW)
    assert len(names(tool)) == 3


@runs
@pytest.mark.parametrize("shards", [(), ("--shards", "2")], ids=["file", "manifest"])
def test_append(killer, kills, shards):
    tool = killer.tool
    out = tool.folder / "d.tuck"
    append = ("pack", "new.npy", "-o", "d.tuck", *PACK, "--append")
    begin = ("pack", "old.npy", "-o", "d.tuck", *PACK, *shards, "-f")
    tool.run(*begin)
    killer.time(*append)
    both = np.concatenate([OLD, NEW])
    assert np.array_equal(tuck_ref.read(out), both)
    killed = 0
    while killed < kills:
        tool.run(*begin)
        killed += killer.kill(*append)
        values = tuck_ref.read(out)
        assert is_one_of(values, OLD, both)
        assert np.array_equal(tool.unpacked("d.tuck"), values)
        if len(values) == len(OLD):
            tool.run(*append)
            assert np.array_equal(tuck_ref.read(out), both)
        else:  # killed after the manifest was replaced: the next writer removes what is left
            tool.run(*begin)
        assert not [f for f in names(tool) if f.endswith(".partial")]


# Verbs that replace a file: what had the name has it, or the new one; nothing else is left.
REPLACE = {
    "convert": ("convert", "new.tuck", "-o", "out.tuck", "-f", "--samples-per-chunk", "20"),
    "convert to npz": ("convert", "new.tuck", "-o", "out.npz", "-f"),
    "unpack": ("unpack", "new.tuck", "-o", "out.npy", "-f"),
    "unpack to h5": ("unpack", "new.tuck", "-o", "out.h5", "-f"),
    "repair": ("repair", "new.tuck", "-o", "out.tuck", "-f"),
}


def values_of(path):
    if path.suffix == ".tuck":
        return tuck_ref.read(path)
    if path.suffix == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path) as file:
            return file["data"][:]
    with np.load(path) if path.suffix == ".npz" else path.open("rb") as file:
        return file["data"] if path.suffix == ".npz" else np.load(file)


@runs
@pytest.mark.parametrize("verb", REPLACE)
def test_replacing(killer, verb, kills):
    tool = killer.tool
    for name in ("old", "new"):
        tool.run("pack", f"{name}.npy", "-o", f"{name}.tuck", *PACK)
    command = REPLACE[verb]
    out = tool.folder / command[3]
    old = tuple(a.replace("new", "old") for a in command)
    killer.time(*old)
    files = tool.files()
    before = out.read_bytes()
    tool.run(*command)
    after = out.read_bytes()
    killed = 0
    while killed < kills:
        tool.run(*old)
        killed += killer.kill(*command)
        left = out.read_bytes()
        assert left in (before, after) or verb == "unpack to h5"
        assert is_one_of(values_of(out), OLD, NEW)
        left = {
            f
            for f in tool.files() - files
            if not (f.startswith(".out.h5.") and verb.endswith("h5"))
        }
        assert not left and files <= tool.files()
