"""Manifests in every verb, files of others as outputs, ranges, several files at once."""

import json
import subprocess
import zipfile

import numpy as np
import pytest
from program import ramp

IMAGES = np.random.default_rng(5).random((60, 3, 16, 16), dtype=np.float32)
LABELS = np.arange(60, dtype=np.int64) ** 2


@pytest.fixture
def data(tool):
    np.savez(tool.folder / "in.npz", image=IMAGES, label=LABELS)
    tool.run("pack", "in.npz", "-o", "a.tuck", "--samples-per-chunk", "7")
    tool.run("pack", "in.npz", "-o", "s.tuck", "--shards", "4", "--samples-per-chunk", "7")
    return tool


def same(tool, file, image=IMAGES, label=LABELS):
    tool.run("unpack", file, "-o", "back.npz", "-f")
    with np.load(tool.folder / "back.npz") as back:
        return np.array_equal(back["image"], image) and np.array_equal(back["label"], label)


# ---- manifests


@pytest.mark.parametrize(
    "args",
    [
        ("info", "s.tuck"),
        ("verify", "s.tuck"),
        ("unpack", "s.tuck", "-o", "out"),
        ("slice", "s.tuck", "10:50", "-o", "out.npz"),
        ("cat", "s.tuck", "--select", "label"),
        ("diff", "s.tuck", "in.npz", "--fail-below", "200"),
        ("convert", "s.tuck", "-o", "out.tuck"),
        ("view", "s.tuck", "-o", "out.png"),
        ("repair", "s.tuck", "-o", "out.tuck"),
        ("pack", "in.npz", "-o", "s.tuck", "--append"),
    ],
    ids=lambda args: args[0],
)
def test_every_verb_takes_a_manifest(data, args):
    data.run(*args, text=False)


@pytest.mark.parametrize("shards", [(), ("--shards", "3")])
def test_append_to_a_manifest(data, shards):
    data.run("pack", "in.npz", "-o", "s.tuck", "--append", *shards)
    data.run("pack", "in.npz", "-o", "s.tuck", "--append")
    assert same(data, "s.tuck", np.tile(IMAGES, (3, 1, 1, 1)), np.tile(LABELS, 3))
    info = json.loads(data.run("info", "s.tuck", "--json").stdout)[0]
    assert info["samples"] == 180
    manifest = json.loads((data.folder / "s.tuck").read_text())
    assert len(manifest["shards"]) == 4 + len(shards or "1") % 4 + 1 + bool(shards)
    done = data.run("pack", "in.npz", "-o", "a.tuck", "--append", "--shards", "2", exit=2)
    assert "a.tuck" in done.stderr
    # Other arrays are refused, and nothing is left.
    files = data.files()
    np.save(data.folder / "other.npy", ramp(3))
    data.run("pack", "other.npy", "-o", "s.tuck", "--append", exit=2)
    assert data.files() == files | {"other.npy"}


