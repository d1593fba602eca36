"""Networks on a GPU: torch.compile with and without graphs of its own, Codec, autograd, autocast."""

import functools

import torch

import gpu
import tuckfold.torch as tft

pytestmark = gpu.marks
DEVICE, each = gpu.DEVICE, gpu.each
FIXED = [spec for spec in gpu.LOSSY + ["raw"] if gpu.runs(spec)]
CODECS = ["dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle)", "dct_chop(block=4, keep=2)",
          "dct_chop(block=4, keep=3, transform=zfp)", "dct_chop(keep=4, coef=f16)"]  # fmt: skip
SHAPES = [(4, 16, 32), (2, 19, 33), (4, 3, 64, 64)]


def compiled(function, **options):
    """A new one, since graphs of other tests may be in the way."""
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, **options)


@functools.cache
def inductor() -> dict:
    """Inductor where its kernels compile, which takes a C compiler and Python's headers; else what
    comes before it."""
    if gpu.ON_GPU:
        try:
            x = torch.zeros(64, device=DEVICE)
            assert torch.equal(compiled(lambda t: t.relu() + 1)(x), x + 1)
            return {}
        except Exception:
            pass
    return {"backend": "aot_eager"}


@each(*[(spec,) for spec in FIXED])
def test_pack_and_unpack_compile_in_one_graph(spec: str) -> None:
    def through(x: torch.Tensor) -> torch.Tensor:
        return tft.unpack(tft.pack(x * 2, spec), spec, x.shape, x.dtype) + 1

    x = gpu.make(spec, "f32", (4, 32, 64)).to(DEVICE)
    for options in ({"backend": "aot_eager"}, inductor()):
        assert gpu.same(compiled(through, **options)(x), through(x))


def store(spec: str, x: torch.Tensor) -> torch.Tensor:
    return tft.unpack(tft.pack(x.relu(), spec), spec, x.shape, x.dtype)


def check_replay(spec: str, options: dict) -> None:
    run = compiled(lambda x: store(spec, x), **options)
    for turn in range(5):
        x = gpu.make(spec, "f32", (4, 32, 64)).to(DEVICE) * (turn + 1)
        torch.compiler.cudagraph_mark_step_begin()
        assert gpu.same(run(x).clone(), store(spec, x))


@each(*[(spec,) for spec in FIXED])
def test_compiled_graphs_replay(spec: str) -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no graphs")
    check_replay(spec, {"backend": "cudagraphs"})


@each(*[(spec,) for spec in FIXED])
def test_inductors_graphs_replay(spec: str) -> None:
    if inductor():
        gpu.skip("inductor cannot compile kernels here")
    check_replay(spec, {"mode": "reduce-overhead"})


@each(*[(spec, shape) for spec in CODECS for shape in SHAPES])
def test_codec_gives_the_cpus_coefficients(spec: str, shape: tuple) -> None:
    codec, there = tft.Codec(spec), tft.Codec(spec).to(DEVICE)
    x = gpu.make(spec, "f32", shape)
    coefs = codec.compress(x)
    on_device = there.compress(x.to(DEVICE))
    assert on_device.device.type == torch.device(DEVICE).type
    by_kernel = gpu.runs(spec)
    if by_kernel:
        assert gpu.same(on_device, coefs)
        assert gpu.same(there.decompress(on_device, shape), codec.decompress(coefs, shape))
    torch.testing.assert_close(on_device.cpu(), coefs, atol=1e-2, rtol=1e-2)


@each(*[(spec, shape) for spec in CODECS for shape in SHAPES])
def test_gradients_are_the_transposed_maps(spec: str, shape: tuple) -> None:
    """<C x, y> = <x, Cᵀ y>, and Cᵀ is that of the products in f64."""
    codec = tft.Codec(spec).to(DEVICE)
    x = gpu.make(spec, "f32", shape).to(DEVICE).requires_grad_()
    coefs = codec.compress(x)
    weights = torch.randn(coefs.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    (transposed,) = torch.autograd.grad(coefs, x, weights.to(coefs.dtype))
    exact = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(codec.compress(exact), exact, weights.double())
    loose = {"atol": 2e-2, "rtol": 2e-2} if "coef" in spec else {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(transposed.double(), wanted, **loose)
    y = coefs.detach().requires_grad_()
    (transposed,) = torch.autograd.grad(codec.decompress(y, shape).square().sum(), y)
    exact = coefs.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(codec.decompress(exact, shape).square().sum(), exact)
    torch.testing.assert_close(transposed.double(), wanted, atol=2e-2, rtol=2e-2)


@each(*[(spec,) for spec in CODECS])
def test_gradcheck_in_f64(spec: str) -> None:
    codec = tft.Codec(spec).to(DEVICE)
    x = gpu.make(spec, "f64", (2, 19, 33)).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(codec, x, fast_mode=True, nondet_tol=1e-9)


def test_a_gradient_that_is_a_slice_is_taken() -> None:
    codec = tft.Codec("dct_chop(keep=4)").to(DEVICE)
    x = torch.rand(3, 16, 16, device=DEVICE, requires_grad=True)
    flat = codec.compress(x).flatten()
    odd = torch.cat([flat, flat.new_ones(1)])[1:]  # its gradient starts 4 bytes into another
    odd.sum().backward()
    coefs = torch.rand(3 * 64 + 1, device=DEVICE)[1:].view(3, 8, 8)
    assert gpu.same(codec.decompress(coefs), codec.decompress(coefs.clone()))


def test_codec_compiles_forward_and_backward() -> None:
    codec = tft.Codec("dct_chop(keep=4)").to(DEVICE)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (codec(x.sin()) ** 2).sum()

    x = torch.rand(4, 16, 32, device=DEVICE, requires_grad=True)
    (wanted,) = torch.autograd.grad(loss(x), x)
    value = compiled(loss, **inductor())(x)
    torch.testing.assert_close(value, loss(x))
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], wanted)


def test_autocast_changes_no_bytes() -> None:
    x = gpu.make("raw", "f32", (8, 64, 64)).to(DEVICE)
    codec = tft.Codec("dct_chop(keep=4)").to(DEVICE)
    coefs = codec.compress(x)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(torch.device(DEVICE).type, dtype):
            for spec in FIXED:
                assert torch.equal(tft.pack(x, spec), tft.pack(x.clone(), spec))
            assert gpu.same(codec.compress(x), coefs)
            half = codec(x.to(dtype))
        assert half.dtype == dtype


def test_saved_tensors_are_packed_while_a_network_trains() -> None:
    spec = next((s for s in ("block_quant(bits=8)", "dct_quant(rate=4)") if gpu.runs(s)), "raw")

    def pack(t: torch.Tensor):
        if not t.is_floating_point() or t.numel() < 1024 or isinstance(t, torch.nn.Parameter):
            return t
        return tft.pack(t, spec), t.shape, t.stride(), t.dtype

    def unpack(saved):
        if isinstance(saved, torch.Tensor):
            return saved
        packed, shape, strides, dtype = saved
        out = torch.empty_strided(shape, strides, dtype=dtype, device=packed.device)
        return tft.unpack(packed, spec, out=out)

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.GELU(), torch.nn.Conv2d(16, 3, 3, padding=1)
    ).to(DEVICE, memory_format=torch.channels_last)
    x = torch.rand(8, 3, 32, 32, device=DEVICE).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
