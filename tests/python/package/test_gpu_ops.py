"""The operators on a GPU: the CPU's bytes and values for every codec that runs there, errors."""

import itertools

import torch

import gpu
import tuckfold
import tuckfold.torch as tft
from tuckfold.torch._library import DTYPES

pytestmark = gpu.marks
DEVICE, each, raises = gpu.DEVICE, gpu.each, gpu.raises
ALL = gpu.cases(gpu.LOSSY + gpu.EXACT + gpu.VARYING)
SPECS = list(dict.fromkeys(spec for spec, _ in ALL))
FIXED = [spec for spec in SPECS if spec not in gpu.VARYING]
# Past what one block of threads does, with tails, and with a start that is not aligned.
SHAPES = [(8, 3, 224, 224), (3, 37, 129), (257, 1031), (1, 8, 8), (5, 1000, 17)]


def test_every_codec_that_runs_there_is_tried() -> None:
    tried = {stage.name for spec in SPECS for stage in tuckfold.CodecSpec(spec).stages}
    if gpu.ON_GPU:
        assert tried == {codec.name for codec in tuckfold.list_codecs() if codec.cuda}
    assert "raw" in tried


@each(*ALL)
def test_bytes_and_values_are_the_cpus(spec: str, dtype: str) -> None:
    x = gpu.make(spec, dtype)
    gpu.check_against_cpu(spec, x, x.to(DEVICE))


@each(*[(spec, shape) for spec in SPECS for shape in SHAPES])
def test_large_and_odd_shapes_too(spec: str, shape: tuple) -> None:
    whole = spec.startswith(("bits", "pool_index"))
    dtypes = ("u8", "i32", "i64") if whole else gpu.WIDE
    for dtype in dtypes:
        if gpu.fits(spec, dtype, shape):
            x = gpu.make(spec, dtype, shape)
            gpu.check_against_cpu(spec, x, x.to(DEVICE))


@each(*[(spec,) for spec in gpu.LOSSY if spec in SPECS])
def test_nan_and_infinities_too(spec: str) -> None:
    for dtype in gpu.WIDE:
        x = gpu.make(spec, dtype, (4, 64, 64))
        x[0, 3, 5], x[1, 9, 40], x[2, 63, 63] = float("nan"), float("inf"), -float("inf")
        x[3] *= 1e-40 if dtype == "f32" else 1e-7
        gpu.check_against_cpu(spec, x, x.to(DEVICE))


@each(*[(spec,) for spec in FIXED if gpu.fits(spec, "f32", (4, 16, 24, 40))])
def test_strides_are_walked_in_place(spec: str) -> None:
    base = gpu.make(spec, "f32", (4, 16, 24, 40))
    orders = [
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t.transpose(1, 3),
        lambda t: t[:, ::2, :, 8:],
        lambda t: t[..., 1:-1],
        lambda t: t[:1].expand(3, -1, -1, -1),
        lambda t: t.permute(3, 0, 2, 1),
    ]
    for order in orders:
        view = order(base)
        there = order(base.to(DEVICE))
        assert there.stride() == view.stride()
        gpu.check_against_cpu(spec, view, there)
        if 0 in view.stride():
            continue
        out = order(torch.full_like(base, 7.0).to(DEVICE))
        packed = tft.pack(there, spec)
        assert tft.unpack(packed, spec, out=out) is out
        assert gpu.same(out.contiguous(), tft.unpack(packed, spec, view.shape, view.dtype)), spec


@each(*[(spec,) for spec in SPECS])
def test_channels_last_comes_back_as_channels_last(spec: str) -> None:
    dtype = next(name for name in ("f32", "u8", "i64") if (spec, name) in ALL)
    x = gpu.make(spec, dtype, (4, 8, 32, 32)).to(DEVICE)
    x = x.contiguous(memory_format=torch.channels_last)
    packed = tft.pack(x, spec)
    out = tft.unpack(packed, spec, out=torch.empty_like(x))
    assert out.stride() == x.stride()
    assert gpu.same(out, tft.unpack(packed.cpu(), spec, x.shape, x.dtype))


def test_zero_sizes() -> None:
    for shape in ((3, 0, 8), (0,)):
        x = torch.empty(shape, device=DEVICE)
        packed = tft.pack(x, "raw")
        assert packed.numel() == 0
        assert tft.unpack(packed, "raw", shape, x.dtype).shape == x.shape


def test_seeds_change_the_bytes_as_on_the_cpu() -> None:
    spec = "block_quant(bits=2, round=stochastic)"
    if not gpu.runs(spec):
        gpu.skip("block_quant does not run there")
    x = gpu.make(spec, "f32", (64, 256))
    for seed in (0, 1, -1, 2**63):
        assert gpu.same(tft.pack(x.to(DEVICE), spec, seed=seed), tft.pack(x, spec, seed=seed))


