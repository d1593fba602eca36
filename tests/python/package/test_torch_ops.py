"""The operators: opcheck for every codec and dtype, bytes equal to numpy's, strides, errors."""

import subprocess
import sys

import numpy as np
import pytest

import tuckfold
from calls import raises_exactly

torch = pytest.importorskip("torch")
import tuckfold.torch as tft  # noqa: E402
from tuckfold.torch._library import DTYPES, dtype_name  # noqa: E402

LOSSY = ["dct_chop(keep=3)", "dct_chop(keep=3, shape=triangle)", "dct_quant(rate=4)",
         "block_quant(bits=4)", "dct_chop(keep=3) | block_quant(bits=8)", "zfp(rate=8)"]  # fmt: skip
EXACT = ["raw", "bits(width=8)", "mask", "positive", "bytes_of(scale=1/255)", "shuffle(delta=plane)",
         "pool_index(stride=1, width=1000)"]  # fmt: skip
VARYING = [
    "nonzero_quant(bits=3)",
    "bounded(abs=0.05)",
    "bounded(abs=0.05) | zstd",
    "zstd",
    "bits",
    "zfp(accuracy=0.05)",
]
FLOATS = ["f32", "f16", "bf16", "f64"]


def make(spec: str, dtype: str, shape: tuple[int, ...] = (2, 24, 32)) -> torch.Tensor:
    """Values that the codec takes: two for mask, k/255 for bytes_of, small whole numbers for bits."""
    whole = torch.arange(np.prod(shape)).reshape(shape)
    if spec.startswith("pool_index"):
        rows, columns = shape[-2:]
        index = 1000 * torch.arange(rows).unsqueeze(1) + torch.arange(columns)
        return index.expand(shape).contiguous().to(DTYPES[dtype])
    if spec.startswith(("mask", "positive")):
        whole = whole % 2
    elif spec.startswith("bytes_of"):
        return ((whole % 256).double() / 255).to(DTYPES[dtype])
    elif spec.startswith("bits") or dtype not in FLOATS:
        whole = whole % 100
    else:
        return torch.sin(whole / 50).to(DTYPES[dtype])
    return whole.to(DTYPES[dtype])


def fits(spec: str, dtype: str) -> bool:
    try:
        tuckfold.layout(spec, dtype, (2, 24, 32))
        return True
    except ValueError:
        return False


CASES = [
    (spec, dtype)
    for spec in LOSSY + EXACT + VARYING
    for dtype in DTYPES
    if fits(spec, dtype) and not (spec.startswith("bits") and dtype in FLOATS)
]
FIXED = [(spec, dtype) for spec, dtype in CASES if spec not in VARYING]


def test_every_codec_is_tried() -> None:
    tried = {stage.name for spec, _ in CASES for stage in tuckfold.CodecSpec(spec).stages}
    assert tried == {codec.name for codec in tuckfold.list_codecs()}
    assert {dtype for _, dtype in CASES} == set(DTYPES)


@pytest.mark.parametrize(("spec", "dtype"), CASES)
def test_opcheck_of_pack_and_unpack(spec: str, dtype: str) -> None:
    x = make(spec, dtype)
    torch.library.opcheck(torch.ops.tuckfold.pack.default, (x, spec, 3))
    packed = torch.ops.tuckfold.pack(x, spec, 3)
    torch.library.opcheck(torch.ops.tuckfold.unpack.default, (packed, spec, list(x.shape), x.dtype))
    torch.library.opcheck(
        torch.ops.tuckfold.unpack_into.default, (packed, spec, torch.empty_like(x))
    )


@pytest.mark.parametrize("spec", ["dct_chop(keep=3)", "block_quant(bits=4)", "bounded(abs=0.05)"])
def test_opcheck_of_many(spec: str) -> None:
    xs = [make(spec, "f32"), make(spec, "bf16", (16, 40)), make(spec, "f32", (3, 8, 24))]
    torch.library.opcheck(torch.ops.tuckfold.pack_many.default, (xs, spec, 3))
    packed = torch.ops.tuckfold.pack_many(xs, spec, 3)
    outs = [torch.empty_like(x) for x in xs]
    torch.library.opcheck(torch.ops.tuckfold.unpack_many_into.default, (packed, spec, outs))


