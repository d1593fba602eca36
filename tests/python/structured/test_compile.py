"""Structured layers inside compiled functions, and in ONNX files."""

import io

import pytest

torch = pytest.importorskip("torch")

from tuckfold.torch import nn as tnn  # noqa: E402

TEXTS = [
    "butterfly(tied=true)",
    "butterfly(form=orthogonal)",
    "pixelfly(block=4, butterfly=4, rank=2, form=gated)",
    "pixelfly(block=4, butterfly=8, rank=2)",
    "monarch(blocks=3)",
    "block_diagonal(blocks=2)",
    "low_rank(rank=3)",
    "circulant",
    "fastfood",
]


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("text", TEXTS)
def test_compiled_as_one_graph(text: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(tnn.Structured(text, 24, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    x = torch.randn(6, 24)
    net(x).square().sum().backward()
    want = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    compiled(x).square().sum().backward()
    for parameter, grad in zip(net.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


def test_compiled_for_any_number_of_samples() -> None:
    layer = tnn.Butterfly(16, 16)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for samples in (3, 5, 8):
        x = torch.randn(samples, 16)
        assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("text", TEXTS)
def test_onnxruntime_computes_the_same(text: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    layer = tnn.Structured(text, 24, 20).eval()
    x, file = torch.randn(5, 24), io.BytesIO()
    torch.onnx.export(layer, (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": [0]})
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for samples in (5, 2):
        x = torch.randn(samples, 24)
        got = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
        torch.testing.assert_close(got, layer(x).detach(), rtol=1e-4, atol=1e-5)
