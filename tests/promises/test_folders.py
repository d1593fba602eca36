"""Folders as inputs: nothing in them is dropped, mixed or numbered without a word."""

import gzip
import json
import pickle
import struct
import zlib

import numpy as np
import pytest


def png(value: int, size: int = 4) -> bytes:
    """A grey picture of one value."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = (b"\0" + bytes([value]) * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def put(tool, name: str, data: bytes) -> None:
    path = tool.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def info(tool, file: str = "d.tuck") -> dict:
    return json.loads(tool.run("info", file, "--json").stdout)[0]


def labels(tool) -> list[int]:
    tool.run("unpack", "d.tuck", "-o", "back.npz", "-f")
    with np.load(tool.folder / "back.npz") as back:
        return back["label"].tolist()


# ---- images


def test_loose_images_beside_classes_are_refused(tool):
    for i in range(30):
        put(tool, f"d/{i:02}.png", png(i))
    put(tool, "d/cat/a.png", png(99))
    done = tool.run("pack", "d", "-o", "d.tuck", exit=2)
    assert "30 images of no class" in done.stderr
    assert "d/00.png" in done.stderr and "d/cat/a.png" in done.stderr
    assert not (tool.folder / "d.tuck").exists()


def test_empty_folders_hide_no_images(tool):
    for i in range(3):
        put(tool, f"d/{i}.png", png(i))
    (tool.folder / "d/empty/deeper").mkdir(parents=True)
    put(tool, "d/notes/readme.txt", b"no image")
    tool.run("pack", "d", "-o", "d.tuck")
    about = info(tool)
    assert about["samples"] == 3
    assert [array["name"] for array in about["arrays"]] == ["image"]


def test_classes_keep_their_numbers_where_one_is_empty(tool):
    put(tool, "d/ant/a.png", png(1))
    put(tool, "d/cat/c.png", png(3))
    (tool.folder / "d/bee").mkdir()
    tool.run("pack", "d", "-o", "d.tuck")
    assert labels(tool) == [0, 2]
    assert info(tool)["metadata"]["source"]["classes"] == ["ant", "bee", "cat"]


def test_train_and_test_are_no_classes(tool):
    for split, count in (("train", 2), ("test", 3)):
        for i in range(count):
            put(tool, f"d/{split}/cat/{i}.png", png(i))
            put(tool, f"d/{split}/dog/{i}.png", png(i))
    done = tool.run("pack", "d", "-o", "d.tuck", exit=2)
    assert "--split train" in done.stderr and "--split test" in done.stderr
    tool.run("pack", "d", "-o", "d.tuck", "--split", "test")
    assert labels(tool) == [0, 0, 0, 1, 1, 1]
    done = tool.run("pack", "d", "-o", "e.tuck", "--split", "validation", exit=2)
    assert "test, train" in done.stderr
    # A class may be called train where others are no splits.
    put(tool, "vehicles/train/a.png", png(1))
    put(tool, "vehicles/bus/a.png", png(1))
    tool.run("pack", "vehicles", "-o", "d.tuck", "-f")
    assert labels(tool) == [0, 1]


def test_images_beside_arrays_are_refused(tool):
    put(tool, "d/preview.png", png(1))
    np.save(tool.folder / "d/field.npy", np.zeros((5, 4, 4), "f4"))
    done = tool.run("pack", "d", "-o", "d.tuck", exit=2)
    assert "field.npy" in done.stderr and "--format" in done.stderr
    tool.run("pack", "d", "-o", "d.tuck", "--format", "npy")
    assert info(tool)["samples"] == 5
    tool.run("pack", "d", "-o", "d.tuck", "--format", "images", "-f")
    assert info(tool)["samples"] == 1


# ---- batches


def cifar_batch(seed: int, count: int, protocol: int) -> bytes:
    data = np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)
    rows = {"data": data, "labels": [i % 10 for i in range(count)], "batch_label": f"{seed}"}
    return pickle.dumps(rows, protocol)


NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_cifar_batches(tool, protocol):
    for i in range(1, 4):
        put(tool, f"c/data_batch_{i}", cifar_batch(i, 5, protocol))
    put(tool, "c/test_batch", cifar_batch(9, 4, protocol))
    put(tool, "c/batches.meta", pickle.dumps({"label_names": NAMES, "num_vis": 3072}, protocol))
    put(tool, "c/readme.html", b"<meta>")
    done = tool.run("pack", "c", "-o", "d.tuck", exit=2)
    assert "--split train" in done.stderr and "test_batch" in done.stderr
    tool.run("pack", "c", "-o", "d.tuck", "--split", "train")
    about = info(tool)
    assert about["samples"] == 15
    assert about["metadata"]["source"]["classes"] == NAMES
    tool.run("unpack", "d.tuck", "-o", "back.npz", "--select", "image")
    with np.load(tool.folder / "back.npz") as back:
        data = [pickle.loads(cifar_batch(i, 5, 5))["data"] for i in range(1, 4)]
        assert np.array_equal(back["image"].reshape(15, 3072), np.concatenate(data))
    tool.run("pack", "c", "-o", "d.tuck", "--split", "test", "-f")
    assert info(tool)["samples"] == 4


def test_cifar_binary_batches(tool):
    record = np.zeros((6, 3073), np.uint8)
    record[:, 0] = range(6)
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        put(tool, f"c/{name}.bin", record.tobytes())
    put(tool, "c/batches.meta.txt", "\n".join(NAMES + [""]).encode())
    tool.run("pack", "c", "-o", "d.tuck", "--split", "train")
    about = info(tool)
    assert about["samples"] == 12 and about["metadata"]["source"]["classes"] == NAMES


def test_idx_files(tool):
    images = np.arange(7 * 16, dtype=np.uint8).reshape(7, 4, 4)
    for split, count in (("train", 7), ("t10k", 3)):
        put(tool, f"m/{split}-images-idx3-ubyte.gz", gzip.compress(idx(images[:count])))
        put(tool, f"m/{split}-labels-idx1-ubyte", idx(np.arange(count, dtype=np.uint8)))
    assert "--split" in tool.run("pack", "m", "-o", "d.tuck", exit=2).stderr
    tool.run("pack", "m", "-o", "d.tuck", "--split", "train")
    assert labels(tool) == list(range(7))
    tool.run("pack", "m", "-o", "d.tuck", "--split", "test", "-f")
    assert labels(tool) == [0, 1, 2]


def test_npy_files_are_arrays_by_name(tool):
    (tool.folder / "a").mkdir()
    np.save(tool.folder / "a/image.npy", np.ones((6, 3, 8, 8), "f4"))
    np.save(tool.folder / "a/label.npy", np.arange(6))
    tool.run("pack", "a", "-o", "d.tuck")
    assert [x["name"] for x in info(tool)["arrays"]] == ["image", "label"]
    assert labels(tool) == list(range(6))
    # Others need not match where arrays are named.
    np.save(tool.folder / "a/other.npy", np.arange(9))
    done = tool.run("pack", "a", "-o", "e.tuck", exit=2)
    assert "other.npy" in done.stderr
    tool.run("pack", "a", "-o", "e.tuck", "--select", "label")
    tool.run("pack", "a", "-o", "f.tuck", "--select", "none", exit=2)
    listed = json.loads(tool.run("inputs", "a", "--json").stdout)[0]
    assert [(x["name"], x["shape"]) for x in listed["arrays"]] == [
        ("image", [6, 3, 8, 8]),
        ("label", [6]),
        ("other", [9]),
    ]
    assert listed["fit_together"] is False


def test_folders_that_say_too_little(tool):
    (tool.folder / "empty").mkdir()
    assert "has no files" in tool.run("pack", "empty", "-o", "d.tuck", exit=2).stderr
    put(tool, "deep/raw/t10k-labels-idx1-ubyte", idx(np.arange(3, dtype=np.uint8)))
    assert "'raw'" in tool.run("pack", "deep", "-o", "d.tuck", exit=2).stderr
    np.save(tool.folder / "empty/a.npy", np.arange(3))
    np.savez(tool.folder / "empty/b.npz", x=np.arange(3))
    done = tool.run("pack", "empty", "-o", "d.tuck", exit=2)
    assert "a.npy" in done.stderr and "b.npz" in done.stderr
    done = tool.run("pack", "empty/a.npy", "-o", "d.tuck", "--split", "train", exit=2)
    assert "--split" in done.stderr


def test_folders_that_cannot_be_listed(tool):
    import os

    if os.geteuid() == 0:
        pytest.skip("root may list every folder")
    put(tool, "d/cat/a.png", png(1))
    (tool.folder / "d/cat").chmod(0)
    assert "d/cat" in tool.run("pack", "d", "-o", "d.tuck", exit=5).stderr


def test_links_in_circles_end(tool):
    put(tool, "d/cat/a.png", png(1))
    (tool.folder / "d/cat/up").symlink_to("..")
    tool.run("pack", "d", "-o", "d.tuck", timeout=20)
    assert labels(tool) == [0]


# ---- other verbs


def test_a_folder_goes_to_every_verb(tool):
    for name in ("ant", "bee"):
        for i in range(4):
            put(tool, f"d/{name}/{i}.png", png(10 * i, 16))
    tool.run("pack", "d", "-o", "d.tuck")
    tool.run("diff", "d.tuck", "d", "--fail-below", "200")
    tool.run("view", "d", "-o", "sheet.png")
    tool.run("eval", "d", "--codec", "dct_chop(keep=4)", "--select", "image")
    tool.run("bench", "d", "--codec", "zstd", "--min-time", "0", "--repeat", "1")
    tool.run("bench", "--codec", "zstd", "d", "--min-time", "0", "--repeat", "1")
    tool.run("choose", "d", "--max-error", "0")
    tool.run("pack", "d", "-o", "d.tuck", "--append")
    assert info(tool)["samples"] == 16


def test_appended_classes_are_the_same(tool):
    put(tool, "a/cat/0.png", png(1))
    put(tool, "a/dog/0.png", png(1))
    put(tool, "b/ant/0.png", png(1))
    put(tool, "b/cat/0.png", png(1))
    for shards in ((), ("--shards", "2")):
        tool.run("pack", "a", "-o", "d.tuck", "-f", *shards)
        done = tool.run("pack", "b", "-o", "d.tuck", "--append", exit=2)
        assert "class 0 is 'cat' there and 'ant' here" in done.stderr
        tool.run("pack", "a", "-o", "d.tuck", "--append")
        assert info(tool)["samples"] == 4
