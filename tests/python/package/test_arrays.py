"""pack and unpack of numpy arrays, and of what numpy can look at."""

import ctypes
import mmap
import pickle
import sys
import threading
import time

import numpy as np
import pytest

import tuckfold
from calls import on_four_threads, raises_exactly, releases_gil
from tuckfold import _library as lib

SPECS = {
    "f32": ["raw", "dct_chop(keep=4)", "dct_chop(keep=4) | block_quant(bits=8)", "dct_quant(rate=4)",
            "block_quant(bits=4)", "bounded(abs=0.01)", "bounded(abs=0.01) | zstd", "zstd",
            "dct_chop(keep=3, shape=triangle)"],
    "f16": ["raw", "dct_chop(keep=4)", "block_quant(bits=4)", "bounded(abs=0.01)", "zstd"],
    "bf16": ["raw", "dct_chop(keep=4)", "block_quant(bits=4)", "bounded(abs=0.1)", "zstd"],
    "f64": ["raw", "dct_chop(keep=4)", "block_quant(bits=4)", "bounded(abs=0.01)", "zstd"],
    "u8": ["raw", "dct_chop(keep=3)", "block_quant(bits=4)", "bounded(abs=2)", "bits", "zstd"],
    "u16": ["raw", "dct_chop(keep=3)", "dct_quant(rate=4)", "block_quant(bits=4)", "bounded(abs=2)", "bits", "zstd"],
    **{dtype: ["raw", "bits", "bits(width=8)", "zstd"] for dtype in ("i32", "i64", "i16", "i8", "u32", "u64")},
    "bool": ["raw", "mask", "bits", "zstd"],
}  # fmt: skip
CASES = [(dtype, spec) for dtype, specs in SPECS.items() for spec in specs]
EXACT = ("raw", "zstd", "mask", "bits", "bits(width=8)")
NUMPY = {"f32": "f4", "f16": "f2", "f64": "f8", "u8": "u1", "i32": "i4", "i64": "i8", "u16": "u2",
         "i16": "i2", "i8": "i1", "u32": "u4", "u64": "u8", "bool": "?"}  # fmt: skip


def pack_on_one_thread(*arguments, **more) -> np.ndarray:
    tuckfold.set_num_threads(1)
    try:
        return tuckfold.pack(*arguments, **more)
    finally:
        tuckfold.set_num_threads(0)


def make(dtype: str, shape: tuple[int, ...] = (3, 40, 48)) -> np.ndarray:
    """A smooth wave, so that every codec keeps most of it; bf16 as bits."""
    rows, cols = np.arange(shape[-2])[:, None], np.arange(shape[-1])
    wave = np.broadcast_to(np.sin(rows / 9) * np.cos(cols / 11), shape)
    if dtype == "bool":
        return wave > 0
    if dtype[0] in "ui":
        return ((wave + 1) * (63 if dtype == "i8" else 127)).astype(NUMPY[dtype])
    if dtype == "bf16":
        return (wave.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return wave.astype(NUMPY[dtype])


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def test_every_dtype_is_tried() -> None:
    assert tuple(sorted(SPECS)) == tuple(sorted(lib.DTYPES))


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_keep_their_dtype(dtype: str) -> None:
    array = make(dtype)
    packed = tuckfold.Packed.pack(array, "zstd")
    assert packed.dtype == dtype
    back = tuckfold.Packed.from_bytes(packed.to_bytes()).unpack()
    assert back.dtype == array.dtype == np.dtype(NUMPY[dtype])
    assert np.array_equal(back, array)


@pytest.mark.parametrize(("dtype", "spec"), CASES)
def test_what_is_packed_comes_back(dtype: str, spec: str) -> None:
    array = make(dtype)
    packed = tuckfold.pack(array, spec, dtype=dtype)
    fit = tuckfold.layout(spec, dtype, array.shape)
    assert packed.dtype == np.uint8
    assert packed.ndim == 1
    assert packed.nbytes == fit.max_bytes if fit.fixed else packed.nbytes <= fit.max_bytes
    back = tuckfold.unpack(packed, spec, shape=array.shape, dtype=dtype)
    assert back.shape == array.shape
    off = np.abs(values(back, dtype) - values(array, dtype)).max()
    assert off == 0 if spec in EXACT else off <= 0.3 * np.abs(values(array, dtype)).max()


@pytest.mark.parametrize(("dtype", "spec"), CASES)
def test_views_pack_to_the_bytes_of_their_copies(dtype: str, spec: str) -> None:
    base = make(dtype, (4, 48, 80))
    views = {
        "reversed": base[::-1, ::-1, ::-1],
        "transposed": base.transpose(2, 0, 1),
        "steps": base[:, ::2, 1::2],
        "fortran": np.asfortranarray(base),
        "repeated": np.broadcast_to(base[:1], (3, 48, 80)),
    }
    for name, view in views.items():
        expected = tuckfold.pack(np.ascontiguousarray(view), spec, dtype=dtype)
        packed = tuckfold.pack(view, spec, dtype=dtype)
        assert np.array_equal(packed, expected), name
        if name == "repeated":
            continue
        room = np.zeros_like(base)
        out = {
            "reversed": room[::-1, ::-1, ::-1],
            "transposed": room.transpose(2, 0, 1),
            "steps": room[:, ::2, 1::2],
            "fortran": np.asfortranarray(room),
        }[name]
        assert tuckfold.unpack(packed, spec, out=out, dtype=dtype) is out
        plain = tuckfold.unpack(packed, spec, shape=view.shape, dtype=dtype)
        assert np.array_equal(out, plain.view(out.dtype)), name


def test_packing_walks_a_view_where_it_is() -> None:
    """Two gigabytes that share sixteen floats: a copy would be seen."""
    wide = np.broadcast_to(np.arange(16, dtype=np.float32), (1 << 25, 16))
    assert tuckfold.layout("mask", "u8", (8,)).max_bytes >= 1
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"\[pack\]|\[layout\]"):
        tuckfold.pack(wide, "bits(width=1)")
    assert time.perf_counter() - start < 1