def test_repair_of_a_manifest(data):
    (data.folder / "s-00002-of-00004.tuck").unlink()
    data.run("verify", "s.tuck", exit=5)
    done = data.run("repair", "s.tuck", "-o", "r.tuck", "--json")
    report = json.loads(done.stdout)[0]
    assert report["dropped"] == [{"first": 30, "samples": 15}] and report["samples"] == 45
    keep = np.r_[0:30, 45:60]
    assert same(data, "r.tuck", IMAGES[keep], LABELS[keep])
    data.run(
        "repair", "s.tuck", "-o", "-", exit=5, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    data.run("repair", "s.tuck", "-o", "s.tuck", "-f", exit=2)


# ---- convert


@pytest.mark.parametrize("inputs", [("a.tuck",), ("s.tuck",), ("a.tuck", "s.tuck")])
@pytest.mark.parametrize("shards", [1, 3, 8, 60])
def test_convert_to_shards(data, inputs, shards):
    done = data.run("convert", *inputs, "-o", "c.tuck", "--shards", str(shards), "--json")
    report = json.loads(done.stdout)[0]
    times = len(inputs)
    assert same(data, "c.tuck", np.tile(IMAGES, (times, 1, 1, 1)), np.tile(LABELS, times))
    manifest = json.loads((data.folder / "c.tuck").read_text())
    assert len(manifest["shards"]) == shards
    assert all(shard["samples"] > 0 for shard in manifest["shards"])
    if shards <= 3:  # cut where chunks end
        assert all(array["chunks_packed"] == 0 for array in report["arrays"])
    data.run("convert", *inputs, "-o", "c.tuck", "--shards", "2", exit=2)
    data.run("convert", *inputs, "-o", "c.tuck", "--shards", "2", "-f")
    assert len([f for f in data.files() if f.startswith("c")]) == 3
    data.run("convert", *inputs, "-o", "c.tuck", "-f")
    assert len([f for f in data.files() if f.startswith("c")]) == 1
    data.run("convert", *inputs, "-o", "x.tuck", "--shards", "999", exit=2)


def test_convert_of_lossy_shards_loses_nothing_more(data):
    for codec in ("dct_quant(rate=4)", "block_quant(bits=6)", "bounded(abs=0.01)"):
        data.run(
            "pack", "in.npz", "-o", "l.tuck", "--codec", codec, "--samples-per-chunk", "8", "-f"
        )
        data.run("unpack", "l.tuck", "-o", "once.npz", "-f")
        data.run("convert", "l.tuck", "-o", "c.tuck", "--shards", "7", "-f")
        data.run("unpack", "c.tuck", "-o", "twice.npz", "-f")
        with (
            np.load(data.folder / "once.npz") as once,
            np.load(data.folder / "twice.npz") as twice,
        ):
            assert np.array_equal(once["image"], twice["image"])


def test_convert_to_a_target(data):
    data.run("convert", "a.tuck", "-o", "t.tuck", "--max-error", "0.01", "--trial-values", "20000")
    data.run("unpack", "t.tuck", "-o", "t.npz")
    with np.load(data.folder / "t.npz") as back:
        assert np.abs(back["image"] - IMAGES).max() <= 0.01
        assert np.array_equal(back["label"], LABELS)
    assert (data.folder / "t.tuck").stat().st_size < (data.folder / "a.tuck").stat().st_size
    both = ("--max-error", "0.1", "--codec", "zstd")
    data.run("convert", "a.tuck", "-o", "u.tuck", *both, exit=2)
    data.run("convert", "a.tuck", "-o", "u.npz", "--max-error", "0.1", exit=2)


# ---- files of others


@pytest.mark.parametrize("verb", ["unpack", "convert"])
@pytest.mark.parametrize("file", ["a.tuck", "s.tuck"])
def test_npz(data, verb, file):
    data.run(verb, file, "-o", "x.npz")
    with np.load(data.folder / "x.npz") as out:
        assert sorted(out.files) == ["image", "label"]
        assert np.array_equal(out["image"], IMAGES) and np.array_equal(out["label"], LABELS)
    assert zipfile.ZipFile(data.folder / "x.npz").testzip() is None
    data.run("pack", "x.npz", "-o", "again.tuck")
    assert same(data, "again.tuck")
    data.run(verb, file, "-o", "x.npz", exit=2)
    done = data.run(verb, file, "-o", "/dev/stdout", "--select", "label", text=False)
    assert done.stdout.startswith(b"\x93NUMPY")


@pytest.mark.parametrize("verb", ["unpack", "convert"])
def test_hdf5(data, verb):
    h5py = pytest.importorskip("h5py")
    data.run(verb, "s.tuck", "-o", "x.h5")
    with h5py.File(data.folder / "x.h5") as out:
        assert np.array_equal(out["image"][:], IMAGES) and np.array_equal(out["label"][:], LABELS)
    data.run("pack", "x.h5", "-o", "again.tuck")
    assert same(data, "again.tuck")
    data.run(verb, "s.tuck", "-o", "x.h5", "-f")


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
)
def test_every_dtype_goes_through(tool, dtype):
    h5py = pytest.importorskip("h5py")
    values = (np.arange(24).reshape(6, 2, 2) * 9 - 90).astype(dtype)
    np.save(tool.folder / "v.npy", values)
    tool.run("pack", "v.npy", "-o", "v.tuck", "--rename", "data=group/v")
    tool.run("unpack", "v.tuck", "-o", "v.npz")
    tool.run("unpack", "v.tuck", "-o", "v.h5")
    tool.run("unpack", "v.tuck", "-o", "folder")
    with np.load(tool.folder / "v.npz") as out:
        assert out["group/v"].dtype == values.dtype and np.array_equal(out["group/v"], values)
    with h5py.File(tool.folder / "v.h5") as out:
        assert out["group/v"].dtype == values.dtype and np.array_equal(out["group/v"][:], values)
    assert np.array_equal(np.load(tool.folder / "folder/group/v.npy"), values)


