"""Outputs: whole or absent, of one writer, never in place of an input, a device or a link."""

import os
import stat
import subprocess
import threading

import numpy as np
import pytest
from program import PROGRAM, ramp


@pytest.fixture
def data(tool):
    np.save(tool.folder / "a.npy", ramp(64, shape=(16, 16)).astype(np.float32))
    tool.run("pack", "a.npy", "-o", "a.tuck")
    return tool


# Verbs that write, with OUT in place of the output.
WRITERS = {
    "pack": ("pack", "a.npy", "-o", "OUT.tuck"),
    "unpack": ("unpack", "a.tuck", "-o", "OUT.npy"),
    "slice": ("slice", "a.tuck", "3:9", "-o", "OUT.npy"),
    "convert": ("convert", "a.tuck", "-o", "OUT.tuck"),
    "convert to npy": ("convert", "a.tuck", "-o", "OUT.npy"),
    "repair": ("repair", "a.tuck", "-o", "OUT.tuck"),
    "view": ("view", "a.tuck", "-o", "OUT.png"),
    "view html": ("view", "a.tuck", "-o", "OUT.html"),
    "eval": ("eval", "a.npy", "--codec", "dct_chop(keep=4)", "--png", "OUT.png"),
}


def writing(verb, out):
    """The command with that output, and --force."""
    suffix = next(a for a in WRITERS[verb] if a.startswith("OUT"))[3:]
    return [a if not a.startswith("OUT") else f"{out}{suffix}" for a in WRITERS[verb]] + ["-f"]


@pytest.mark.parametrize("verb", WRITERS)
def test_an_existing_file_needs_force(data, verb):
    args = writing(verb, "o")[:-1]
    out = next(a for a in args if a.startswith("o."))
    (data.folder / out).write_bytes(b"mine")
    data.run(*args, exit=2)
    assert (data.folder / out).read_bytes() == b"mine"
    data.run(*args, "-f")
    assert (data.folder / out).read_bytes() != b"mine"


@pytest.mark.parametrize("verb", WRITERS)
def test_outputs_leave_nothing_else(data, verb):
    before = data.files()
    args = writing(verb, "o")
    data.run(*args)
    assert len(data.files() - before) == 1
    # An output that cannot be made leaves nothing at all.
    (data.folder / "closed").mkdir(mode=0o555)
    if os.getuid() != 0:
        data.run(*writing(verb, "closed/o"), exit=5)


@pytest.mark.parametrize("verb", WRITERS)
def test_symlinks_are_followed(data, verb):
    args = writing(verb, "link")
    link = data.folder / next(a for a in args if a.startswith("link"))
    (data.folder / "there").mkdir()
    target = data.folder / "there" / f"real{link.suffix}"
    target.write_bytes(b"old")
    link.symlink_to(target)
    data.run(*args)
    assert link.is_symlink() and target.read_bytes() != b"old"
    target.unlink()  # a link to nothing yet
    data.run(*args)
    assert link.is_symlink() and target.exists()
    assert data.files() == {"a.npy", "a.tuck", f"there/{target.name}", link.name}


@pytest.mark.parametrize("verb", WRITERS)
def test_devices_are_written_through(data, verb):
    args = writing(verb, "o")
    out = next(a for a in args if a.startswith("o."))
    fifo = data.folder / out
    os.mkfifo(fifo)
    got = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    data.run(*args)
    reader.join(20)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    fifo.unlink()
    data.run(*args)
    assert got == [fifo.read_bytes()]
    null = data.folder / f"null{fifo.suffix}"
    null.symlink_to("/dev/null")
    data.run(*[str(null) if a == out else a for a in args])
    assert stat.S_ISCHR(null.stat().st_mode)


@pytest.mark.parametrize("how", ["same", "symlink", "hard link"])
@pytest.mark.parametrize(
    "args",
    [
        ("pack", "in", "--dtype", "u8", "--shape", "8", "-o", "OUT"),
        ("unpack", "in.tuck", "-o", "OUT.npy"),
        ("slice", "in.tuck", "2", "-o", "OUT.npy"),
        ("convert", "in.tuck", "-o", "OUT.tuck"),
        ("convert", "in.tuck", "-o", "OUT.npy"),
        ("repair", "in.tuck", "-o", "OUT"),
        ("view", "in.npy", "-o", "OUT.png"),
        ("view", "in.tuck", "--against", "in.npy", "-o", "OUT.png"),
        ("eval", "in.npy", "--codec", "raw", "--png", "OUT"),
    ],
    ids=lambda args: args[0],
)
def test_an_input_is_never_written_over(tool, args, how):
    values = ramp(8, shape=(8, 8))
    np.save(tool.folder / "in.npy", values)
    (tool.folder / "in.npy").with_name("in").write_bytes(bytes(64))
    tool.run("pack", "in.npy", "-o", "in.tuck")
    source = next(a for a in args if a.startswith("in"))
    content = (tool.folder / source).read_bytes()
    out = next(a for a in args if a.startswith("OUT"))
    place = tool.folder / ("x" + out[3:])
    if how == "symlink":
        place.symlink_to(source)
    elif how == "hard link" or (out != "OUT" and not source.endswith(out[3:])):
        os.link(tool.folder / source, place)
    else:
        place = tool.folder / source
    done = tool.run(*[str(place) if a == out else a for a in args], "-f", exit=2)
    assert "input" in done.stderr
    assert (tool.folder / source).read_bytes() == content


