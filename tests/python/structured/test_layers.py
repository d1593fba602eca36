"""Structured layers stand where torch.nn.Linear does."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from tuckfold.torch import nn as tnn  # noqa: E402
from tuckfold.torch.nn import _plain  # noqa: E402
from tuckfold.torch.nn._plain import plain  # noqa: E402

TEXTS = [
    "butterfly",
    "butterfly(tied=true, stride=decreasing)",
    "butterfly(blocks=2, form=orthogonal)",
    "pixelfly(block=4, butterfly=4, rank=2)",
    "pixelfly(block=3, butterfly=4, rank=2, form=gated)",
    "pixelfly(block=3, butterfly=8, rank=1, form=mean)",
    "monarch(blocks=3)",
    "block_diagonal(blocks=2)",
    "low_rank(rank=3)",
    "circulant",
    "fastfood",
    "dense",
]
SIZES = [(7, 15), (16, 16), (30, 9)]


@pytest.fixture(params=TEXTS)
def text(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return request.param


def layer_of(text: str, sizes: tuple[int, int], **more: object) -> tnn.Structured:
    return tnn.Structured(text, *sizes, **more)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_kernel_is_what_torch_computes(text: str, sizes: tuple[int, int]) -> None:
    layer = layer_of(text, sizes, dtype=torch.float64)
    x = torch.randn(3, 5, sizes[0], dtype=torch.float64, requires_grad=True)
    y = layer(x)
    want = plain(layer.structure, x, layer.structure_weights(), layer.bias)
    torch.testing.assert_close(y, want, rtol=1e-12, atol=1e-12)
    g = torch.randn_like(y)
    inputs = [x, *layer.parameters()]
    for got, wanted in zip(
        torch.autograd.grad(y, inputs, g), torch.autograd.grad(want, inputs, g), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


def test_gradcheck(text: str) -> None:
    layer = layer_of(text, (7, 6), dtype=torch.float64)
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    names = [n for n, _ in layer.named_parameters()]

    def call(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (x, *layer.parameters()))


def test_second_derivatives_and_transforms(text: str) -> None:
    layer = layer_of(text, (7, 6), dtype=torch.float64)
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    call = lambda x, *_: torch.tanh(layer(x))  # noqa: E731
    assert torch.autograd.gradgradcheck(call, (x, *layer.parameters()))
    v, t = torch.randn(2, 7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(layer, v)
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)  # noqa: E731
    close(torch.func.jvp(layer, (v,), (t,))[1], jacobian @ t)
    close(torch.func.jacfwd(layer)(v), jacobian)
    close(torch.func.vmap(layer)(x), layer(x))
    batched = torch.autograd.functional.jacobian(layer, v, vectorize=True)
    close(batched, jacobian)
    square = lambda v: layer(v).square().sum()  # noqa: E731
    close(torch.func.grad(square)(v), torch.autograd.functional.jacobian(square, v))
    close(torch.func.hessian(square)(v), torch.autograd.functional.hessian(square, v))
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(v, t))
        close(forward_ad.unpack_dual(dual).tangent, jacobian @ t)


def test_a_gradient_penalty_trains(text: str) -> None:
    """Second derivatives are those of the dense layer, in f32 too."""
    layer = layer_of(text, (8, 8))
    if "gated" in text:
        pytest.skip("its matrix depends on the input")
    found = []
    for module in (layer, layer.to_linear()):
        x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        (g,) = torch.autograd.grad(torch.tanh(module(x)).sum(), x, create_graph=True)
        (g.norm(dim=1) - 1).square().mean().backward()
        assert all(p.grad is not None for p in module.parameters())
        found.append(x.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_shapes_without_values(text: str) -> None:
    layer = layer_of(text, (13, 7)).to(device="meta")
    x = torch.empty(5, 13, device="meta", requires_grad=True)
    y = layer(x)
    assert y.shape == (5, 7) and y.is_meta
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_to_dense_and_to_linear(text: str) -> None:
    layer = layer_of(text, (12, 9))
    if "gated" in text:
        with pytest.raises(ValueError, match="a matrix for each sample"):
            layer.to_dense()
        return
    x = torch.randn(4, 12)
    torch.testing.assert_close(layer.to_linear()(x), layer(x), rtol=1e-5, atol=1e-5)


def test_only_the_input_is_kept_for_backward(text: str) -> None:
    layer = layer_of(text, (64, 64))
    x = torch.randn(256, 64, requires_grad=True)
    own = {w.data_ptr() for w in [*layer.parameters(), *layer.buffers()]}
    kept = []

    def keep(t: torch.Tensor) -> torch.Tensor:
        if t.data_ptr() not in own:
            kept.append(t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x)
    assert sum(kept) == layer.saved_bytes(256)


def test_state_dict_has_everything(text: str) -> None:
    a, b = layer_of(text, (16, 10)), layer_of(text, (16, 10))
    x = torch.randn(3, 16)
    assert not torch.equal(a(x), b(x))
    file = io.BytesIO()
    torch.save(a.state_dict(), file)
    file.seek(0)
    b.load_state_dict(torch.load(file))
    assert torch.equal(a(x), b(x))
    assert torch.equal(copy.deepcopy(a)(x), a(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_and_autocast(text: str, dtype: torch.dtype) -> None:
    layer = layer_of(text, (16, 10))
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x)
    assert y.dtype == dtype
    assert (y.float() - layer(x)).norm() < 0.02 * layer(x).norm()
    y.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters())
    half = copy.deepcopy(layer).to(dtype)
    torch.testing.assert_close(half(x.to(dtype)), y, rtol=0.01, atol=0.02)


def test_threads_change_no_bit(text: str) -> None:
    layer = layer_of(text, (64, 48))
    x = torch.randn(400, 64, requires_grad=True)
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            seen.append(torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()]))
    finally:
        torch.set_num_threads(before)
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_opcheck(text: str) -> None:
    layer = layer_of(text, (7, 6))
    x = torch.randn(2, 3, 7, requires_grad=True)
    arguments = (x, layer.text, 6, layer.structure_weights(), layer.bias)
    torch.library.opcheck(torch.ops.tuckfold.structured.default, arguments)
    back = (torch.randn(2, 3, 6), x.detach(), layer.text, [w.detach() for w in arguments[3]], True)
    torch.library.opcheck(torch.ops.tuckfold.structured_backward.default, back)


@pytest.mark.parametrize("needs_x", [True, False])
def test_layers_without_bias_train(text: str, needs_x: bool) -> None:
    layer = layer_of(text, (16, 12), bias=False)
    x = torch.randn(5, 16, requires_grad=needs_x)
    layer(x).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
    assert (x.grad is not None) == needs_x
    frozen = copy.deepcopy(layer).requires_grad_(False)
    if needs_x:
        y = frozen(x)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], x.grad)


@pytest.mark.parametrize("strides", ["transposed", "sliced", "expanded", "empty"])
def test_any_strides_and_leading_axes(strides: str) -> None:
    layer = tnn.Butterfly(8, 8, tied=True)
    x = {
        "transposed": torch.randn(8, 5).T,
        "sliced": torch.randn(5, 24)[:, 3:19:2],
        "expanded": torch.randn(1, 8).expand(5, 8),
        "empty": torch.randn(0, 3, 8),
    }[strides].requires_grad_()
    y = layer(x)
    assert y.shape == (*x.shape[:-1], 8)
    assert torch.equal(y, layer(x.contiguous()))
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_layers_train_after_inference(text: str) -> None:
    """What the first call keeps for others must not be a tensor of inference mode."""
    layer = layer_of(text, (16, 24))
    x = torch.randn(4, 16, requires_grad=True)
    _plain._indices.clear()
    with torch.inference_mode():
        plain(layer.structure, x, layer.structure_weights(), layer.bias)
        want = layer(x)
    y = plain(layer.structure, x, layer.structure_weights(), layer.bias)
    y.sum().backward()
    assert x.grad is not None and not any(i.is_inference() for i in _plain._indices.values())
    torch.testing.assert_close(y, want)


def test_one_sample_without_leading_axes() -> None:
    layer = tnn.LowRank(8, 5, rank=2)
    x = torch.randn(8)
    assert torch.equal(layer(x), layer(x[None])[0])


def test_complex_butterfly_is_the_fourier_transform() -> None:
    n = 16
    layer = tnn.Butterfly(n, n, bias=False, dtype=torch.complex128)
    with torch.no_grad():
        for level in range(4):
            s = 1 << level
            for pair in range(n // 2):
                root = torch.exp(torch.tensor(-2j * torch.pi * (pair % s) / (2 * s)))
                layer.twiddle[0, 0, level, pair] = torch.tensor([[1, root], [1, -root]])
    x = torch.randn(3, n, dtype=torch.complex128, requires_grad=True)
    reversed_bits = [int(f"{i:04b}"[::-1], 2) for i in range(n)]
    torch.testing.assert_close(layer(x[:, reversed_bits]), torch.fft.fft(x))
    assert torch.autograd.gradcheck(layer, (x,))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tnn.LowRank(8, 8, rank=0), "rank must be 1.."),
        (lambda: tnn.LowRank(8, 8, rank=9), "rank must be 1..8 for 8 to 8 features, got 9"),
        (lambda: tnn.Pixelfly(32, 128, block=64), "block must be 1..32"),
        (lambda: tnn.Pixelfly(32, 32, butterfly=6), "power of two, got 6; 8 is the next"),
        (lambda: tnn.Butterfly(0, 4), "in must be 1.."),
        (lambda: tnn.Butterfly(4, 4, stride="up"), "stride must be one of increasing, decreasing"),
        (lambda: tnn.Butterfly(4, 4, init="zeros"), "init must be one of default, paper, identity"),
        (lambda: tnn.Circulant(4, 4, init="identity"), "init must be one of default, paper, got"),
        (lambda: tnn.Structured("butterflie", 4, 4), "did you mean butterfly?"),
        (lambda: tnn.Monarch(8, 8)(torch.zeros(3, 7)), "must have 8 features, got shape (3, 7)"),
        (lambda: tnn.Monarch(8, 8)(torch.zeros(3, 8).double()), "must be of f64 as x is, got f32"),
        (lambda: tnn.Monarch(8, 8)(torch.zeros(3, 8).int()), "x must be of f32, f64, f16 or bf16"),
    ],
)
def test_refusals_say_rule_and_value(make: object, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert said in str(caught.value)


@pytest.mark.parametrize("sizes", [(784, 10), (10, 784), (3, 5), (1, 1)])
def test_every_layer_has_sizes_that_fit(sizes: tuple[int, int]) -> None:
    for name in tnn.__all__:
        kind = getattr(tnn, name)
        if (
            isinstance(kind, type)
            and issubclass(kind, tnn.Structured)
            and kind is not tnn.Structured
        ):
            assert kind(*sizes)(torch.zeros(2, sizes[0])).shape == (2, sizes[1]), name


def test_counts_are_those_of_the_butterfly_paper() -> None:
    def count(layer: torch.nn.Module) -> int:
        return sum(p.numel() for p in layer.parameters()) + 10250

    n = 1024
    assert count(tnn.Structured("dense", n, n)) == 1059850
    assert count(tnn.Butterfly(n, n, tied=True)) == 15366
    assert count(tnn.Fastfood(n, n)) == 14346
    assert count(tnn.Circulant(n, n)) == 12298
    assert count(tnn.LowRank(n, n, rank=1)) == 13322
    assert count(tnn.Pixelfly(n, n, block=64, butterfly=16, rank=32)) == 404490


@pytest.mark.parametrize("init", ["default", "paper"])
def test_init_keeps_the_variance(text: str, init: str) -> None:
    layer = layer_of(
        text.replace("rank=2", "rank=8").replace("rank=1", "rank=8"), (256, 256), init=init
    )
    y = layer(torch.randn(512, 256))
    if init == "default":
        assert 0.3 < y.std() < 3  # a tied butterfly has few weights, whose product scatters
    assert torch.isfinite(y).all()


def test_fastfood_without_normalization_keeps_it_too() -> None:
    torch.manual_seed(0)
    for n in (64, 256):
        layers = [tnn.Structured("fastfood(normalize=false)", n, n, bias=False) for _ in range(50)]
        variance = torch.stack([layer(torch.randn(64, n)).var() for layer in layers]).mean()
        assert 0.9 < variance < 1.1


def test_names_of_the_package() -> None:
    assert set(tnn.families()) >= {"butterfly", "pixelfly", "dense"}
    assert tt.nn is tnn


def test_a_text_ends_where_it_ends() -> None:
    with pytest.raises(ValueError, match="no NUL"):
        tt.nn.Structured("butterfly\0(tied=true)", 8, 8)
