"""What a stopped pack left is gone on with for the same inputs and options alone."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from program import ramp

SAMPLES = 400  # not a multiple of 3: the last of three shards is the largest
SHAPE = (16, 16)
PACK = ("--codec", "raw", "--samples-per-chunk", "10")


def values(start=0, samples=SAMPLES):
    return ramp(samples, start, SHAPE)


def stop_midway(tool, *args):
    """Runs pack until a file grows too large: in the middle, or in the last of several shards."""
    tool.run(*args)
    sizes = sorted(p.stat().st_size for p in tool.folder.glob("d*.tuck"))
    for path in tool.folder.glob("d*.tuck"):
        path.unlink()
    limit = sizes[-2] // 1024 + 1 if len(sizes) > 2 else sizes[-1] // 2048
    command = f"ulimit -f {limit}; exec " + " ".join(f"'{a}'" for a in tool.command(*args))
    done = subprocess.run(
        ["bash", "-c", command], cwd=tool.folder, capture_output=True, check=False
    )
    assert done.returncode != 0


def stopped(tool, *more):
    """A partial file of the first values; returns the arguments of the run."""
    np.save(tool.folder / "a.npy", values())
    args = ("pack", "a.npy", "-o", "d.tuck", *PACK, *more)
    stop_midway(tool, *args)
    left = {f for f in tool.files() if f.endswith(".partial")}
    assert "d.tuck.partial" in left and not (tool.folder / "d.tuck").exists()
    if more:
        assert len(left) == 2 and any(f.endswith(".tuck") for f in tool.files())
    return args


def test_the_same_goes_on(tool):
    args = stopped(tool)
    tool.run(*args, "--resume")
    assert np.array_equal(tool.unpacked("d.tuck"), values())
    resumed = (tool.folder / "d.tuck").read_bytes()
    tool.run(*args, "-f")
    assert (tool.folder / "d.tuck").read_bytes() == resumed
    assert tool.files() == {"a.npy", "d.tuck"}


@pytest.mark.parametrize("shards", [(), ("--shards", "2")], ids=["file", "shards"])
def test_a_signal_ends_packing_between_two_chunks(tool, shards):
    noise = np.random.default_rng(2).integers(0, 1000, (150, 128, 128)).astype("f4")
    np.save(tool.folder / "a.npy", noise)  # one batch of pack's
    args = ("pack", "a.npy", "-o", "d.tuck", "--codec", "zstd(level=19)", "--threads", "1", *shards)
    # Commands in the background ignore it, and so does what they start.
    default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    packing = tool.start(*args, preexec_fn=default)
    while packing.poll() is None and all(
        p.stat().st_size < 50_000 for p in tool.folder.glob("d*.partial")
    ):
        time.sleep(0.001)
    packing.send_signal(signal.SIGINT)
    said = packing.communicate()[1].decode()
    assert packing.returncode == -signal.SIGINT and "--resume goes on" in said
    left = sum(p.stat().st_size for p in tool.folder.glob("d*.partial"))
    tool.run(*args, "--resume")
    assert np.array_equal(tool.unpacked("d.tuck"), noise)
    resumed = [p.read_bytes() for p in sorted(tool.folder.glob("d*.tuck"))]
    assert 50_000 <= left < sum(map(len, resumed)) / 2
    if not shards:
        tool.run(*args, "-f")
        assert (tool.folder / "d.tuck").read_bytes() == resumed[0]


@pytest.mark.parametrize("shards", [(), ("--shards", "3")], ids=["file", "shards"])
@pytest.mark.parametrize("change", ["values", "same time", "more samples", "fewer samples"])
def test_changed_inputs_are_refused(tool, change, shards):
    args = stopped(tool, *shards)
    before = values()
    after = before.copy()
    if change == "values" or change == "same time":
        after += 10**6
    elif change == "more samples":
        after = values(samples=SAMPLES + 10)
    else:
        after = values(samples=SAMPLES - 10)
    old = (tool.folder / "a.npy").stat()
    np.save(tool.folder / "a.npy", after)
    if change == "same time":
        os.utime(tool.folder / "a.npy", ns=(old.st_atime_ns, old.st_mtime_ns))
    done = tool.run(*args, "--resume", exit=2)
    assert "d.tuck.partial" in done.stderr or ".partial" in done.stderr
    assert "input" in done.stderr or "samples" in done.stderr
    assert not (tool.folder / "d.tuck").exists()
    # What was packed stays for the inputs it was packed from.
    np.save(tool.folder / "a.npy", before)
    os.utime(tool.folder / "a.npy", ns=(old.st_atime_ns, old.st_mtime_ns))
    tool.run(*args, "--resume")
    assert np.array_equal(tool.unpacked("d.tuck"), before)


@pytest.mark.parametrize("shards", [(), ("--shards", "3")], ids=["file", "shards"])
@pytest.mark.parametrize("time", ["new", "put back"])
@pytest.mark.parametrize("sample", [7, 352, 692])  # none of those that a digest of some takes
def test_one_changed_value_is_noticed_or_packed(tool, sample, time, shards):
    """Whatever a digest of some samples says: nothing of the old input is left in the file."""
    before = ramp(700, 0, (32, 32))
    np.save(tool.folder / "a.npy", before)
    args = ("pack", "a.npy", "-o", "d.tuck", *PACK, *shards)
    stop_midway(tool, *args)
    old = (tool.folder / "a.npy").stat()
    after = before.copy()
    after[sample, 1, 1] += 1
    np.save(tool.folder / "a.npy", after)
    if time == "put back":
        os.utime(tool.folder / "a.npy", ns=(old.st_atime_ns, old.st_mtime_ns))
    done = tool.run(*args, "--resume", exit=None)
    if sample == 7:  # the first chunk is always there
        assert done.returncode == 2 and "a.npy" in done.stderr and "--force" in done.stderr
    if done.returncode == 2:
        assert not (tool.folder / "d.tuck").exists()
        tool.run(*args, "-f")
    assert np.array_equal(tool.unpacked("d.tuck"), after)


def test_a_changed_value_is_noticed_beside_masks_and_losses(tool):
    """What is packed is compared, not what comes back."""
    x = np.random.default_rng(0).normal(size=(SAMPLES, 64, 64)).astype(np.float32)
    x[:, 2, 2] = 99
    codec = ("--fill", 99, "--codec", "dct_quant(rate=4)", "--samples-per-chunk", 10)
    args = ("pack", "a.npy", "-o", "d.tuck", *codec)
    np.save(tool.folder / "a.npy", x)
    stop_midway(tool, *args)
    old = (tool.folder / "a.npy").stat()
    for place, value in (((2, 2, 2), 98), ((2, 5, 5), 99)):
        changed = x.copy()
        changed[place] = value
        np.save(tool.folder / "a.npy", changed)
        os.utime(tool.folder / "a.npy", ns=(old.st_atime_ns, old.st_mtime_ns))
        tool.run(*args, "--resume", exit=2)
    np.save(tool.folder / "a.npy", x)
    tool.run(*args, "--resume")
    once = (tool.folder / "d.tuck").read_bytes()
    tool.run(*args, "-f")
    assert (tool.folder / "d.tuck").read_bytes() == once


def test_inputs_may_move(tool):
    args = stopped(tool)
    (tool.folder / "there").mkdir()
    (tool.folder / "a.npy").rename(tool.folder / "there/b.npy")
    tool.run("pack", "there/b.npy", *args[2:], "--resume")
    assert np.array_equal(tool.unpacked("d.tuck"), values())


def test_standard_input(tool):
    """A pipe has no time of change: its bytes count."""
    np.save(tool.folder / "a.npy", values())
    np.save(tool.folder / "b.npy", values(10**6))
    pack = " ".join(tool.command("pack", "-", "-o", "d.tuck", *PACK))

    def piped(name, more=""):
        command = f"cat {name} | {pack} {more}"
        return subprocess.run(
            ["bash", "-c", command], cwd=tool.folder, capture_output=True, check=False
        )

    stop_midway(tool, "pack", "a.npy", "-o", "d.tuck", *PACK)
    assert piped("b.npy", "--resume").returncode == 2
    assert piped("a.npy", "--resume").returncode == 0  # the same samples, whose file they were
    (tool.folder / "d.tuck").unlink()
    assert piped("a.npy").returncode == 0
    whole = (tool.folder / "d.tuck").read_bytes()
    (tool.folder / "d.tuck").unlink()
    limit = (tool.folder / "a.npy").stat().st_size // 1024 + 1  # for the copy of the pipe, no more
    command = f"cat a.npy | (ulimit -f {limit}; exec {pack})"
    subprocess.run(["bash", "-c", command], cwd=tool.folder, capture_output=True, check=False)
    assert (tool.folder / "d.tuck.partial").exists() and not (tool.folder / "d.tuck").exists()
    assert piped("b.npy", "--resume").returncode == 2
    assert piped("a.npy", "--resume").returncode == 0
    assert (tool.folder / "d.tuck").read_bytes() == whole


@pytest.mark.parametrize("shards", [(), ("--shards", "3")], ids=["file", "shards"])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("--codec", "zstd"), "codec"),
        (("--samples-per-chunk", "20"), "chunk"),
        (("--seed", "7"), "seed"),
        (("--metadata", '{"a": 1}'), "metadata"),
        (("--rename", "data=x"), "x"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_changed_options_are_refused(tool, change, named, shards):
    args = list(stopped(tool, *shards))
    if change[0] in args:
        args[args.index(change[0]) + 1] = change[1]
    else:
        args += change
    done = tool.run(*args, "--resume", exit=2)
    assert named in done.stderr


@pytest.mark.parametrize("shards", [(), ("--shards", "3")], ids=["file", "shards"])
@pytest.mark.parametrize(("then", "now"), [("10", "1e-4"), (None, "1e-4"), ("1e-4", None)])
def test_another_bound_is_refused(tool, then, now, shards):
    """Else a file would have chunks that were checked with a wider one."""
    np.save(tool.folder / "a.npy", np.random.default_rng(0).random((SAMPLES, 64, 64), np.float32))
    args = (
        "pack",
        "a.npy",
        "-o",
        "d.tuck",
        "--codec",
        "data=dct_quant(rate=4)",
        *PACK[2:],
        *shards,
    )
    bound = [() if b is None else ("--max-error", b) for b in (then, now)]
    stop_midway(tool, *args, *bound[0])
    done = tool.run(*args, *bound[1], "--resume", exit=2)
    assert "max_error" in done.stderr and not (tool.folder / "d.tuck").exists()
    tool.run(*args, *bound[0], "--resume")


@pytest.mark.parametrize("shards", [("--shards", "4"), ()], ids=["4", "none"])
def test_other_shards_are_refused(tool, shards):
    args = stopped(tool, "--shards", "3")
    done = tool.run(*args[:-2], *shards, "--resume", exit=2)
    assert "shards" in done.stderr


def test_finished_shards_of_another_run_are_not_taken(tool):
    args = stopped(tool, "--shards", "3")
    new = values(10**6)
    np.save(tool.folder / "a.npy", new)
    tool.run(*args, "--resume", exit=2)
    tool.run(*args, "-f")
    assert np.array_equal(tool.unpacked("d.tuck"), new)


def test_a_partial_file_is_not_discarded_silently(tool):
    args = stopped(tool)
    size = (tool.folder / "d.tuck.partial").stat().st_size
    done = tool.run(*args, exit=2)
    assert (
        "d.tuck.partial" in done.stderr and "--resume" in done.stderr and "--force" in done.stderr
    )
    assert (tool.folder / "d.tuck.partial").stat().st_size == size
    tool.run(*args, "-f")
    assert tool.files() == {"a.npy", "d.tuck"}


def test_stopped_shards_are_not_discarded_silently(tool):
    args = stopped(tool, "--shards", "3")
    files = tool.files()
    done = tool.run(*args, exit=2)
    assert ".partial" in done.stderr and "--resume" in done.stderr
    assert tool.files() == files
    tool.run(*args, "--resume")
    assert np.array_equal(tool.unpacked("d.tuck"), values())
    assert not [f for f in tool.files() if f.endswith(".partial")]