@each(*gpu.cases(gpu.LOSSY + gpu.EXACT + gpu.VARYING, ("f32", "bf16", "i64", "u8")))
def test_opcheck(spec: str, dtype: str) -> None:
    x = gpu.make(spec, dtype).to(DEVICE)
    torch.library.opcheck(torch.ops.tuckfold.pack.default, (x, spec, 3))
    packed = torch.ops.tuckfold.pack(x, spec, 3)
    unpack = (packed, spec, list(x.shape), x.dtype)
    torch.library.opcheck(torch.ops.tuckfold.unpack.default, unpack)
    into = (packed, spec, torch.empty_like(x))
    torch.library.opcheck(torch.ops.tuckfold.unpack_into.default, into)


def test_values_that_do_not_fit_are_refused() -> None:
    for spec in ("bits(width=4)", "mask"):
        if gpu.runs(spec):
            with raises(ValueError, spec.split("(")[0]):
                tft.pack(torch.arange(100, device=DEVICE), spec)
    assert tft.pack(torch.ones(64, device=DEVICE), "raw").numel() == 256  # the device lives on


# ---- mistakes


def test_codecs_without_kernels_say_so() -> None:
    if not gpu.ON_GPU:
        gpu.skip("on the CPU all run")
    x = torch.rand(16, 64, device=DEVICE)
    for codec in tuckfold.list_codecs():
        if not codec.cuda and codec.name in ("zstd", "zfp"):
            spec = {"zfp": "zfp(rate=8)"}.get(codec.name, codec.name)
            with raises(NotImplementedError, "runs on the CPU alone"):
                tft.pack(x, spec)


def test_packed_bytes_and_tensor_are_on_one_device() -> None:
    if not gpu.ON_GPU:
        gpu.skip("there is but one")
    x = torch.rand(16, 64)
    with raises(ValueError, "one device"):
        tft.unpack(tft.pack(x, "raw"), "raw", out=x.to(DEVICE))
    with raises(ValueError, "one device"):
        tft.unpack(tft.pack(x.to(DEVICE), "raw"), "raw", out=x)


def test_a_slice_of_packed_bytes_is_to_be_cloned() -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU takes any address")
    x = torch.rand(16, 64, device=DEVICE)
    padded = torch.cat([torch.zeros(1, dtype=torch.uint8, device=DEVICE), tft.pack(x, "raw")])
    with raises(ValueError, "16 bytes", "clone()"):
        tft.unpack(padded[1:], "raw", x.shape, x.dtype)
    assert torch.equal(tft.unpack(padded[1:].clone(), "raw", x.shape, x.dtype), x)


def test_mistakes_are_exceptions_of_their_class() -> None:
    x = torch.rand(16, 64, device=DEVICE)
    packed = tft.pack(x, "raw")
    with raises(tuckfold.CorruptDataError, "got 4095"):
        tft.unpack(packed[:-1], "raw", x.shape, x.dtype)
    with raises(ValueError, "contiguous()"):
        tft.unpack(packed[::2], "raw", (16, 32), torch.float32)
    with raises(ValueError, "uint8"):
        tft.unpack(x, "raw", x.shape, x.dtype)
    if gpu.ON_GPU:
        with raises(NotImplementedError, "use raw or mask"):
            tft.pack(x > 0.5, "bits(width=1)")
    with raises(ValueError, "repeat"):
        tft.unpack(packed, "raw", out=torch.zeros(1, 64, device=DEVICE).expand(16, -1))


def test_numpy_points_to_torch() -> None:
    if not gpu.ON_GPU:
        gpu.skip("numpy sees the CPU's memory")
    with raises(NotImplementedError, "tuckfold.torch"):
        tuckfold.pack(torch.rand(16, 64, device=DEVICE), "raw")


def test_vmap_takes_rows_that_start_anywhere() -> None:
    x = torch.rand(5, 7, 3, device=DEVICE)  # 84 bytes each
    packed = torch.vmap(lambda one: tft.pack(one, "raw"))(x)
    back = torch.vmap(lambda one: tft.unpack(one, "raw", (7, 3), torch.float32))(packed)
    assert torch.equal(back, x)


def test_half_types_of_autocast() -> None:
    for spec in FIXED:
        for dtype in ("f16", "bf16"):
            if gpu.fits(spec, dtype, (8, 32, 32)) and not spec.startswith("bits"):
                x = gpu.make(spec, dtype, (8, 32, 32)).to(DEVICE)
                assert x.dtype == DTYPES[dtype]
                assert tft.unpack(tft.pack(x, spec), spec, x.shape, x.dtype).dtype == x.dtype


MANY = [(3, 40, 104), (5, 13, 17), (8, 8), (16, 3, 64, 64), (64, 3, 224, 224), (0, 8, 8)]