@pytest.mark.parametrize("spec", LOSSY + VARYING)
def test_many_have_the_bytes_of_each_alone(spec: str) -> None:
    xs = [make(spec, "f32", shape) for shape in [(16, 24), (2, 24, 32), (0, 8)]]
    if spec.startswith("bits"):
        xs = [x.int() for x in xs]
    packed = tft.pack_many(xs, spec, seed=2**63 - 1)
    back = tft.unpack_many(packed, spec, out=[torch.empty_like(x) for x in xs])
    for i, x in enumerate(xs):
        wanted = tft.pack(x, spec, seed=2**63 - 1 + i)
        assert torch.equal(packed[i], wanted)
        assert torch.equal(back[i], tft.unpack(wanted, spec, x.shape, x.dtype))
    assert tft.pack_many([], spec) == []


def test_many_are_refused_together() -> None:
    good, odd = torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.int64)
    raises_exactly(ValueError, "exact", lambda: tft.pack_many([good, odd], "dct_chop(keep=4)"))
    packed = tft.pack_many([good, good], "raw")
    untouched = [torch.ones(8, 8), torch.ones(8, 9)]
    raises_exactly(
        tuckfold.CorruptDataError, "bytes", lambda: tft.unpack_many(packed, "raw", out=untouched)
    )
    assert bool((untouched[0] == 1).all())
    raises_exactly(ValueError, "as many", lambda: tft.unpack_many(packed, "raw", out=untouched[:1]))


@pytest.mark.parametrize(("spec", "dtype"), [c for c in FIXED if c[0].startswith("dct_chop(")])
def test_opcheck_of_compress_and_decompress(spec: str, dtype: str) -> None:
    x = make(spec, dtype).requires_grad_(dtype in FLOATS)
    torch.library.opcheck(torch.ops.tuckfold.compress.default, (x, spec))
    coefs = torch.ops.tuckfold.compress(x, spec).detach().requires_grad_("block_quant" not in spec)
    torch.library.opcheck(
        torch.ops.tuckfold.decompress.default, (coefs, spec, list(x.shape), x.dtype)
    )


@pytest.mark.parametrize(("spec", "dtype"), CASES)
def test_bytes_are_those_of_numpy(spec: str, dtype: str) -> None:
    x = make(spec, dtype)
    array = x.view(torch.uint16).numpy() if dtype == "bf16" else x.numpy()
    packed = tft.pack(x, spec, seed=5)
    assert np.array_equal(packed.numpy(), tuckfold.pack(array, spec, seed=5, dtype=dtype))
    back = tft.unpack(packed, spec, x.shape, x.dtype)
    expected = tuckfold.unpack(packed.numpy(), spec, shape=x.shape, dtype=dtype)
    same = back.view(torch.uint16).numpy() if dtype == "bf16" else back.numpy()
    assert np.array_equal(same, expected.view(same.dtype), equal_nan=True)


@pytest.mark.parametrize("spec", ["dct_chop(keep=4)", "block_quant(bits=8)", "zstd"])
def test_strides_are_walked_in_place(spec: str) -> None:
    base = torch.rand(4, 16, 24, 32)
    views = [
        base.to(memory_format=torch.channels_last),
        base.transpose(1, 3),
        base[:, ::2, :, 8:],
        base[:1].expand(3, -1, -1, -1),
    ]
    for view in views:
        packed = tft.pack(view, spec)
        assert torch.equal(packed, tft.pack(view.contiguous(), spec))
        out = torch.empty_strided(view.contiguous().transpose(1, 3).shape, (1,) * 4).new_empty(
            view.transpose(1, 3).shape
        )
        filled = tft.unpack(packed, spec, out=out.transpose(1, 3))
        assert torch.equal(filled, tft.unpack(packed, spec, view.shape, view.dtype))


def test_packing_a_view_takes_no_memory_of_its_size() -> None:
    wide = torch.arange(16.0).expand(1 << 25, 16)  # 2 GiB that are not there
    with pytest.raises(ValueError, match="bits"):
        tft.pack(wide, "bits(width=1)")


def test_threads_of_torch_do_not_change_the_bytes() -> None:
    x = torch.rand(64, 3, 64, 64)
    before = torch.get_num_threads()
    try:
        for spec in ("dct_chop(keep=4) | block_quant(bits=8)", "bounded(abs=0.001) | zstd"):
            torch.set_num_threads(1)
            alone = tft.pack(x, spec)
            torch.set_num_threads(4)
            assert torch.equal(tft.pack(x, spec), alone)
            assert torch.equal(
                tft.unpack(alone, spec, x.shape),
                torch.from_numpy(tuckfold.unpack(alone, spec, shape=x.shape)),
            )
    finally:
        torch.set_num_threads(before)


def test_zero_sizes() -> None:
    x = torch.empty(3, 0, 8)
    for spec in ("raw", "dct_chop(keep=4)", "block_quant(bits=8)"):
        packed = tft.pack(x, spec)
        assert packed.shape == (0,)
        assert tft.unpack(packed, spec, x.shape, x.dtype).shape == x.shape


