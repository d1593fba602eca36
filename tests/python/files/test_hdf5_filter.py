"""The HDF5 filter: called as HDF5 does, and by h5py where that is installed."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuckfold

ROOT = Path(__file__).parents[3]
X = np.cumsum(np.random.default_rng(9).standard_normal((6, 40, 50)), axis=2).astype(np.float32)

_FILTER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                           ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_void_p))  # fmt: skip


class FilterClass(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encoder_present", ctypes.c_uint),
        ("decoder_present", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", _FILTER),
    ]


@pytest.fixture(scope="module")
def plugin() -> FilterClass:
    library = ctypes.CDLL(str(Path(tuckfold.hdf5_plugin_path()) / "libh5z_tuckfold.so"))
    library.H5PLget_plugin_info.restype = ctypes.POINTER(FilterClass)
    assert library.H5PLget_plugin_type() == 0
    return library.H5PLget_plugin_info().contents


libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def run(plugin: FilterClass, flags: int, values: tuple[int, ...], data: bytes) -> bytes | None:
    """What the filter makes of a chunk; None where it refuses, and leaves the chunk as it was."""
    buffer, room = ctypes.c_void_p(libc.malloc(max(1, len(data)))), ctypes.c_size_t(len(data))
    ctypes.memmove(buffer, data, len(data))
    numbers = (ctypes.c_uint * len(values))(*values)
    size = plugin.filter(flags, len(values), numbers, len(data), ctypes.byref(room), ctypes.byref(buffer))  # fmt: skip
    held = ctypes.string_at(buffer, size or len(data))
    libc.free(buffer)
    if size == 0:
        assert held == data
        return None
    assert room.value == size
    return held


@pytest.mark.parametrize(
    "spec, bound",
    [("zstd", 0), ("raw", 0), ("dct_quant(rate=8)", 0.3), ("bounded(abs=0.01) | zstd", 0.01)],
)
def test_chunks_become_frames_and_come_back(plugin: FilterClass, spec: str, bound: float) -> None:
    assert (plugin.version, plugin.id, plugin.name) == (1, 461, b"tuckfold")
    about = tuckfold.hdf5(spec, X.shape, X.dtype)
    assert about["compression"] == plugin.id and about["chunks"] == X.shape
    values = about["compression_opts"]
    packed = run(plugin, 0, values, X.tobytes())
    assert packed == tuckfold.dumps(X, spec)
    back = run(plugin, 0x100, values, packed)
    assert np.abs(np.frombuffer(back, np.float32).reshape(X.shape) - X).max() <= bound
    for other in ((), tuckfold.hdf5(spec, (6, 50, 40), "f4"), tuckfold.hdf5("zstd", X.shape, "i4")):
        values = other and other["compression_opts"]
        assert run(plugin, 0x100, values, packed) is None  # HDF5 trusts the size of a chunk


def test_what_does_not_fit_is_refused(plugin: FilterClass) -> None:
    values = tuckfold.hdf5("zstd", X.shape, X.dtype)["compression_opts"]
    data = X.tobytes()
    packed = run(plugin, 0, values, data)
    for wrong in ((), values[:3], values[:-1], (2, *values[1:]), (1, 99, *values[2:]), (1, 2**32 - 1, *values[2:]),
                  (*values[:2], 0, *values[3:]), (*values[:2], 65, *values[3:]), (*values[:9], 2**31, *values[10:]),
                  (*values[:4], 2**31, *values[5:]), (1, 0, 3, *[2**32 - 1] * 20)):  # fmt: skip
        assert run(plugin, 0, wrong, data) is None, wrong
    assert run(plugin, 0, values, data[:-4]) is None
    for wrong in (b"", b"x", packed[:-1], packed + b"x", packed[:40]):
        assert run(plugin, 0x100, values, wrong) is None
    for at in range(0, len(packed), 97):
        bad = bytearray(packed)
        bad[at] ^= 1
        assert run(plugin, 0x100, values, bytes(bad)) is None
    for of_dataset in (tuckfold.hdf5("zstd", X.shape), tuckfold.hdf5("zstd", None, "f4")):
        assert run(plugin, 0, of_dataset["compression_opts"], data) is None  # no dataset was made
        assert run(plugin, 0x100, of_dataset["compression_opts"], packed) is None


def test_many_equal_values_come_back(plugin: FilterClass) -> None:
    zeros = np.zeros((2048, 1024), np.float32)
    values = tuckfold.hdf5("bounded(abs=0.01) | zstd", zeros.shape, "f4")["compression_opts"]
    packed = run(plugin, 0, values, zeros.tobytes())
    assert len(packed) < zeros.nbytes / 32768
    assert run(plugin, 0x100, values, packed) == zeros.tobytes()


def test_arguments_are_checked_before_hdf5_is_asked() -> None:
    for wrong in (
        ("nonsense", (8, 8)),
        ("dct_quant(rate=4)", (8, 8), "i8"),
        ("zstd", (), "f4"),
        ("zstd", (8, 8), "c8"),
        ("zstd", ()),
        ("zstd", (0, 4)),
        ("dct_quant(rate=4)", (1,)),
        ("dct_chop(keep=4)", (5,)),
    ):
        with pytest.raises(ValueError):
            tuckfold.hdf5(*wrong)


@pytest.fixture
def made(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "made.h5", "w") as file:
        yield file


def test_a_dataset_needs_only_the_spec(made) -> None:
    for name, x in {
        "f4": X, "f2": X.astype("f2"), "f8": X.astype("f8"), "i4": (100 * X).astype("i4"),
        "u2": (100 * abs(X)).astype("u2"), "i8": (100 * X).astype("i8"), "b": X > 0,
    }.items():  # fmt: skip
        for given in ({}, {"chunks": (3, 40, 50)}):
            d = made.create_dataset(f"{name}{len(given)}", data=x, **tuckfold.hdf5("zstd", **given))
            assert np.array_equal(d[:], x) and d.dtype == x.dtype
            frame = tuckfold.loads(d.id.read_direct_chunk((0,) * 3)[1])
            assert frame.shape == d.chunks and frame.dtype.itemsize == x.dtype.itemsize
    bools = made.create_dataset("bool", data=X > 0, **tuckfold.hdf5("zstd", (6, 40, 50), "bool"))
    assert np.array_equal(bools[:], X > 0)
    bits = (X.view(np.uint32) >> 16).astype(np.uint16)
    half = made.create_dataset("bf16", data=bits, **tuckfold.hdf5("zstd", (6, 40, 50), "bf16"))
    assert np.array_equal(half[:], bits)
    lossy = made.create_dataset("lossy", data=X, **tuckfold.hdf5("bounded(abs=0.01) | zstd"))
    assert np.abs(lossy[:] - X).max() <= 0.01


@pytest.mark.parametrize(
    "x, about, more",
    [
        (np.arange(4096, dtype="i4").reshape(64, 64), {"spec": "bounded(abs=0.01)", "chunks": (64, 64)}, {}),
        (np.ones((64, 64), "i4"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f4"}, {}),
        (np.ones((64, 64), ">f4"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f4"}, {}),
        (np.ones((64, 64), ">f4"), {"spec": "zstd"}, {}),
        (np.ones((64, 64), "u2"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f2"}, {}),
        (np.ones((64, 64), "u2"), {"spec": "zstd", "chunks": (64, 64), "dtype": "i2"}, {}),
        (np.ones((64, 64), "u1"), {"spec": "zstd", "chunks": (64, 64), "dtype": "bool"}, {}),
        (np.ones((64, 64), "c8"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f8"}, {}),
        (np.ones((64, 64), "S4"), {"spec": "zstd", "chunks": (64, 64)}, {}),
        (np.ones((64, 64), "f4"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f4"}, {"shuffle": True}),
        (np.ones((64, 64), "f4"), {"spec": "zstd", "chunks": (32, 64), "dtype": "f4"}, {"chunks": (64, 32)}),
        (np.ones((64, 64), "f4"), {"spec": "zstd", "chunks": (64, 64), "dtype": "f4"}, {"chunks": (64, 32)}),
        (np.ones((64, 64), "f4"), {"spec": "dct_quant(rate=4)", "chunks": (64, 1)}, {}),
    ],
)  # fmt: skip
def test_a_dataset_that_does_not_fit_is_not_made(made, x, about, more) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        made.create_dataset("x", data=x, **{**tuckfold.hdf5(**about), **more})
    assert "x" not in made


def test_a_frame_of_another_shape_is_an_error_of_hdf5(made) -> None:
    h5py = sys.modules["h5py"]
    about = tuckfold.hdf5("bounded(abs=0.01)", (1024, 1024), "f4")
    d = made.create_dataset("x", shape=(1024, 1024), dtype="f4", **about)
    d.id.write_direct_chunk((0, 0), tuckfold.dumps(np.ones((2, 2), "f4"), "raw"), 0)
    path = made.filename
    made.close()
    with h5py.File(path) as file, pytest.raises(OSError):
        file["x"][:]


READ = "import h5py, sys; f = h5py.File(sys.argv[1]); print(float(f['x'][3, 2, 1])); assert 'tuckfold' not in sys.modules"


@pytest.mark.slow
def test_h5py_writes_and_others_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=X, **tuckfold.hdf5("dct_quant(rate=8)", (4, 32, 32), X.dtype))
        f.create_dataset(
            "y", data=X, **tuckfold.hdf5("zstd", (1, 40, 50), X.dtype), fletcher32=True
        )
        f.create_dataset("z", data=np.arange(1000), **tuckfold.hdf5("zstd", (100,), "i64"))
    with h5py.File(tmp_path / "a.h5") as f:
        assert np.abs(f["x"][:] - X).max() < 0.5
        assert np.array_equal(f["y"][:], X) and f["z"][::7].tolist() == list(range(0, 1000, 7))
        want = float(f["x"][3, 2, 1])
    path = {"HDF5_PLUGIN_PATH": tuckfold.hdf5_plugin_path()}
    command = [sys.executable, "-c", READ, tmp_path / "a.h5"]
    said = subprocess.run(
        command, env={**os.environ, **path}, capture_output=True, text=True, check=True
    )
    assert float(said.stdout) == want
    missing = subprocess.run(
        command,
        env={**os.environ, "HDF5_PLUGIN_PATH": "/nonexistent"},
        capture_output=True,
        check=False,
    )
    assert missing.returncode != 0
    tool = ROOT / "build/release/tuckfold"
    if tool.exists():  # another HDF5, Debian's
        command = [
            tool,
            "pack",
            tmp_path / "a.h5",
            "--select",
            "x",
            "-o",
            tmp_path / "a.tuck",
            "-q",
        ]
        subprocess.run(command, env={**os.environ, **path}, check=True)
        assert float(tuckfold.open(tmp_path / "a.tuck")["x"][3, 2, 1]) == want


def tool(name: str, *arguments: object, plugin: bool = True) -> str:
    """What a program of HDF5's prints."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}; Debian's package is hdf5-tools, which ./dev plugins installs")
    where = tuckfold.hdf5_plugin_path() if plugin else "/nonexistent"
    done = subprocess.run(
        [path, *map(str, arguments)],
        env={**os.environ, "HDF5_PLUGIN_PATH": where},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stdout}{done.stderr}")
    return done.stdout