class Interface:
    """Something that is no array, but says where one is."""

    def __init__(self, array: np.ndarray) -> None:
        self.keep = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **arguments: object) -> object:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_anything_that_shows_its_memory_packs() -> None:
    array = make("f32")[:, ::2]
    expected = tuckfold.pack(array, "dct_chop")
    for source in (Interface(array), Dlpack(array), memoryview(array)):
        assert np.array_equal(tuckfold.pack(source, "dct_chop"), expected)
    out = np.zeros_like(array)
    tuckfold.unpack(expected, "dct_chop", out=Interface(out))
    assert np.array_equal(out, tuckfold.unpack(expected, "dct_chop", shape=array.shape))


def test_packed_bytes_may_be_kept_in_anything() -> None:
    array = make("f32")
    packed = tuckfold.pack(array, "dct_chop")
    expected = tuckfold.unpack(packed, "dct_chop", shape=array.shape)
    pages = mmap.mmap(-1, packed.nbytes)
    pages[:] = packed.tobytes()
    keepers = [packed.tobytes(), bytearray(packed), memoryview(packed), pages, Dlpack(packed)]
    keepers.append((ctypes.c_uint8 * packed.nbytes).from_buffer_copy(packed))
    for kept in keepers:
        assert np.array_equal(tuckfold.unpack(kept, "dct_chop", shape=array.shape), expected)


def test_unaligned_packed_bytes_unpack() -> None:
    array = make("f32")
    room = bytearray(tuckfold.pack(array, "raw").nbytes + 1)
    room[1:] = tuckfold.pack(array, "raw").tobytes()
    assert np.array_equal(tuckfold.unpack(memoryview(room)[1:], "raw", array.shape, "f32"), array)


def test_read_only_arrays_pack() -> None:
    array = make("f32")
    array.setflags(write=False)
    assert tuckfold.pack(array, "dct_chop").nbytes == 3 * 20 * 24 * 4


def test_bf16_comes_with_ml_dtypes_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = make("bf16")
    packed = tuckfold.pack(bits, "dct_chop", dtype="bf16")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert tuckfold.unpack(packed, "dct_chop", shape=bits.shape, dtype="bf16").dtype == np.uint16
    monkeypatch.undo()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    same = bits.view(ml_dtypes.bfloat16)
    assert np.array_equal(tuckfold.pack(same, "dct_chop"), packed)
    back = tuckfold.unpack(packed, "dct_chop", shape=bits.shape, dtype=ml_dtypes.bfloat16)
    assert back.dtype == ml_dtypes.bfloat16