def test_a_folder_of_images_is_never_written_over(data):
    data.run("view", "a.tuck", "-o", "p.png")
    (data.folder / "folder").mkdir()
    (data.folder / "p.png").rename(data.folder / "folder/p.png")
    content = (data.folder / "folder/p.png").read_bytes()
    data.run("view", "folder", "-o", "folder/p.png", "-f", exit=2)
    assert (data.folder / "folder/p.png").read_bytes() == content


def test_shards_and_metadata_are_inputs(data):
    data.run("pack", "a.npy", "-o", "s.tuck", "--shards", "2")
    data.run("convert", "s.tuck", "-o", "s-00001-of-00002.tuck", "-f", exit=2)
    data.run("convert", "s.tuck", "-o", "s.tuck", "-f", exit=2)
    (data.folder / "m.json").write_text("{}")
    data.run("pack", "a.npy", "--metadata", "@m.json", "-o", "m.json", "-f", exit=2)
    (data.folder / "x.partial").write_bytes(bytes(64))
    data.run("pack", "x.partial", "--dtype", "u8", "--shape", "8", "-o", "x", "-f", exit=2)
    assert (data.folder / "x.partial").read_bytes() == bytes(64)
    assert np.array_equal(data.unpacked("s.tuck"), np.load(data.folder / "a.npy"))


def test_standard_output_is_no_input(data):
    with (data.folder / "a.tuck").open("ab") as out:
        done = data.run("cat", "a.tuck", exit=2, stdout=out, stderr=subprocess.PIPE)
    assert "input" in done.stderr


def test_an_npz_is_no_folder(data):
    data.run("unpack", "a.tuck", "-o", "x.npz")
    assert (data.folder / "x.npz").is_file()
    with np.load(data.folder / "x.npz") as file:
        assert np.array_equal(file["data"], np.load(data.folder / "a.npy"))


@pytest.mark.parametrize("verb", [v for v in WRITERS if v != "pack"])
def test_two_writers_leave_one_whole_file(data, verb):
    """Each writes a file of its own; the last to finish has the name."""
    other = np.flip(np.load(data.folder / "a.npy"))
    np.save(data.folder / "b.npy", other)
    data.run("pack", "b.npy", "-o", "b.tuck")
    commands = []
    for name in "ab":
        args = [a.replace("a.", f"{name}.") for a in writing(verb, "o")]
        commands.append(args)
    out = data.folder / next(a for a in commands[0] if a.startswith("o."))
    whole = []
    for args in commands:
        data.run(*args)
        whole.append(out.read_bytes())
    for _ in range(10):
        running = [data.start(*args) for args in commands * 2]
        for process in running:
            assert process.wait(30) == 0
            process.stdout.close()
            process.stderr.close()
        assert out.read_bytes() in whole
    assert not [f for f in data.files() if "partial" in f or f.startswith(".")]


def test_two_packs_of_one_output(data):
    """The second is refused while the first lives; what a dead one left can be gone on with."""
    big = data.folder / "big.npy"
    np.save(big, np.random.default_rng(1).random((300, 64, 64), dtype=np.float32))
    first = data.start("pack", "big.npy", "-o", "o.tuck", "--threads", "1")
    partial = data.folder / "o.tuck.partial"
    while not partial.exists() and first.poll() is None:
        pass
    first.send_signal(subprocess.signal.SIGSTOP)
    try:
        if partial.exists():
            for more in ((), ("-f",), ("--resume",)):
                done = data.run("pack", "big.npy", "-o", "o.tuck", *more, exit=None)
                assert done.returncode in (2, 5) and "o.tuck" in done.stderr
    finally:
        first.send_signal(subprocess.signal.SIGCONT)
    assert first.wait(60) == 0
    first.stdout.close()
    first.stderr.close()
    assert np.array_equal(data.unpacked("o.tuck"), np.load(big))


def test_permissions_stay(data):
    out = data.folder / "o.npy"
    data.run("unpack", "a.tuck", "-o", "o.npy")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~umask
    out.chmod(0o600)
    data.run("unpack", "a.tuck", "-o", "o.npy", "-f")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_the_program_is_there():
    assert PROGRAM.exists()