@pytest.mark.slow
def test_h5repack_packs_and_unpacks_and_h5dump_reads(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "plain.h5", "w") as f:
        f.create_dataset("x", data=X, chunks=(1, 40, 50))
    values = tuckfold.hdf5("zstd", (1, 40, 50), X.dtype)["compression_opts"]
    numbers = ",".join(map(str, values))
    tool(
        "h5repack",
        *("-f", f"x:UD=461,0,{len(values)},{numbers}", "-l", "x:CHUNK=1x40x50"),
        *(tmp_path / "plain.h5", tmp_path / "packed.h5"),
    )
    assert "USER_DEFINED_FILTER" in tool("h5dump", "-p", "-H", tmp_path / "packed.h5")
    with h5py.File(tmp_path / "packed.h5") as f:
        assert f["x"]._filters.keys() == {"461"} and np.array_equal(f["x"][:], X)
    shown = tool("h5dump", "-d", "/x", "-s", "5,39,48", "-c", "1,1,2", tmp_path / "packed.h5")
    assert f"{X[5, 39, 48]:.4f}"[:5] in shown
    with pytest.raises(RuntimeError):
        tool("h5dump", "-d", "/x", tmp_path / "packed.h5", plugin=False)
    tool("h5repack", "-f", "x:NONE", tmp_path / "packed.h5", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as f:
        assert not f["x"]._filters and np.array_equal(f["x"][:], X)


@pytest.mark.slow
def test_h5repack_and_h5dump_refuse_a_damaged_chunk(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=X, **tuckfold.hdf5("zstd", (1, 40, 50), X.dtype))
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[data.rfind(b"TkFr") + 200] ^= 1
    (tmp_path / "a.h5").write_bytes(data)
    for command in (("h5dump", "-d", "/x"), ("h5repack", "-f", "x:NONE")):
        out = [tmp_path / "b.h5"] if command[0] == "h5repack" else []
        with pytest.raises(RuntimeError):
            tool(*command, tmp_path / "a.h5", *out)


def test_usual_codecs_take_few_enough_numbers_for_h5repack() -> None:
    """That of HDF5 1.10 takes 20."""
    for spec in ("bounded(abs=0.01) | zstd", "shuffle(delta=plane) | zstd(level=9)"):
        options = tuckfold.hdf5(spec, (7, 37, 49))["compression_opts"]
        assert len(options) <= 20
        assert options == tuckfold.hdf5(spec.replace(" ", ""), (7, 37, 49))["compression_opts"]