def test_zero_sizes_and_scalars() -> None:
    for shape in ((0,), (3, 0, 8), ()):
        array = np.ones(shape, np.float32)
        packed = tuckfold.pack(array, "raw")
        assert packed.nbytes == array.nbytes
        assert tuckfold.unpack(packed, "raw", shape, "f32").shape == shape


def test_seeds_change_stochastic_rounding_alone() -> None:
    array = make("f32")
    spec = "block_quant(bits=2, round=stochastic)"
    first = tuckfold.pack(array, spec, seed=1)
    assert np.array_equal(first, pack_on_one_thread(array, spec, seed=1))
    assert not np.array_equal(first, tuckfold.pack(array, spec, seed=2))
    assert np.array_equal(
        tuckfold.pack(array, spec, seed=-1), tuckfold.pack(array, spec, seed=2**64 - 1)
    )


def test_layout_takes_dtypes_of_numpy() -> None:
    by_name = tuckfold.layout("dct_chop", "f32", (16, 16))
    assert tuckfold.layout("dct_chop", np.float32, [16, 16]) == by_name
    assert tuckfold.layout("dct_chop", np.dtype("float32"), np.array([16, 16])) == by_name
    assert not tuckfold.layout("zstd", "f32", (16, 16)).fixed


def test_matmul_form_is_the_paper() -> None:
    plane = make("f32", (32, 48))
    form = tuckfold.matmul_form("dct_chop(keep=3)", 32, 48)
    packed = tuckfold.pack(plane, "dct_chop(keep=3)").view(np.float32).reshape(12, 18)
    np.testing.assert_allclose(form.lhs @ plane @ form.rhs, packed, atol=1e-5)
    back = tuckfold.unpack(packed, "dct_chop(keep=3)", shape=plane.shape)
    np.testing.assert_allclose(form.back_lhs @ packed @ form.back_rhs, back, atol=1e-5)


# ---- what is refused

