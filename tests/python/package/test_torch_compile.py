"""torch.compile without graph breaks, and what it traces."""

import pytest

import tuckfold

torch = pytest.importorskip("torch")
import tuckfold.torch as tft  # noqa: E402

FIXED = ["raw", "dct_chop(keep=4)", "dct_quant(rate=4)", "block_quant(bits=4)",
         "dct_chop(keep=4) | block_quant(bits=8)"]  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(function):
    """Traced by Dynamo and AOTAutograd, as inductor's input is, without its C++ compiler."""
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("spec", FIXED)
def test_pack_and_unpack_compile_in_one_graph(spec: str) -> None:
    def through(x: torch.Tensor) -> torch.Tensor:
        packed = tft.pack(x * 2, spec)
        return tft.unpack(packed, spec, x.shape, x.dtype) + packed.numel()

    for shape in ((4, 16, 32), (2, 24, 16)):
        x = torch.rand(shape)
        torch.testing.assert_close(compiled(through)(x), through(x))


def test_a_varying_size_compiles_with_a_symbol() -> None:
    def through(x: torch.Tensor) -> torch.Tensor:
        return tft.unpack(tft.pack(x, "zstd"), "zstd", x.shape, x.dtype) * 2

    x = torch.rand(16, 64)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(compiled(through)(x), x * 2)


def test_specs_as_objects_compile() -> None:
    spec = tuckfold.CodecSpec("block_quant(bits=8)")
    x = torch.rand(16, 64)
    assert torch.equal(compiled(lambda t: tft.pack(t, spec))(x), tft.pack(x, spec))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", ["dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle)"])
@pytest.mark.parametrize("shape", [(4, 16, 32), (4, 18, 30)])
def test_codec_compiles_forward_and_backward(dtype, spec: str, shape: tuple[int, ...]) -> None:
    codec = tft.Codec(spec)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (codec(x.sin()) ** 2).sum()

    x = torch.rand(shape, dtype=dtype, requires_grad=True)
    expected = torch.autograd.grad(loss(x), x)[0]
    value = compiled(loss)(x)
    torch.testing.assert_close(value, loss(x))
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], expected)


def test_a_mistake_is_found_while_tracing() -> None:
    with pytest.raises(Exception, match="keep must be 1..8"):
        compiled(lambda x: tft.pack(x, "dct_chop(keep=9)"))(torch.rand(16, 16))


def test_inductor_compiles_a_codec() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    x = torch.rand(4, 3, 32, 32, requires_grad=True)
    value = torch.compile(lambda t: codec(t * 2).sum(), fullgraph=True)(x)
    value.backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(codec(x * 2).sum(), x)[0])


def test_export_keeps_the_operator() -> None:
    class Store(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tft.pack(x, "dct_chop(keep=4)")

    x = torch.rand(16, 16)
    program = torch.export.export(Store(), (x,))
    assert "tuckfold.pack" in str(program.graph)
    assert torch.equal(program.module()(x), tft.pack(x, "dct_chop(keep=4)"))
