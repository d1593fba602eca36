"""A sharded dataset is replaced as a whole, or not at all."""

import json
import os

import numpy as np
import pytest
from program import ramp

CHUNK = ("--samples-per-chunk", "10")


def pack(tool, name, values, *args, **kwargs):
    np.save(tool.folder / f"{name}.npy", values)
    return tool.run("pack", f"{name}.npy", "-o", "d.tuck", *CHUNK, *args, **kwargs)


def shards_of(tool):
    manifest = json.loads((tool.folder / "d.tuck").read_text())
    return [shard["file"] for shard in manifest["shards"]]


def kept(tool):
    """Every file of the dataset but inputs."""
    return {f for f in tool.files() if not f.endswith(".npy")}


def test_replacing_leaves_no_old_shard(tool):
    pack(tool, "a", ramp(100), "--shards", "5")
    assert kept(tool) == {"d.tuck", *shards_of(tool)}
    new = ramp(90, start=10**6)
    for shards in (2, 2, 7):
        pack(tool, "b", new, "--shards", str(shards), "-f")
        assert len(shards_of(tool)) == shards
        assert kept(tool) == {"d.tuck", *shards_of(tool)}
        assert np.array_equal(tool.unpacked("d.tuck"), new)


def test_one_file_in_place_of_shards(tool):
    pack(tool, "a", ramp(100), "--shards", "5")
    pack(tool, "b", ramp(50), "-f")
    assert kept(tool) == {"d.tuck"}
    assert np.array_equal(tool.unpacked("d.tuck"), ramp(50))


@pytest.mark.parametrize(
    "verb", [["repair"], ["convert"], ["convert", "--shards", "2"]], ids=" ".join
)
def test_a_shard_of_what_is_replaced_is_no_input(tool, verb):
    """Replacing the dataset would remove it, and the other shards with it."""
    pack(tool, "a", ramp(60), "--shards", "3")
    before = {f: (tool.folder / f).read_bytes() for f in kept(tool)}
    done = tool.run(verb[0], shards_of(tool)[1], "-o", "d.tuck", "-f", *verb[1:], exit=2)
    assert "is an input, too" in done.stderr
    assert {f: (tool.folder / f).read_bytes() for f in kept(tool)} == before


def test_files_beside_a_dataset_are_left_alone(tool):
    """A manifest may list files that pack did not name: those are not its to remove."""
    pack(tool, "a", ramp(100), "--shards", "2")
    manifest = json.loads((tool.folder / "d.tuck").read_text())
    first = manifest["shards"][0]["file"]
    (tool.folder / first).rename(tool.folder / "mine.tuck")
    manifest["shards"][0]["file"] = "mine.tuck"
    (tool.folder / "d.tuck").write_text(json.dumps(manifest))
    assert np.array_equal(tool.unpacked("d.tuck"), ramp(100))
    pack(tool, "b", ramp(50), "--shards", "2", "-f")
    assert "mine.tuck" in tool.files()


@pytest.mark.parametrize("fail_at", range(1, 6))
def test_a_failed_replacement_leaves_the_old_dataset(tool, fail_at):
    """The folder takes no new file after some: as a full disk does, or a kill."""
    old = ramp(100)
    pack(tool, "a", old, "--shards", "3")
    np.save(tool.folder / "b.npy", ramp(100, start=10**6))
    killer = f"ulimit -f {fail_at}; exec " + " ".join(
        tool.command("pack", "b.npy", "-o", "d.tuck", "--shards", "3", "-f", *CHUNK)
    )
    import subprocess

    subprocess.run(["bash", "-c", killer], cwd=tool.folder, capture_output=True, check=False)
    values = tool.unpacked("d.tuck")
    assert np.array_equal(values, old) or np.array_equal(values, ramp(100, start=10**6))


@pytest.mark.parametrize("change", ["swap", "other samples", "truncate", "flip index", "remove"])
def test_a_shard_that_is_not_the_listed_one_is_refused(tool, change):
    pack(tool, "a", ramp(100), "--shards", "4")
    names = [tool.folder / name for name in shards_of(tool)]
    other = tool.folder / "e"
    other.mkdir()
    if change == "swap":  # of as many samples
        names[0].rename(other / "x")
        names[1].rename(names[0])
        (other / "x").rename(names[1])
    elif change == "other samples":
        np.save(tool.folder / "c.npy", ramp(25, start=777))
        tool.run("pack", "c.npy", "-o", names[2], "-f", *CHUNK)
    elif change == "truncate":
        os.truncate(names[1], names[1].stat().st_size - 64)
    elif change == "flip index":
        data = bytearray(names[1].read_bytes())
        data[-200] ^= 1
        names[1].write_bytes(data)
    else:
        names[3].unlink()
    status = 5 if change == "remove" else 3
    for verb in ("verify", "info"):
        done = tool.run(verb, "d.tuck", exit=status)
        assert "d-0000" in done.stderr
    tool.run("unpack", "d.tuck", "-o", "x.npy", exit=status)
    tool.run("convert", "d.tuck", "-o", "x.tuck", exit=status)


def test_more_shards_than_mappings(tool):
    """A process maps some 65,000 files at most; shards are mapped as they are read."""
    pack(tool, "a", ramp(3), "--shards", "1")
    manifest = json.loads((tool.folder / "d.tuck").read_text())
    shard = manifest["shards"][0]
    count = 70_000
    data = tool.folder / shard["file"]
    entries = []
    for i in range(count):
        name = f"s{i}.tuck"
        os.link(data, tool.folder / name) if i % 60_000 else (tool.folder / name).write_bytes(
            data.read_bytes()
        )
        if i % 60_000 == 0:
            data = tool.folder / name
        entries.append({**shard, "file": name})
    manifest["shards"] = entries
    (tool.folder / "big.tuck").write_text(json.dumps(manifest))
    tool.run("info", "big.tuck", timeout=120)
    tool.run("slice", "big.tuck", "209990:210000", "-o", "s.npy", timeout=120)
    assert np.array_equal(np.load(tool.folder / "s.npy"), ramp(3)[np.arange(209990, 210000) % 3])
    tool.run("unpack", "big.tuck", "-o", "all.npy", timeout=300)
    assert np.array_equal(np.load(tool.folder / "all.npy"), np.tile(ramp(3), (count, 1, 1)))
    tool.run("convert", "big.tuck", "-o", "one.tuck", timeout=300)
    tool.run("verify", "big.tuck", timeout=300)