ARRAY = make("f32")
REFUSED = [
    (lambda: tuckfold.pack(ARRAY, "dct_chop(keep=9)"), ValueError, "keep must be 1..8"),
    (lambda: tuckfold.pack(ARRAY, "dct_chopp"), ValueError, "dct_chop"),
    (lambda: tuckfold.pack(ARRAY, "raw\0"), ValueError, "NUL"),
    (lambda: tuckfold.pack(ARRAY, 4), TypeError, "text or a CodecSpec"),
    (lambda: tuckfold.pack([1.0, 2.0], "raw"), TypeError, "numpy.asarray"),
    (lambda: tuckfold.pack(ARRAY > 0, "dct_chop"), ValueError, "lossy and bool holds"),
    (lambda: tuckfold.pack(ARRAY.astype(">u2"), "raw"), ValueError, "dtype must be one of"),
    (lambda: tuckfold.pack(ARRAY.astype(">f4"), "raw"), ValueError, r"got >f4, which is big-endian; astype\('<f4'\)"),
    (lambda: tuckfold.pack(ARRAY.astype(complex), "raw"), ValueError, "complex128"),
    (lambda: tuckfold.pack(ARRAY, "raw", dtype="f16"), ValueError, "float32, not f16"),
    (lambda: tuckfold.set_num_threads(-1), ValueError, "set_num_threads"),
    (lambda: tuckfold.pack(np.zeros(3, np.float32), "dct_chop"), ValueError, "dct_chop"),
    (lambda: tuckfold.pack(Dlpack(ARRAY, device=2), "raw"), NotImplementedError, "CPU"),
    (lambda: tuckfold.layout("raw", "f99", (3,)), ValueError, "f99"),
    (lambda: tuckfold.layout("raw", list(range(9999)), (3,)), TypeError, "dtype must be a name.*got list$"),
    (lambda: tuckfold.layout("raw", int.bit_count, (3,)), TypeError, "dtype must be a name"),
    (lambda: tuckfold.layout("raw", np.dtype([("b" * 99, "f4")]), (3,)), ValueError, "dtype must be one of"),
    (lambda: tuckfold.layout("raw", "f32", (1,) * 65), ValueError, "64"),
    (lambda: tuckfold.layout("raw", "f32", (-1,)), ValueError, "-1"),
    (lambda: tuckfold.unpack(b"123", "raw"), ValueError, "shape"),
    (lambda: tuckfold.unpack(bytes(4), "raw", (1,)), ValueError, "say which"),
    (lambda: tuckfold.unpack(bytes(4), "bits | zstd", (1,)), ValueError, "say which"),
    (lambda: tuckfold.layout("raw", "f32", (2**64 + 16,)), ValueError, "2\\*\\*63"),
    (lambda: tuckfold.layout("raw", "f32", 5), TypeError, "shape must be a sequence"),
    (lambda: tuckfold.layout("raw", "f32", (1.5,)), TypeError, "shape must be a sequence"),
    (lambda: tuckfold.matmul_form("dct_chop", 2**64 + 64, 64), ValueError, "rows must be 1..2\\*\\*63 - 1, got 184"),
    (lambda: tuckfold.matmul_form("dct_chop", 64, -(2**64) + 64), ValueError, "cols must be 1.."),
    (lambda: tuckfold.matmul_form("dct_chop", 8.0, 8), TypeError, "rows must be an integer, got 8.0; give"),
    (lambda: tuckfold.matmul_form("dct_chop", 8, "8" * 999), TypeError, "cols must be an integer, got '8"),
    (lambda: tuckfold.pack(ARRAY, None), TypeError, "NoneType"),
    (lambda: tuckfold.pack(ARRAY, "raw", seed="x"), TypeError, "integer"),
    (lambda: tuckfold.pack(np.ma.masked_equal(ARRAY, 0), "raw"), TypeError, "mask"),
    (lambda: tuckfold.unpack(b"123", "raw", (1,), "f32"), tuckfold.CorruptDataError, "got 3"),
    (lambda: tuckfold.unpack(b"123", "raw", (1 << 40,), "f32"), tuckfold.CorruptDataError, "got 3"),
    (lambda: tuckfold.unpack(b"x" * 99, "zstd", (64,), "f32"), tuckfold.CorruptDataError, "zstd"),
    (lambda: tuckfold.unpack(np.zeros(8, np.uint8)[::2], "raw", (1,), "f32"), ValueError, "contiguous"),
    (lambda: tuckfold.unpack(bytes(4), "raw", out=np.zeros(2, np.float32), shape=(1,)), ValueError, "out has shape"),
    (lambda: tuckfold.unpack(bytes(4), "raw", out=np.frombuffer(bytes(4), np.float32)), ValueError, "writeable"),
    (lambda: tuckfold.unpack(bytes(8), "raw", out=np.broadcast_to(ARRAY[0, 0, :1], (2,))), ValueError, "writeable"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_a_mistake_is_an_exception_of_its_class(call, error: type, text: str) -> None:
    raises_exactly(error, text, call)
    with pytest.raises(error) as raised:
        call()
    assert len(str(raised.value)) < 400  # no dump of values


def test_strides_within_an_element_are_refused() -> None:
    records = np.zeros(8, np.dtype([("flag", "u1"), ("value", "<f4")]))
    with pytest.raises(ValueError, match="whole elements of 4 bytes"):
        tuckfold.pack(records["value"], "raw")


# ---- threads


def test_python_threads_pack_the_same_bytes() -> None:
    array = make("f32", (3, 256, 256))
    expected = tuckfold.pack(array, "dct_chop | block_quant")
    wrong = []

    def work() -> None:
        for _ in range(10):
            if not np.array_equal(tuckfold.pack(array, "dct_chop | block_quant"), expected):
                wrong.append(1)

    on_four_threads(work)
    assert not wrong


def test_other_threads_run_while_one_packs() -> None:
    array = np.random.default_rng(0).integers(0, 255, 1 << 23, dtype=np.uint8)
    assert releases_gil(lambda: pack_on_one_thread(array, "zstd(level=9)"))


def test_plans_live_while_other_threads_drop_them() -> None:
    """Thousands of specs pass through the caches; none is freed during a call."""
    array = np.zeros((8, 64), np.float32)

    def work(thread: int) -> None:
        for i in range(400):
            rate = 1 + (i * 7 + thread) % 100 / 8
            tuckfold.layout(f"dct_quant(rate={rate}, offset={i * 4 + thread})", "f32", (64, 64))
            tuckfold.pack(array, f"block_quant(group={64 << i % 3}, bits={1 + i % 8})")
            tuckfold.matmul_form(f"dct_chop(keep={1 + i % 8})", 16, 8 * (1 + i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_seeds_are_integers_of_64_bits() -> None:
    array, spec = make("f32"), "block_quant(bits=2, round=stochastic)"
    expected = tuckfold.pack(array, spec, seed=3)
    assert np.array_equal(tuckfold.pack(array, spec, seed=np.int64(3)), expected)
    for seed in (3 + 2**64, -(2**63) - 1):  # would be the noise of another
        with pytest.raises(ValueError, match=r"seed must be -2\*\*63..2\*\*64 - 1, got"):
            tuckfold.pack(array, spec, seed=seed)


@pytest.mark.parametrize("spec", ["raw", "block_quant(bits=8)", "bounded(abs=0.01)", "zstd", "shuffle | zstd"])  # fmt: skip
def test_out_may_not_share_memory_with_the_bytes(spec: str) -> None:
    x = np.random.default_rng(0).random(4096).astype(np.float32)
    packed = tuckfold.pack(x, spec)
    memory = np.zeros(4 * x.nbytes, np.uint8)
    memory[: packed.nbytes] = packed
    before = memory.copy()
    for start in (0, packed.nbytes // 4 * 4 - 4):
        with pytest.raises(ValueError, match="shares memory with the packed bytes"):
            tuckfold.unpack(
                memory[: packed.nbytes], spec, out=memory[start : start + x.nbytes].view(np.float32)
            )
    assert np.array_equal(memory, before)
    apart = memory[x.nbytes + 64 :][: x.nbytes].view(np.float32)
    tuckfold.unpack(memory[: packed.nbytes], spec, out=apart)
    assert np.allclose(apart, x, atol=0.011)
    # In every other element, with the bytes between them.
    if spec == "raw":
        pairs = np.zeros((4096, 2), np.float32)
        pairs[:1, 1] = 7
        tuckfold.unpack(x.view(np.uint8), "raw", out=pairs[:, 0])
        assert np.array_equal(pairs[:, 0], x) and pairs[0, 1] == 7


def test_a_shape_without_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        tuckfold.unpack(b"", "zstd", (1 << 40, 1 << 10), "f64")


def test_packed_knows_itself() -> None:
    for dtype, spec in CASES:
        array = make(dtype)
        packed = tuckfold.Packed.pack(array, spec, dtype=dtype)
        same = pickle.loads(pickle.dumps(packed))
        assert same == packed
        assert hash(same) == hash(packed)
        assert packed.nbytes == tuckfold.pack(array, spec, dtype=dtype).nbytes
        back = tuckfold.unpack(packed.bytes, spec, array.shape, dtype)
        assert same.unpack().tobytes() == back.tobytes()
        assert packed.ratio == array.nbytes / packed.nbytes
        out = np.zeros_like(array)
        assert packed.unpack(out=out) is out
    frame = bytearray(tuckfold.Packed.pack(make("f32"), "dct_quant(rate=4)").to_bytes())
    for at in range(0, len(frame), 7):
        frame[at] ^= 1
        with pytest.raises((tuckfold.CorruptDataError, NotImplementedError)):
            tuckfold.Packed.from_bytes(frame)
        frame[at] ^= 1
    with pytest.raises(tuckfold.CorruptDataError):
        tuckfold.Packed.from_bytes(frame[:-1])


def test_small_calls_are_cheap() -> None:
    """CPU time of calls with 12 KB, the best of many: 6 µs where this was written, 10 with a layer more."""
    array = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)
    out = np.empty_like(array)
    packed = tuckfold.pack(array, "raw")

    def cost(call) -> float:
        best = float("inf")
        for _ in range(60):
            start = time.thread_time()
            for _ in range(100):
                call()
            best = min(best, (time.thread_time() - start) / 100)
        return best

    tuckfold.set_num_threads(1)
    try:
        assert cost(lambda: tuckfold.pack(array, "raw")) < 16e-6
        assert cost(lambda: tuckfold.unpack(packed, "raw", out=out)) < 16e-6
    finally:
        tuckfold.set_num_threads(0)