def test_bf16_becomes_f32(tool):
    values = np.arange(64, dtype=np.float32) / 4
    (tool.folder / "v.bin").write_bytes((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    tool.run("pack", "v.bin", "--dtype", "bf16", "--shape", "4", "-o", "v.tuck")
    tool.run("unpack", "v.tuck", "-o", "v.npz")
    with np.load(tool.folder / "v.npz") as out:
        assert np.array_equal(out["data"], values.reshape(16, 4))


def test_other_endings_are_refused(data):
    for out in ("x.csv", "x.zip", "x.tar.gz"):
        for verb in ("unpack", "convert"):
            done = data.run(verb, "a.tuck", "-o", out, exit=2)
            assert "OUT.npz" in done.stderr
    assert not [f for f in data.files() if f.startswith("x")]
    data.run("unpack", "a.tuck", "-o", "v1.0/")
    assert (data.folder / "v1.0/image.npy").exists()


# ---- ranges

RANGES = [
    "-10:",
    "::2",
    "5:40:3",
    ":-50",
    "-1",
    "3",
    "7:8",
    "::59",
    "::100",
    "1::7",
    "-20:-10:4",
    "5:4",
    "-1:-5",
    "60:",
]


@pytest.mark.parametrize("text", RANGES)
@pytest.mark.parametrize("file", ["a.tuck", "s.tuck"])
def test_slices_are_pythons(data, text, file):
    numbers = [int(part) if part else None for part in text.split(":")]
    picked = slice(*numbers) if ":" in text else [numbers[0]]
    data.run("slice", file, text, "-o", "x.npz")
    with np.load(data.folder / "x.npz") as out:
        assert np.array_equal(out["image"], IMAGES[picked])
        assert np.array_equal(out["label"], LABELS[picked])
    done = data.run("cat", file, "--select", "label", f"--range={text}", text=False)
    assert done.stdout == LABELS[picked].tobytes()


@pytest.mark.parametrize("text", ["61:", ":61", "-61:", "::0", "::-1", "1:2:3:4", "x", "60"])
def test_ranges_outside_are_refused(data, text):
    for verb in (("slice", "a.tuck", text, "-o", "x.npz"), ("cat", "a.tuck", f"--range={text}")):
        data.run(*verb, "--select", "label", exit=2)


def test_diff_of_a_range(data):
    changed = IMAGES.copy()
    changed[::2] += 1
    np.savez(data.folder / "other.npz", image=changed, label=LABELS)
    done = data.run("diff", "a.tuck", "other.npz", "--range", "1::2", "--json")
    rows = json.loads(done.stdout)
    assert [row["exact"] for row in rows] == [True, True] and rows[0]["samples"] == 30
    done = data.run(
        "diff", "a.tuck", "other.npz", "--range", "10::20", "--json", "--select", "image"
    )
    (row,) = json.loads(done.stdout)
    assert not row["exact"] and row["samples"] == 3 and row["worst_sample"] in (10, 30, 50)


# ---- several files, help


def test_info_of_several(data):
    done = data.run("info", "a.tuck", "s.tuck", "--json")
    assert [(o["file"], o["samples"]) for o in json.loads(done.stdout)] == [
        ("a.tuck", 60),
        ("s.tuck", 60),
    ]
    text = data.run("info", "a.tuck", "s.tuck").stdout
    assert "a.tuck: 60 samples" in text and "s.tuck: 60 samples" in text
    done = data.run("info", "none.tuck", "a.tuck", "in.npz", exit=5)
    assert "none.tuck" in done.stderr and "in.npz" in done.stderr and "a.tuck: 60" in done.stdout


def test_verify_of_several(data):
    bad = bytearray((data.folder / "a.tuck").read_bytes())
    bad[3000] ^= 1
    (data.folder / "bad.tuck").write_bytes(bad)
    data.run("verify", "a.tuck", "s.tuck")
    done = data.run("verify", "bad.tuck", "a.tuck", "none.tuck", "--json", exit=3)
    objects = json.loads(done.stdout)
    assert [bool(o.get("broken")) for o in objects] == [True, False, False]
    assert "error" in objects[2]
    assert "bad.tuck" in done.stderr and "none.tuck" in done.stderr


def test_help(tool):
    for verb in ("pack", "unpack", "help"):
        assert tool.run("help", verb).stdout == tool.run(verb, "--help").stdout
    assert tool.run("help").stdout == tool.run("--help").stdout
    assert "did you mean 'pack'" in tool.run("help", "pakc", exit=2).stderr
    assert tool.run("-V").stdout == tool.run("--version").stdout


# ---- HDF5 that leads elsewhere


def test_external_hdf5(tool):
    h5py = pytest.importorskip("h5py")
    ramp(6).tofile(tool.folder / "values.bin")
    with h5py.File(tool.folder / "b.h5", "w") as other:
        other["y"] = ramp(6)
    with h5py.File(tool.folder / "storage.h5", "w") as file:
        external = [(str(tool.folder / "values.bin"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("x", (6, 4, 4), "i8", external=external)
    with h5py.File(tool.folder / "link.h5", "w") as file:
        file["x"] = h5py.ExternalLink("b.h5", "y")
    with h5py.File(tool.folder / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((6, 4, 4), "i8")
        layout[:] = h5py.VirtualSource(str(tool.folder / "b.h5"), "y", (6, 4, 4))
        file.create_virtual_dataset("x", layout)
    for name in ("storage", "link", "virtual"):
        for select in ((), ("--select", "x")):
            done = tool.run("pack", f"{name}.h5", "-o", "d.tuck", *select, "-f", exit=4)
            assert "--allow-external" in done.stderr and "'x'" in done.stderr
        tool.run("pack", f"{name}.h5", "-o", "d.tuck", "--allow-external", "-f")
        assert np.array_equal(tool.unpacked("d.tuck"), ramp(6))
    assert "libhdf5" in tool.run("pack", "--help").stdout


def test_deep_hdf5(tool):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tool.folder / "deep.h5", "w") as file:
        group = file
        for _ in range(1000):
            group = group.create_group("g")
        file["x"] = ramp(3)
    done = tool.run("pack", "deep.h5", "-o", "d.tuck", exit=4)
    assert "32" in done.stderr
    tool.run("pack", "deep.h5", "-o", "d.tuck", "--select", "x")
