"""Butterflies on a GPU: the CPU's matrices, gradients, and errors beside those of a dense layer."""

import copy

import torch

import gpu
from tuckfold.torch import nn as tnn

pytestmark = gpu.marks
DEVICE, each = gpu.DEVICE, gpu.each
TEXTS = ("butterfly", "butterfly(tied=true)")
# So many samples that every kernel is used, with a tail; and few.
CASES = [
    (text, n, samples) for text in TEXTS for n in (512, 1024, 2048, 4096) for samples in (2083, 40)
]


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@each(
    *[(*case, dtype) for case in CASES for dtype in (torch.float32, torch.float16, torch.bfloat16)]
)
def test_values_and_gradients_are_the_matrix_s(
    text: str, n: int, samples: int, dtype: torch.dtype
) -> None:
    if not gpu.ON_GPU:
        samples = 8
    torch.manual_seed(0)
    layer = tnn.Structured(text, n, n, device=DEVICE, dtype=dtype)
    x = torch.randn(samples, n, device=DEVICE, dtype=dtype, requires_grad=True)
    g = torch.randn(samples, n, device=DEVICE, dtype=dtype)
    y = layer(x)
    grads = torch.autograd.grad(y, [x, *layer.parameters()], g)
    again = torch.autograd.grad(layer(x), [x, *layer.parameters()], g)
    wide = tnn.Structured(text, n, n, device="cpu", dtype=torch.float64)
    wide.load_state_dict({name: t.double().cpu() for name, t in layer.state_dict().items()})
    xd = x.detach().double().cpu().requires_grad_()
    want = wide(xd)
    wants = torch.autograd.grad(want, [xd, *wide.parameters()], g.double().cpu())
    limit = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert distance(y.detach().cpu(), want.detach()) < limit
    for got, same, true in zip(grads, again, wants, strict=True):
        assert distance(got.cpu(), true) < 2 * limit
        assert torch.equal(got, same)


@each(*[(n, dtype) for n in (512, 1024, 2048, 4096) for dtype in (torch.float16, torch.bfloat16)])
def test_errors_are_at_most_twice_those_of_a_dense_layer(n: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layer = tnn.Butterfly(n, n, device=DEVICE, dtype=dtype)
    x = torch.randn(1024 if gpu.ON_GPU else 8, n, device=DEVICE, dtype=dtype)
    with torch.no_grad():
        matrix = copy.deepcopy(layer).double().to_dense()
        true = x.double() @ matrix.T + layer.bias.double()
        dense = torch.nn.functional.linear(x, matrix.to(dtype), layer.bias)
        assert distance(layer(x), true) <= 2 * distance(dense, true)


@each((500, 1000), (784, 1024), (1000, 2048), (777, 100))
def test_any_sizes(inputs: int, outputs: int) -> None:
    torch.manual_seed(2)
    for dtype, limit in ((torch.float32, 2e-6), (torch.bfloat16, 8e-3)):
        layer = tnn.Butterfly(inputs, outputs, device=DEVICE, dtype=dtype)
        x = torch.randn(2100 if gpu.ON_GPU else 8, inputs, device=DEVICE, dtype=dtype)
        x.requires_grad_()
        y = layer(x)
        g = torch.randn_like(y)
        (gx,) = torch.autograd.grad(y, x, g)
        with torch.no_grad():
            matrix = copy.deepcopy(layer).double().to_dense()
            true = x.double() @ matrix.T + layer.bias.double()
            assert distance(y, true) < limit
            assert distance(gx, g.double() @ matrix) < 2 * limit