def test_packed_bytes_pass_between_numpy_and_torch() -> None:
    x = torch.rand(16, 64)
    packed = tuckfold.pack(x, "block_quant(bits=8)")  # a tensor is seen through DLPack
    assert torch.equal(torch.from_numpy(packed), tft.pack(x, "block_quant(bits=8)"))
    out = torch.empty(16, 64)
    assert tuckfold.unpack(packed, "block_quant(bits=8)", out=out) is out
    assert torch.equal(out, tft.unpack(torch.from_numpy(packed), "block_quant(bits=8)", x.shape))
    view = torch.from_dlpack(tuckfold.unpack(packed, "block_quant(bits=8)", shape=(16, 64)))
    assert torch.equal(view, out)


# ---- errors

X = torch.rand(16, 16)
REFUSED = [
    (lambda: tft.pack(X, "dct_chop(keep=9)"), ValueError, "keep must be 1..8"),
    (lambda: tft.pack(X, "raw\0"), ValueError, "NUL"),
    (lambda: tft.pack(X > 0.5, "dct_chop"), ValueError, "lossy and bool holds"),
    (lambda: tft.pack(X.to(torch.complex64), "raw"), ValueError, "dtype must be"),
    (lambda: tft.pack(torch.rand(3), "dct_chop"), ValueError, "two sides"),
    (lambda: tft.unpack(torch.zeros(9, dtype=torch.uint8), "raw", (2,), torch.float32), tuckfold.CorruptDataError, "got 9"),
    (lambda: tft.unpack(torch.zeros(9, dtype=torch.uint8), "raw", (1 << 40,), torch.float32), tuckfold.CorruptDataError, "got 9"),
    (lambda: tft.unpack(torch.zeros(9, dtype=torch.uint8), "zstd", (8,), torch.float32), tuckfold.CorruptDataError, "zstd"),
    (lambda: tft.unpack(torch.zeros(8, dtype=torch.uint8), "raw", (-2,), torch.float32), ValueError, "-2"),
    (lambda: tft.unpack(torch.zeros(8, dtype=torch.uint8), "raw", (1,) * 65, torch.float32), ValueError, "64 axes"),
    (lambda: tft.unpack(torch.zeros(2), "raw", (2,), torch.float32), ValueError, "uint8"),
    (lambda: tft.unpack(torch.zeros(16, dtype=torch.uint8)[::2], "raw", (2,), torch.float32), ValueError, "contiguous"),
    (lambda: tft.unpack(torch.zeros(8, dtype=torch.uint8), "raw"), ValueError, "shape"),
    (lambda: tft.unpack(torch.zeros(8, dtype=torch.uint8), "raw", (3,), out=torch.zeros(2)), ValueError, "out has shape"),
    (lambda: tft.unpack(torch.zeros(8, dtype=torch.uint8), "raw", out=torch.zeros(1).expand(2)), ValueError, "repeat"),
    (lambda: tft.layout("raw", torch.complex64, (3,)), ValueError, "complex64"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_a_mistake_is_an_exception_of_its_class(call, error: type, text: str) -> None:
    raises_exactly(error, text, call)


def test_operators_alone_raise_what_torch_makes_of_it() -> None:
    either = (ValueError, RuntimeError)  # by version of torch
    with pytest.raises(either, match="fixed size"):
        torch.ops.tuckfold.compress(X, "zstd")
    with pytest.raises(either, match="dtype"):
        torch.ops.tuckfold.decompress(X.half(), "dct_chop", (16, 16), torch.float32)
    with pytest.raises(either, match="keep must be 1..8"):
        torch.ops.tuckfold.pack(X, "dct_chop(keep=9)", 0)


def test_tensors_that_numpy_cannot_see_are_refused() -> None:
    with pytest.raises(ValueError, match="uint16"):
        tuckfold.pack(X.bfloat16(), "raw")
    with pytest.raises(ValueError, match="gradient"):
        tuckfold.pack(torch.rand(4, requires_grad=True), "raw")


def test_meta_tensors_have_shapes_alone() -> None:
    packed = tft.pack(X.to("meta"), "dct_chop(keep=4)")
    assert packed.device.type == "meta"
    assert packed.shape == (256,)
    assert tft.unpack(packed, "dct_chop(keep=4)", X.shape).shape == X.shape


def test_any_integer_of_64_bits_is_a_seed() -> None:
    spec = "block_quant(bits=2, round=stochastic)"
    for seed in (-1, 2**64 - 1, 2**63):
        same = tuckfold.pack(X.numpy(), spec, seed=seed)
        assert np.array_equal(tft.pack(X, spec, seed=seed).numpy(), same)
    with pytest.raises(ValueError, match="seed must be"):
        tft.pack(X, spec, seed=2**64)


def test_out_may_not_share_memory_with_the_bytes() -> None:
    packed = tft.pack(X, "block_quant(bits=8)")
    memory = torch.zeros(2 * X.nbytes, dtype=torch.uint8)
    memory[: packed.nbytes] = packed
    out = memory[: X.nbytes].view(X.dtype).view(X.shape)
    with pytest.raises(ValueError, match="shares memory with the packed bytes"):
        tft.unpack(memory[: packed.nbytes], "block_quant(bits=8)", out=out)
    with pytest.raises(ValueError, match="tensor 0 and tensor 1 share memory"):
        out = torch.empty_like(X)
        tft.unpack_many([packed, packed], "block_quant(bits=8)", out=[out, out])
    planes = torch.empty(*X.shape, 2)  # which interleave
    for one in tft.unpack_many([packed] * 2, "block_quant(bits=8)", out=planes.unbind(-1)):
        assert torch.equal(one, tft.unpack(packed, "block_quant(bits=8)", X.shape))


def test_outs_that_are_negated_when_they_are_read() -> None:
    def lazy() -> torch.Tensor:
        return torch.zeros(X.shape, dtype=torch.cfloat).conj().imag

    packed, out, other = tft.pack(X, "raw"), lazy(), torch.empty_like(X)
    assert out.is_neg()
    assert torch.equal(tft.unpack(packed, "raw", out=out), X) and out.is_neg()
    assert torch.equal(out._base.imag, -X)  # the memory below
    for made in tft.unpack_many([packed] * 2, "raw", out=[lazy(), other]):
        assert torch.equal(made, X)
    with pytest.raises(ValueError, match="dtype must be"):
        tft.unpack(packed, "raw", out=torch.zeros(X.shape, dtype=torch.cfloat).conj())


def test_a_shape_without_memory_is_a_memory_error(capfd: pytest.CaptureFixture[str]) -> None:
    packed = torch.empty(0, dtype=torch.uint8)
    with pytest.raises(MemoryError, match="not enough memory for this: 9007199254740992 bytes"):
        tft.unpack(packed, "zstd", (1 << 40, 1 << 10), torch.float64)
    assert capfd.readouterr().err == ""


def test_an_older_error_is_not_mistaken_for_this_one() -> None:
    with pytest.raises(tuckfold.CorruptDataError):
        tuckfold.unpack(b"123", "zstd", (8,), "f32")
    with pytest.raises(ValueError, match="dtype") as raised:
        tft.pack(X.to(torch.complex64), "raw")
    assert raised.type is ValueError


def test_gradients_end_at_pack_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    x = torch.rand(16, 16, requires_grad=True)
    assert not tft.pack(x, "dct_chop").requires_grad
    assert not tft.unpack(tft.pack(x, "dct_chop"), "dct_chop", x.shape).requires_grad
    assert not recwarn.list


def test_calls_leak_nothing() -> None:
    def resident_kib() -> int:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 4

    packed = tft.pack(X, "dct_chop(keep=4)")

    def calls() -> None:
        for _ in range(20000):
            torch.ops.tuckfold.pack(X, "dct_chop(keep=4)", 0)
            torch.ops.tuckfold.unpack(packed, "dct_chop(keep=4)", [16, 16], torch.float32)
            torch.ops.tuckfold.pack_many([X, X], "dct_chop(keep=4)", 0)

    calls()
    before = resident_kib()
    calls()
    assert resident_kib() - before < 500  # 32 bytes a call would be more


def test_the_library_needs_nothing_but_stable_torch() -> None:
    """No symbol of torch's C++, so that other versions of torch load it unchanged."""
    from tuckfold._library import library_path

    names = subprocess.check_output(
        ["nm", "--dynamic", "--undefined-only", library_path("libtuckfold_torch.so")], text=True
    ).split()
    wrong = [
        n for n in names if n.startswith(("_ZN2at", "_ZN3c10", "_ZN5torch", "_ZNK2at", "_ZNK3c10"))
    ]
    assert not wrong
    needed = subprocess.check_output(
        ["objdump", "-p", library_path("libtuckfold_torch.so")], text=True
    )
    assert "libtorch_cpu.so" in needed
    assert "libpython" not in needed
    assert "libgomp" not in needed
    assert "libc10" not in needed


def test_dtype_names_cover_torch() -> None:
    assert [dtype_name("t", d) for d in DTYPES.values()] == list(DTYPES)


def test_importing_the_root_leaves_torch_alone() -> None:
    program = "import sys, tuckfold; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
