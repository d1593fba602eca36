"""Codec as a layer: the paper's matrices, and gradients that are the transposed maps."""

import copy
import functools
import pickle

import numpy as np
import pytest

import tuckfold

torch = pytest.importorskip("torch")
import tuckfold.torch as tft  # noqa: E402

SPECS = [
    "dct_chop(keep=4)",
    "dct_chop(keep=3, shape=triangle)",
    "dct_chop(block=4, keep=2)",
    "dct_chop(block=16, keep=5)",
    "dct_chop(block=4, keep=3, transform=zfp)",
    "dct_chop(block=4, keep=3, transform=zfp, shape=triangle)",
]
SHAPES = [
    (2, 16, 32),
    (2, 19, 33),
    (4, 5, 20, 3),
    (32, 16),
]  # whole blocks, padded, folded, a plane
CASES = [(spec, shape) for spec in SPECS for shape in SHAPES]


def make(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def by_products(codec: tft.Codec, x: torch.Tensor) -> torch.Tensor:
    """What torch's own operations give, where the library's kernels would run."""
    return codec.compress(x.double())


@pytest.mark.parametrize(("spec", "shape"), CASES)
def test_kernels_and_products_agree(spec: str, shape: tuple[int, ...]) -> None:
    codec, x = tft.Codec(spec), make(shape)
    coefs = codec.compress(x)
    fit = tuckfold.layout(spec, "f32", shape)
    assert coefs.shape == fit.shape
    assert torch.equal(coefs.reshape(-1).view(torch.uint8), tft.pack(x, spec))
    torch.testing.assert_close(coefs.double(), by_products(codec, x), atol=1e-5, rtol=1e-5)
    back = codec.decompress(coefs, shape)
    assert torch.equal(back, tft.unpack(tft.pack(x, spec), spec, shape))
    products = codec.decompress(coefs.double(), shape)
    assert products.dtype == torch.float64
    torch.testing.assert_close(back.double(), products, atol=1e-5, rtol=1e-5)


def test_compress_is_the_equation_of_the_paper() -> None:
    x = make((5, 32, 48))
    form = tuckfold.matmul_form("dct_chop(keep=3)", 32, 48)
    lhs, rhs = torch.from_numpy(form.lhs), torch.from_numpy(form.rhs)
    torch.testing.assert_close(tft.Codec("dct_chop(keep=3)").compress(x), lhs @ x @ rhs)


@pytest.mark.parametrize(("spec", "shape"), CASES)
def test_gradcheck_in_f64(spec: str, shape: tuple[int, ...]) -> None:
    codec = tft.Codec(spec)
    x = make(shape, torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(codec.compress, x, fast_mode=True)
    coefs = codec.compress(x).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda y: codec.decompress(y, shape), coefs, fast_mode=True)
    assert torch.autograd.gradcheck(codec, x, fast_mode=True)
    assert torch.autograd.gradgradcheck(codec.compress, x, fast_mode=True)


@pytest.mark.parametrize(("spec", "shape"), CASES)
def test_gradients_of_kernels_are_the_transposed_maps(spec: str, shape: tuple[int, ...]) -> None:
    """<C x, y> = <x, Cᵀ y>, and the Cᵀ of the kernels is that of the products."""
    codec = tft.Codec(spec)
    x = make(shape).requires_grad_()
    coefs = codec.compress(x)
    weights = make(coefs.shape)
    (transposed,) = torch.autograd.grad(coefs, x, weights)
    exact = make(shape).double().requires_grad_()
    (expected,) = torch.autograd.grad(codec.compress(exact), exact, weights.double())
    torch.testing.assert_close(transposed.double(), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        (coefs * weights).sum(), (x * transposed).sum(), atol=1e-2, rtol=1e-3
    )
    y = coefs.detach().requires_grad_()
    back = codec.decompress(y, shape)
    weights = make(shape)
    (transposed,) = torch.autograd.grad(back, y, weights)
    exact = coefs.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(codec.decompress(exact, shape), exact, weights.double())
    torch.testing.assert_close(transposed.double(), expected, atol=1e-4, rtol=1e-4)


def test_second_derivatives_of_a_linear_map_are_zero_but_exist() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    x = make((16, 16)).requires_grad_()
    (first,) = torch.autograd.grad((codec(x) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_forward_keeps_shape_and_dtype(dtype: torch.dtype) -> None:
    codec, x = tft.Codec("dct_chop(keep=4)"), make((2, 3, 24, 20)).to(dtype)
    out = codec(x)
    assert out.dtype == dtype
    assert out.shape == x.shape
    torch.testing.assert_close(out.float(), codec(x.float()), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("coef", ["f16", "bf16"])
def test_narrow_coefficients_pass_gradients_as_they_are(coef: str) -> None:
    codec = tft.Codec(f"dct_chop(keep=4, coef={coef})")
    x = make((16, 16)).requires_grad_()
    coefs = codec.compress(x)
    assert coefs.dtype == {"f16": torch.float16, "bf16": torch.bfloat16}[coef]
    codec.decompress(coefs).sum().backward()
    wide = tft.Codec("dct_chop(keep=4)")
    y = make((16, 16)).requires_grad_()
    wide(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=2e-2, rtol=2e-2)


def test_channels_last_needs_no_copy() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    x = make((4, 3, 32, 32))
    last = x.to(memory_format=torch.channels_last)
    assert torch.equal(codec.compress(last), codec.compress(x))


def test_a_network_trains_through_decompression() -> None:
    torch.manual_seed(0)
    codec = tft.Codec("dct_chop(keep=4)")
    model = torch.nn.Conv2d(3, 3, 3, padding=1)
    x = make((4, 3, 32, 32))
    stored = codec.compress(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(codec.decompress(stored)) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_codec_survives_pickle_copy_and_state_dict() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    x = make((16, 16))
    for same in (pickle.loads(pickle.dumps(codec)), copy.deepcopy(codec)):
        assert same.spec == codec.spec
        assert torch.equal(same.compress(x), codec.compress(x))
    assert not codec.state_dict()
    assert repr(codec) == "Codec(dct_chop(keep=4))"


def test_half_does_not_round_the_matrices() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    x = make((16, 16), torch.float64)
    expected = codec.compress(x)
    assert torch.equal(torch.nn.Sequential(codec).half()[0].compress(x), expected)
    assert codec.to("meta").compress(x.to("meta")).shape == (8, 8)


def test_matrices_are_f32_whatever_the_default_dtype_is() -> None:
    x = make((16, 16), torch.float64)
    expected = tft.Codec("dct_chop(keep=4)").compress(x)
    for dtype in (torch.float16, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            codec = tft.Codec("dct_chop(keep=4)")
            back = codec.decompress(make((8, 8), torch.float32))
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(codec.compress(x), expected)
        assert back.dtype == torch.float32


def test_a_codec_made_on_meta_has_its_matrices_when_it_is_moved() -> None:
    x = make((16, 16), torch.float64)
    with torch.device("meta"):
        codec = tft.Codec("dct_chop(keep=4)")
    moved = torch.nn.Sequential(codec).to_empty(device="cpu")[0]
    assert torch.equal(moved.compress(x), tft.Codec("dct_chop(keep=4)").compress(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("spec", "shape"),
    [("dct_chop(keep=4)", (0, 3, 16, 16)), ("dct_chop(keep=4, shape=triangle)", (0, 3, 16, 10))],
)
def test_an_empty_batch_has_the_shape_of_others(
    spec: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    codec, x = tft.Codec(spec), torch.randn(0, 3, 32, 32, dtype=dtype, requires_grad=True)
    coefs = codec.compress(x)
    assert coefs.shape == shape
    assert codec.compress(x.to("meta")).shape == shape
    back = codec.decompress(coefs, x.shape, dtype)
    assert (back.shape, back.dtype) == (x.shape, dtype)
    back.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("given", [(2, 3, 8, 32), (2 * 3 * 16 * 16,), (3, 2, 16, 16), (6, 16, 16)])
def test_coefficients_of_another_shape_are_refused(
    given: tuple[int, ...], dtype: torch.dtype
) -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    with pytest.raises(ValueError, match=r"must be of shape \(2, 3, 16, 16\), got .*; give"):
        codec.decompress(make(given, dtype), shape=(2, 3, 32, 32))
    triangle = tft.Codec("dct_chop(keep=4, shape=triangle)")
    with pytest.raises(ValueError, match=r"must be of shape \(2, 16, 10\), got \(2, 10, 16\)"):
        triangle.decompress(make((2, 10, 16), dtype), shape=(2, 32, 32))


def test_autocast_does_not_round_the_products() -> None:
    codec, x = tft.Codec("dct_chop(keep=4)"), make((2, 16, 16))
    expected = torch.vmap(codec.compress)(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(torch.vmap(codec.compress)(x), expected)
        torch.testing.assert_close(codec.compress(x), expected)


REFUSED = [
    (lambda: tft.Codec("block_quant(bits=8)"), "needs one dct_chop"),
    (lambda: tft.Codec("dct_chop(keep=4) | zstd"), "needs one dct_chop"),
    (lambda: tft.Codec("dct_chop(keep=4, order=planes)"), "order=rows"),
    (lambda: tft.Codec("dct_chop(keep=4)").compress(torch.rand(3, 3)), "two sides"),
    (lambda: tft.Codec("dct_chop(keep=4)").compress(torch.rand(3, 3).double()), "two sides"),
    (lambda: tft.Codec("dct_chop(keep=4)").decompress(torch.rand(5, 8)), "needs the shape"),
    (lambda: tft.Codec("dct_chop(keep=4)").decompress(torch.rand(8, 8), (64, 64)), r"got \(8, 8\)"),
    (lambda: tft.Codec("dct_chop(keep=3, shape=triangle)").decompress(torch.rand(4, 6)), "needs the shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_a_mistake_is_a_value_error(call, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


# ---- vmap


def test_vmap_of_linear_maps_is_one_more_axis() -> None:
    spec, x = "dct_chop(keep=4)", make((6, 3, 20, 24))
    compress = functools.partial(torch.ops.tuckfold.compress, spec=spec)
    each = torch.stack([compress(one) for one in x])
    assert torch.equal(torch.vmap(compress)(x), each)
    assert torch.equal(torch.vmap(compress, in_dims=1)(x.transpose(0, 1)), each)
    decompress = functools.partial(
        torch.ops.tuckfold.decompress, spec=spec, shape=(3, 20, 24), dtype=torch.float32
    )
    back = tft.Codec(spec).decompress(each, x.shape)
    assert torch.equal(torch.vmap(decompress)(each), back)
    codec = tft.Codec(spec)
    torch.testing.assert_close(torch.vmap(codec.compress)(x), each)
    torch.testing.assert_close(torch.vmap(codec)(x), codec(x))


def test_vmap_packs_each_or_says_why_not() -> None:
    x = make((4, 16, 16))
    spec = "block_quant(bits=8)"
    packed = torch.vmap(lambda one: tft.pack(one, spec))(x)
    assert torch.equal(packed, torch.stack([tft.pack(one, spec) for one in x]))
    back = torch.vmap(lambda one: tft.unpack(one, spec, (16, 16)))(packed)
    assert torch.equal(back, torch.stack([tft.unpack(one, spec, (16, 16)) for one in packed]))
    with pytest.raises(NotImplementedError, match="vmap needs a codec of a fixed size"):
        torch.vmap(lambda one: tft.pack(one, "zstd"))(x)


def test_per_sample_gradients() -> None:
    codec, x = tft.Codec("dct_chop(keep=4)"), make((3, 16, 16))
    per_sample = torch.vmap(torch.func.grad(lambda one: (codec(one) ** 2).sum()))(x)
    expected = [torch.func.grad(lambda one: (codec(one) ** 2).sum())(one) for one in x]
    torch.testing.assert_close(per_sample, torch.stack(expected))


def test_products_and_numpy_agree_on_padding() -> None:
    """The reference by hand: repeat edges, multiply, cut."""
    x = make((10, 13)).numpy()
    padded = np.pad(x, ((0, 6), (0, 3)), mode="edge")
    form = tuckfold.matmul_form("dct_chop(keep=4)", 16, 16)
    expected = form.lhs @ padded @ form.rhs
    coefs = tft.Codec("dct_chop(keep=4)").compress(torch.from_numpy(x).double())
    np.testing.assert_allclose(coefs.numpy(), expected, atol=1e-5)
