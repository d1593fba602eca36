"""Every line of the table of what backward reads: the tensor is stored as less, the gradients stay."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import Sequence, exact  # noqa: E402
from tuckfold.torch._activations._rules import RULES  # noqa: E402

ROW, PLANE, VOLUME = (2, 4, 9), (2, 4, 9, 10), (2, 4, 5, 6, 7)


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False).eval()


def nll(shape: tuple[int, ...]):
    return lambda x: F.nll_loss(x + 1, torch.ones(shape[0], *shape[2:], dtype=torch.int64))


# An operator, the shape of its input, and how its tensors are stored.
CASES = {
    "ReluBackward0": (F.relu, PLANE, {"1 bit"}),
    "LeakyReluBackward0": (F.leaky_relu, PLANE, {"1 bit"}),
    "LeakyReluBackward1": (lambda x: F.leaky_relu(x * 1.0, inplace=True), PLANE, {"1 bit"}),
    "HardtanhBackward0": (F.hardtanh, PLANE, {"2 bits"}),
    "ConvolutionBackward0": (frozen(nn.Conv2d(4, 3, 3)), PLANE, {"nothing"}),
    "NativeBatchNormBackward0": (frozen(nn.BatchNorm2d(4)), PLANE, {"nothing"}),
    "MaxPool2DWithIndicesBackward0": (nn.MaxPool2d(2), PLANE, {"nothing", "pool index"}),
    "MaxPool3DWithIndicesBackward0": (nn.MaxPool3d(2), VOLUME, {"nothing", "narrow"}),
    "AdaptiveMaxPool2DBackward0": (nn.AdaptiveMaxPool2d(3), PLANE, {"nothing", "narrow"}),
    "AdaptiveMaxPool3DBackward0": (nn.AdaptiveMaxPool3d(3), VOLUME, {"nothing", "narrow"}),
    "EmbeddingBackward0": (None, ROW, {"narrow"}),
    "AvgPool2DBackward0": (nn.AvgPool2d(2), PLANE, {"nothing"}),
    "AvgPool3DBackward0": (nn.AvgPool3d(2), VOLUME, {"nothing"}),
    "AdaptiveAvgPool2DBackward0": (nn.AdaptiveAvgPool2d(3), PLANE, {"nothing"}),
    "AdaptiveAvgPool3DBackward0": (nn.AdaptiveAvgPool3d(3), VOLUME, {"nothing"}),
    "ReflectionPad1DBackward0": (nn.ReflectionPad1d(2), ROW, {"nothing"}),
    "ReflectionPad2DBackward0": (nn.ReflectionPad2d(2), PLANE, {"nothing"}),
    "ReflectionPad3DBackward0": (nn.ReflectionPad3d(2), VOLUME, {"nothing"}),
    "ReplicationPad1DBackward0": (nn.ReplicationPad1d(2), ROW, {"nothing"}),
    "ReplicationPad2DBackward0": (nn.ReplicationPad2d(2), PLANE, {"nothing"}),
    "ReplicationPad3DBackward0": (nn.ReplicationPad3d(2), VOLUME, {"nothing"}),
    "NllLossBackward0": (nll((9, 4)), (9, 4), {"nothing", "narrow"}),
    "NllLoss2DBackward0": (nll(PLANE), PLANE, {"nothing", "narrow"}),
}


def test_every_line_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_less_is_stored_and_gradients_stay(name: str) -> None:
    operator, shape, hows = CASES[name]
    kinds: list[str] = []

    def call(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out = m.operator(x + m.bias) if operator is not None else m.embedding(x.abs().long())
        kinds.append(type(out.grad_fn).__name__)
        return out * 1.0  # nobody outside holds what the operator made

    model = Sequence(call, embedding=nn.Embedding(5, 3))
    model.bias = nn.Parameter(torch.randn(shape[1:]))
    if isinstance(operator, nn.Module):
        model.operator = operator
    else:
        model.operator = operator and Sequence(lambda _, x: operator(x))
    torch.manual_seed(0)
    x = torch.randn(shape).clamp(-4, 4)
    with exact(model, x) as act:
        rows = act.plan(x).rows
    assert set(kinds) == {name}
    assert {row.how for row in rows if row.op != "mul"} >= hows


LIMITS = [(-1, 1), (-0.3, 0.7), (-0.5, 0.7), (-0.7, 0.5), (-0.1, 0.1), (-1 / 3, 1 / 3), (0, 6), (0.7, 0.701)]  # fmt: skip


class Same(nn.Module):
    """A new tensor, which nobody else holds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("inplace", [False, True])
def test_limits_of_hardtanh_that_a_dtype_does_not_have(dtype: torch.dtype, inplace: bool) -> None:
    """Their neighbours in half precision are inside or outside as the kernel finds them."""
    stored = set()
    for low, high in LIMITS:
        around = torch.linspace(-2, 7, 20000, dtype=torch.float64)
        near = torch.cat([torch.full((1,), v).to(dtype) for v in (low, high)])
        steps = torch.arange(-3, 4)
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        neighbours = (near.view(bits)[:, None] + steps.to(bits)).view(dtype)
        values = torch.cat([around.to(dtype), neighbours.flatten(), near, -near])
        found = []
        for wrapped in (False, True):
            model = nn.Sequential(Same(), nn.Hardtanh(low, high, inplace=inplace), nn.Identity())
            act = tt.wrap(model, least=0) if wrapped else None
            for _ in range(6):
                x = values.clone().requires_grad_()
                model(x).backward(torch.arange(1, len(x) + 1).to(dtype).remainder(7) + 1)
                found.append(x.grad)
            if act is not None:
                stored |= {row.how for row in act.plan(values.clone().requires_grad_()).rows}
                assert act.problems == []
        assert all(torch.equal(g, found[0]) for g in found), (low, high)
    assert "2 bits" in stored
