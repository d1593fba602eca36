"""What people try to pack: other formats by name, compressed files, arrays that do not fit, odd names."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile

import numpy as np
import pytest
from program import ramp

IMAGES = np.random.default_rng(3).random((6, 3, 8, 8), dtype=np.float32)
LABELS = np.arange(6)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tar(samples: int = 4, first: int = 0) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for i in range(samples):
            for name, data in (("image.npy", npy(IMAGES[i])), ("cls", b"%d" % i)):
                member = tarfile.TarInfo(f"{first + i:04}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def about(tool, file: str = "d.tuck") -> dict:
    return json.loads(tool.run("info", file, "--json").stdout)[0]["metadata"].get("source", {})


# ---- formats that are not read, by name

OTHERS = {
    "old.nc": (b"CDF\x01" + bytes(64), "netCDF-3", "nccopy -k nc4"),
    "old64.nc": (b"CDF\x02" + bytes(64), "netCDF-3", "xarray.open_dataset"),
    "old5.nc": (b"CDF\x05" + bytes(64), "netCDF-3", "engine='netcdf4'"),
    "field.grib": (b"GRIB" + bytes(64), "GRIB", "save"),
    "sky.fits": (b"SIMPLE  =                    T", "FITS", "save"),
    "m.mat": (b"MATLAB 5.0 MAT-file, Platform", "MAT-file", "v7.3"),
    "x.npy.xz": (lzma.compress(b"123"), "xz", "xz -d"),
    "x.tar.bz2": (bz2.compress(b"123"), "bzip2", "bzip2 -d"),
    "x.zst": (b"\x28\xb5\x2f\xfd" + bytes(20), "zstd", "zstd -d"),
    "p.parquet": (b"PAR1" + bytes(20), "Parquet", "savez"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_named(tool, name):
    data, what, remedy = OTHERS[name]
    (tool.folder / name).write_bytes(data)
    for format in ((), ("--format", "hdf5"), ("--format", "npy")):
        done = tool.run("pack", name, "-o", "d.tuck", *format, exit=4)
        assert what in done.stderr and remedy in done.stderr and name in done.stderr
        assert "copy it again" not in done.stderr
    # Bare values may begin with any bytes.
    tool.run("pack", name, "-o", "d.tuck", "--dtype", "u8", "--shape", "1")


# ---- gzip

GZIPPED = {
    "a.npy.gz": npy(IMAGES),
    "a.tar.gz": tar(),
    "a.tgz": tar(),
    "batch.gz": pickle.dumps({"data": np.ones((2, 3072), np.uint8), "labels": [1, 2]}, 2),
}


@pytest.mark.parametrize("name", GZIPPED)
def test_gzipped_files_are_read(tool, name):
    data = GZIPPED[name]
    # Several streams, as pigz and bgzip write them.
    whole = gzip.compress(data[:1000]) + gzip.compress(data[1000:])
    (tool.folder / name).write_bytes(whole)
    (tool.folder / "plain").write_bytes(data)
    tool.run("pack", name, "-o", "d.tuck")
    tool.run("pack", "plain", "-o", "p.tuck")
    tool.run("unpack", "d.tuck", "-o", "d.npz")
    tool.run("unpack", "p.tuck", "-o", "p.npz")
    assert (tool.folder / "d.npz").read_bytes() == (tool.folder / "p.npz").read_bytes()
    (tool.folder / name).write_bytes(whole[:-9])
    done = tool.run("pack", name, "-o", "e.tuck", exit=3)
    assert "gzip" in done.stderr and "truncated or damaged" in done.stderr
    (tool.folder / "text.gz").write_bytes(gzip.compress(b"neither this nor that"))
    assert "looks like none of" in tool.run("pack", "text.gz", "-o", "e.tuck", exit=2).stderr


def test_gzipped_raw_values(tool):
    values = np.arange(64, dtype="<f4")
    (tool.folder / "v.f32.gz").write_bytes(gzip.compress(values.tobytes(), mtime=0))
    tool.run("pack", "v.f32.gz", "-o", "d.tuck", "--dtype", "f32", "--shape", "4")
    assert np.array_equal(tool.unpacked("d.tuck"), values.reshape(16, 4))
    # Without the extension, bytes that begin as gzip does are values.
    (tool.folder / "v.bin").write_bytes(b"\x1f\x8b\x08\x00" * 4)
    tool.run("pack", "v.bin", "-o", "e.tuck", "--dtype", "u8", "--shape", "4")
    assert tool.unpacked("e.tuck").tobytes() == b"\x1f\x8b\x08\x00" * 4


def test_gzipped_hdf5_is_named(tool):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tool.folder / "a.h5", "w") as file:
        file["x"] = ramp(3)
    data = (tool.folder / "a.h5").read_bytes()
    (tool.folder / "a.h5.gz").write_bytes(gzip.compress(data))
    done = tool.run("pack", "a.h5.gz", "-o", "d.tuck", exit=4)
    assert "gzip -d" in done.stderr


# ---- arrays that must be named


def test_errors_name_the_arrays(tool):
    np.savez(tool.folder / "a.npz", x=ramp(6), y=ramp(5))
    done = tool.run("pack", "a.npz", "-o", "d.tuck", exit=2)
    for text in ("--select", "'x' (i64 6x4x4)", "'y' (i64 5x4x4)"):
        assert text in done.stderr
    tool.run("pack", "a.npz", "-o", "d.tuck", "--select", "x")
    np.savez(tool.folder / "b.npz", words=np.array(["a", "b"]), x=ramp(6))
    done = tool.run("pack", "b.npz", "-o", "e.tuck", exit=4)
    assert "--select" in done.stderr and "'x' (i64 6x4x4)" in done.stderr
    assert "'words' (<U1" in done.stderr
    np.save(tool.folder / "scalar.npy", np.float32(3))
    done = tool.run("pack", "scalar.npy", "-o", "e.tuck", exit=2)
    assert "is a scalar" in done.stderr and "--select" not in done.stderr


def test_errors_name_the_arrays_of_hdf5_and_tar(tool):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tool.folder / "a.h5", "w") as file:
        file["group/x"], file["y"], file["t"] = ramp(6), ramp(5), "text"
        for i in range(20):
            file[f"z{i}"] = ramp(6)
        file["elsewhere"] = h5py.ExternalLink("/etc/other.h5", "q")
    # Links that are not followed are not supported; followed, this one leads nowhere.
    for args, status in (((), 4), (("--allow-external",), 3)):
        done = tool.run("pack", "a.h5", "-o", "d.tuck", *args, exit=status)
        assert "--select" in done.stderr and "'group/x' (i64 6x4x4)" in done.stderr
        assert "more" in done.stderr
    listed = json.loads(tool.run("inputs", "a.h5", "--json").stdout)[0]
    rows = {row["name"]: row for row in listed["arrays"]}
    assert rows["group/x"]["shape"] == [6, 4, 4] and rows["group/x"]["bytes"] == 768
    assert rows["t"]["refused"] and rows["elsewhere"]["refused"] and not rows["z3"]["refused"]
    (tool.folder / "w.tar").write_bytes(tar())
    with tarfile.open(tool.folder / "w.tar", "a") as archive:
        member = tarfile.TarInfo("0004.json")
        archive.addfile(member, io.BytesIO())
    done = tool.run("pack", "w.tar", "-o", "d.tuck", exit=None)
    assert done.returncode in (2, 4)
    assert "'image' (f32 4x3x8x8)" in done.stderr and "'cls' (i64 4)" in done.stderr


def test_inputs_lists_arrays(tool):
    np.savez(tool.folder / "a.npz", image=IMAGES, label=LABELS)
    text = tool.run("inputs", "a.npz").stdout
    assert "a.npz: npz" in text and "6x3x8x8" in text and "label" in text
    (row, *_), *_ = (x["arrays"] for x in json.loads(tool.run("inputs", "a.npz", "--json").stdout))
    assert row == {
        "name": "image",
        "dtype": "f32",
        "shape": [6, 3, 8, 8],
        "bytes": IMAGES.nbytes,
        "refused": "",
    }
    tool.run("pack", "a.npz", "-o", "d.tuck")
    assert "tuckfold info" in tool.run("inputs", "d.tuck", exit=2).stderr
    done = tool.run("inputs", "a.npz", "none.npz", exit=5)
    assert "a.npz: npz" in done.stdout and "none.npz" in done.stderr
    with (tool.folder / "a.npz").open("rb") as file:
        assert "6x3x8x8" in tool.run("inputs", "-", stdin=file).stdout
    tool.run("inputs", exit=2)


# ---- choose, bench and eval


@pytest.fixture
def several(tool):
    np.savez(tool.folder / "a.npz", image=IMAGES, mask=IMAGES > 0.5, label=LABELS)
    np.savez(tool.folder / "one.npz", image=IMAGES, label=LABELS)
    return tool


VERBS = {
    "choose": ("--max-error", "0"),
    "bench": ("--codec", "zstd", "--min-time", "0", "--repeat", "1"),
    "eval": ("--codec", "zstd"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_try_codecs_take_every_input(several, verb):
    more = VERBS[verb]
    assert "one.npz:image" in several.run(verb, "one.npz", *more).stdout
    assert "a.npz" in several.run(verb, "--select", "image", "a.npz", *more).stdout
    if verb == "bench":
        out = several.run(verb, "a.npz", *more).stdout
        assert "a.npz:image" in out and "a.npz:mask" in out and "label" not in out
    else:
        done = several.run(verb, "a.npz", *more, exit=2)
        assert "--select" in done.stderr and "mask (bool 6x3x8x8)" in done.stderr
    raw = np.arange(1024, dtype="<f4")
    raw.tofile(several.folder / "v.bin")
    several.run(verb, "v.bin", "--dtype", "f32", "--shape", "16x16", *more)
    (several.folder / "b.npy.gz").write_bytes(gzip.compress(npy(IMAGES)))
    several.run(verb, "b.npy.gz", *more)
    with (several.folder / "one.npz").open("rb") as file:
        several.run(verb, "-", *more, stdin=file)
    several.run(verb, "none.npz", *more, exit=5)
    several.run("pack", "one.npz", "-o", "one.tuck", "-f")
    several.run("pack", "one.npz", "-o", "shards.tuck", "--shards", "2", "-f")
    for file in ("one.tuck", "shards.tuck"):
        assert f"{file}:image" in several.run(verb, file, *more).stdout
    assert several.run(verb, "--select", "nothing", "a.npz", *more, exit=2).stderr.count("image")


def test_files_are_no_codecs(several):
    bench = ("--min-time", "0", "--repeat", "1")
    assert "one.npz" in several.run("bench", "--codec", "zstd", "raw", "one.npz", *bench).stdout
    (several.folder / "raw").write_bytes(b"")  # a file that is called as a codec is
    several.run("bench", "one.npz", "--codec", "raw", *bench)
    several.run("eval", "--codec", "zstd", "raw", "one.npz")


def test_bytes_of_any_input_are_read_as_f32(tool):
    """As they are of .npy files, so that figures are the same."""
    array = np.random.default_rng(1).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    np.save(tool.folder / "a.npy", array)
    np.savez(tool.folder / "a.npz", x=array)
    rows = []
    for file in ("a.npy", "a.npz"):
        done = tool.run("eval", file, "--codec", "dct_chop(keep=4)", "--json")
        (row,) = json.loads(done.stdout)
        rows.append({k: v for k, v in row.items() if k != "file"})
    assert rows[0] == rows[1] and rows[0]["dtype"] == "f32" and rows[0]["stored"] == "u8"


# ---- what inputs say of their samples


def test_hdf5_attributes(tool):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tool.folder / "a.h5", "w") as file:
        file["t"] = ramp(4)
        file["u"] = ramp(4)
        file.attrs["title"] = "Wärme"
        file.attrs["history"] = "x" * 100_000  # too long
        t = file["t"].attrs
        t["units"] = "K"
        t["scale"] = np.float32(0.1)
        t["levels"] = np.array([1, 2, 3], "i2")
        t["missing"] = np.nan
        t["names"] = ["a", "b"]
        t["latin1"] = np.bytes_(b"caf\xe9")  # no UTF-8
        t["table"] = np.zeros((2, 2), [("a", "f4")])  # no number
        t["big"] = np.uint64(2**64 - 1)
    tool.run("pack", "a.h5", "-o", "d.tuck", "--rename", "t=temperature")
    said = about(tool)
    assert said["attributes"] == {"title": "Wärme"}
    assert said["array_attributes"] == {
        "temperature": {
            "big": 2**64 - 1,
            "levels": [1, 2, 3],
            "missing": "nan",
            "names": ["a", "b"],
            "scale": 0.1,
            "units": "K",
        }
    }
    assert said["attributes_left_out"] == 3
    tool.run("verify", "d.tuck")


def test_names_of_samples(tool):
    (tool.folder / "w.tar").write_bytes(tar(3))
    tool.run("pack", "w.tar", "-o", "d.tuck")
    assert about(tool)["files"] == ["0000", "0001", "0002"]
    # Of two archives, and where samples are no longer those.
    tool.run("pack", "w.tar", "w.tar", "-o", "e.tuck")
    assert len(about(tool, "e.tuck")["files"]) == 6
    tool.run("convert", "d.tuck", "-o", "c.tuck", "--samples-per-chunk", "2")
    assert about(tool, "c.tuck") == about(tool)
    tool.run("convert", "d.tuck", "e.tuck", "-o", "c.tuck", "-f")
    assert "files" not in about(tool, "c.tuck")
    tool.run("pack", "w.tar", "-o", "s.tuck", "--shards", "2")
    assert "files" not in about(tool, "s.tuck")


def test_metadata_of_the_user_come_first(tool):
    (tool.folder / "w.tar").write_bytes(tar(3))
    number = "12345678901234567890123"
    tool.run("pack", "w.tar", "-o", "d.tuck", "--metadata", f'{{"n": {number}, "a": {{"b": [1]}}}}')
    text = tool.run("info", "d.tuck").stdout
    assert number in text and '"files": ["0000", "0001", "0002"]' in text
    tool.run("pack", "w.tar", "-o", "d.tuck", "--metadata", '{"source": 3}', "-f")
    done = json.loads(tool.run("info", "d.tuck", "--json").stdout)
    assert done[0]["metadata"] == {"source": 3}
    done = tool.run("pack", "w.tar", "-o", "e.tuck", "--metadata", '{"a": }', exit=2)
    assert "metadata" in done.stderr


@pytest.mark.slow
def test_names_are_bounded(tool):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for i in range(70_000):
            member = tarfile.TarInfo(f"{i:06}.cls")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
    (tool.folder / "w.tar").write_bytes(file.getvalue())
    tool.run("pack", "w.tar", "-o", "d.tuck")
    assert about(tool) == {"files_left_out": 70_000}


# ---- names and kinds of files

NAMES = ["a\nb.npy", "a\tb.npy", "-dash.npy", "quote'\".npy", "caf\udce9.npy", "ünïcode.npy"]


@pytest.mark.parametrize("name", NAMES, ids=[repr(n) for n in NAMES])
def test_odd_names(tool, name):
    path = "./" + name
    np.save(tool.folder / "plain.npy", IMAGES)
    (tool.folder / "plain.npy").rename(tool.folder / name)
    tool.run("pack", path, "-o", "d.tuck")
    assert np.array_equal(tool.unpacked("d.tuck"), IMAGES)
    # Bytes that are no UTF-8 become U+FFFD in JSON, which must stay JSON.
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    for verb in (("inputs", path), ("eval", path, "--codec", "zstd")):
        out = tool.run(*verb, "--json", text=False).stdout.decode("utf-8")
        assert json.loads(out)[0]["file"] == "./" + shown
    tool.run("diff", "d.tuck", path)
    (tool.folder / "d").mkdir()
    (tool.folder / name).rename(tool.folder / "d" / name)
    if "\udce9" not in name:  # a name of an array must be UTF-8
        tool.run("pack", "d", "-o", "e.tuck")
        array = json.loads(tool.run("info", "e.tuck", "--json").stdout)[0]["arrays"][0]
        assert array["name"] == name.removesuffix(".npy")


@pytest.mark.parametrize("verb", ["pack", "inputs", "choose", "bench", "eval"])
def test_what_is_no_file(tool, verb):
    more = {"pack": ("-o", "d.tuck"), "choose": ("--max-error", "0")}.get(
        verb, () if verb == "inputs" else ("--codec", "zstd")
    )
    os.mkfifo(tool.folder / "pipe")
    (tool.folder / "empty.npy").touch()
    (tool.folder / "empty.gz").touch()
    assert "is a pipe" in tool.run(verb, "pipe", *more, exit=5, timeout=10).stderr
    for name in ("empty.npy", "empty.gz"):
        done = tool.run(verb, name, *more, exit=3)
        assert name in done.stderr
    tool.run(verb, "/dev/null", *more, exit=5)
    tool.run(verb, "none", *more, exit=5)


def test_an_array_after_the_first_is_refused(tool):
    """np.save appends to an open file; what follows the first array would be dropped."""
    x = np.arange(20.0).reshape(5, 4)
    with (tool.folder / "two.npy").open("wb") as file:
        np.save(file, x)
        np.save(file, x + 1)
    for verb in (("pack", "-o", "d.tuck"), ("inputs",), ("eval", "--codec", "zstd")):
        done = tool.run(verb[0], "two.npy", *verb[1:], exit=4)
        assert "two.npy" in done.stderr and "array after the first" in done.stderr
    (tool.folder / "long.npy").write_bytes(npy(x) + b"\0\0\0")
    done = tool.run("pack", "long.npy", "-o", "d.tuck", exit=3)
    assert "3 bytes after" in done.stderr
    (tool.folder / "two.npy.gz").write_bytes(gzip.compress((tool.folder / "two.npy").read_bytes()))
    tool.run("pack", "two.npy.gz", "-o", "d.tuck", exit=4)


def test_archives_that_follow_each_other_are_read(tool):
    """`cat a.tar b.tar` is read by `tar -i`; the second one must not be dropped."""
    first, second = tar(4), tar(5, first=4)
    (tool.folder / "c.tar").write_bytes(first + second)
    tool.run("pack", "c.tar", "-o", "d.tuck")
    assert json.loads(tool.run("info", "d.tuck", "--json").stdout)[0]["samples"] == 9
    for rest in (second[:700], b"garbage", b"x" * 512):
        (tool.folder / "c.tar").write_bytes(first + rest)
        tool.run("pack", "c.tar", "-o", "e.tuck", exit=3)
    (tool.folder / "c.tar").write_bytes(first + bytes(777))
    tool.run("pack", "c.tar", "-o", "e.tuck")


def test_links_that_lead_nowhere_are_named(tool):
    folder = tool.folder / "d"
    folder.mkdir()
    np.save(folder / "a.npy", np.arange(5.0))
    (folder / "round.npy").symlink_to("round.npy")
    done = tool.run("pack", "d", "-o", "d.tuck", exit=5)
    assert "round.npy" in done.stderr
    (folder / "round.npy").unlink()
    (folder / "gone.npy").symlink_to("/nonexistent/x.npy")
    done = tool.run("pack", "d", "-o", "d.tuck", exit=5)
    assert "gone.npy" in done.stderr


def test_an_append_without_the_fill_values_names_the_option(tool):
    x = np.random.default_rng(0).normal(size=(8, 16, 16)).astype(np.float32)
    x[:, :3] = -999
    np.save(tool.folder / "a.npy", x)
    pack = ("pack", "a.npy", "-o", "d.tuck", "--codec", "dct_quant(rate=4)")
    tool.run(*pack, "--fill", -999)
    done = tool.run(*pack, "--append", exit=2)
    assert "--fill data=-999" in done.stderr
    tool.run(*pack, "--append", "--fill", "data=-999")
    assert len(tool.unpacked("d.tuck")) == 16


# ---- arrays that do not fit together, in verbs that read one


def test_view_and_diff_take_one_array_of_many(tool):
    x = np.random.default_rng(0).normal(size=(10, 32, 32)).astype(np.float32)
    x[:, :8] = 1e20
    np.savez(tool.folder / "a.npz", x=x, lat=np.arange(32.0), one=np.float32(3))
    pack = ("pack", "a.npz", "-o", "a.tuck", "--select", "x", "--fill", 1e20)
    tool.run(*pack, "--codec", "dct_quant(rate=8)")
    tool.run("view", "a.npz", "--select", "x", "-o", "a.png")
    done = tool.run("diff", "a.tuck", "a.npz", "--json")
    figures, *only_there = json.loads(done.stdout)
    assert figures["array"] == "x"
    assert "lat" in str(only_there)
    shown = ("view", "a.tuck", "--against", "a.npz", "--count", 10, "-f", "--json")
    for out in ("b.png", "b.html"):
        (page,) = json.loads(tool.run(*shown, "-o", out).stdout)
        (result,) = page["results"]
        assert result["psnr_db"] == pytest.approx(figures["psnr_db"], abs=1e-6)
        assert result["max_error"] < 1


def test_view_leaves_fill_values_out(tool):
    x = np.random.default_rng(0).normal(size=(10, 32, 32)).astype(np.float32)
    valid = x.copy()
    x[:, :8] = 1e20
    np.save(tool.folder / "a.npy", x)
    view = ("view", "a.npy", "--codec", "dct_quant(rate=8)", "--count", 10, "-f", "--json")
    (page,) = json.loads(tool.run(*view, "-o", "a.html", "--fill", 1e20).stdout)
    assert page["results"][0]["max_error"] < 1
    assert 20 < page["results"][0]["psnr_db"] < 100
    # Shades are those of the other values: the same picture as without the hole, outside of it.
    image = pytest.importorskip("PIL.Image")
    np.save(tool.folder / "b.npy", np.where(x == 1e20, valid[:, 8:].mean(), x).astype(np.float32))
    pixels = []
    for name in ("a.npy", "b.npy"):
        tool.run("view", name, "-o", "s.png", "-f", "--fill", 1e20, "--samples", 0)
        pixels.append(np.asarray(image.open(tool.folder / "s.png").convert("RGB")).astype(int))
    same = (pixels[0] == pixels[1]).all(axis=-1)
    assert same.mean() > 0.7
    assert (pixels[0][~same] == [112, 144, 192]).all()  # the colour of what is missing


def test_half_precision_of_either_byte_order(tool):
    """Every bit pattern, NaN and denormals included."""
    h5py = pytest.importorskip("h5py")
    values = np.arange(1 << 16, dtype="<u2").view("<f2").reshape(64, 32, 32)
    with h5py.File(tool.folder / "a.h5", "w") as file:
        file["big"] = values.astype(">f2")
        file["big"][...] = values.view("<u2").byteswap().view(">f2")
        file["little"] = values
    for name in ("big", "little"):
        tool.run("pack", "a.h5", "-o", f"{name}.tuck", "--select", name, "--codec", "zstd")
        assert tool.unpacked(f"{name}.tuck").tobytes() == values.tobytes(), name