@each(*[(spec,) for spec in SPECS if not spec.startswith(("bits", "mask"))])
def test_many_tensors_have_the_bytes_of_each_alone(spec: str) -> None:
    shapes = [shape for shape in MANY * 3 if gpu.fits(spec, "f32", shape)]
    xs = [gpu.make(spec, "f32", shape) for shape in shapes]
    packed = tft.pack_many([x.to(DEVICE) for x in xs], spec, seed=3)
    back = tft.unpack_many(packed, spec, out=[torch.empty_like(x, device=DEVICE) for x in xs])
    for i, x in enumerate(xs):
        wanted = tft.pack(x, spec, seed=3 + i)
        assert gpu.same(packed[i], wanted), (spec, x.shape, x.dtype)
        assert gpu.same(back[i], tft.unpack(wanted, spec, x.shape, x.dtype)), (spec, x.shape)


def test_many_tensors_are_of_one_device() -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU is one device")
    xs = [torch.zeros(8, 8), torch.zeros(8, 8, device=DEVICE)]
    with raises(ValueError, "one device"):
        tft.pack_many(xs, "dct_chop(keep=4)")


@each(*itertools.product(gpu.WIDE, ("block_quant(bits=4)", "block_quant(bits=3)", "raw")))
def test_unpack_then_has_the_values_of_the_cpu(dtype: str, spec: str) -> None:
    for shape in ((3, 16, 14, 14), (2, 7, 5, 9), (4, 64, 8, 8)):
        x = gpu.make(spec, dtype, shape)
        scale, shift = torch.linspace(-1, 2, shape[1]), torch.linspace(0.5, -1, shape[1])
        for memory in (torch.contiguous_format, torch.channels_last):
            for order in ("logical", "storage"):
                own = tft.Packed.pack(x.to(memory_format=memory), spec, order=order)
                there = own.to(DEVICE)
                for act in ("relu", "none"):
                    wanted = own.unpack(then=tft.Then(scale, shift, act=act))
                    then = tft.Then(scale.to(DEVICE), shift.to(DEVICE), act=act)
                    assert gpu.same(there.unpack(then=then), wanted), (shape, memory, order, act)


@each(*itertools.product(gpu.WIDE, (2, 4, 8)))
def test_what_follows_an_unpacking_has_the_values_of_the_cpu(dtype: str, bits: int) -> None:
    """Sums with what is packed, and the zeros of a ReLU."""
    spec = f"block_quant(bits={bits}, group=256, round=stochastic)"
    op, of = torch.ops.tuckfold.unpack_then, getattr(torch, dtype)
    draw = torch.Generator().manual_seed(bits)
    for rows, channels, inner in (
        (1001, 64, 1),
        (40, 2048, 1),
        (100, 96, 1),
        (12, 16, 196),
        (64, 1, 1),
    ):
        count = rows * channels * inner
        x, other, sign = (torch.randn(count, generator=draw).to(of) for _ in range(3))
        packed, packed_add, gate = (
            tft.pack(x, spec),
            tft.pack(other, spec),
            tft.pack(sign, "positive"),
        )
        numbers = [torch.randn(channels, generator=draw) for _ in range(4)]
        adds = (
            (None,) * 4,
            (other, None, None, None),
            (None, packed_add, None, None),
            (None, packed_add, *numbers[2:]),
        )
        for act, add, bit in itertools.product(("none", "relu"), adds, (None, gate)):
            given = [packed, *numbers[:2], *add, bit]
            wanted, got = (
                op(p, spec, [count], of, scale, shift, inner, act, *rest)
                for p, scale, shift, *rest in (
                    given,
                    [t if t is None else t.to(DEVICE) for t in given],
                )
            )
            assert gpu.same(got, wanted), (
                rows,
                channels,
                inner,
                act,
                len([t for t in add if t is not None]),
                bit is None,
            )


@each(("f32",), ("f16",), ("bf16",))
def test_cross_entropy_is_near_that_of_double_precision(dtype: str) -> None:
    draw = torch.Generator().manual_seed(3)
    least = 3e-7 if gpu.ON_GPU else 1e-5  # torch's sums on a CPU are less exact
    for rows, classes in ((64, 8192), (33, 50257), (7, 10), (257, 1000), (2, 131072)):
        x = (torch.randn(rows, classes, generator=draw) * 4).to(DTYPES[dtype]).to(DEVICE)
        y = torch.randint(classes, (rows,), generator=draw).to(DEVICE)
        y[1] = -100
        x.requires_grad_()
        exact = x.detach().double().requires_grad_()
        loss, wanted = tft.cross_entropy(x, y), torch.nn.functional.cross_entropy(exact, y)
        assert abs(loss.item() - wanted.item()) < 10 * least * max(1, wanted.item())
        (grad,), (expected,) = (torch.autograd.grad(*of) for of in ((loss, x), (wanted, exact)))
        error = (grad.double() - expected).abs().max()
        assert bool(error < max(torch.finfo(grad.dtype).eps, least) / rows)
        assert bool((grad[1] == 0).all())
