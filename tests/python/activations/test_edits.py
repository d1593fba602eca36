"""Parameters that change out of autograd's sight between forward and backward: the plain model's
backward reads the new weight and the old activations, and so does that of a wrapped one."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import Block, Gated, Sequence, made, same  # noqa: E402

PASSES = 6  # watched, surveyed, repeated


class Scaled(nn.Module):
    """Layer scale, as in ConvNeXt: a parameter that no module of torch has."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.gamma = nn.Linear(32, 32), nn.Linear(32, 32), nn.Parameter(torch.rand(32))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.gelu(self.a(x)) * self.gamma)


def trained(norm: nn.Module) -> nn.Module:
    norm(torch.randn(4, 8, 9, 9) * 3 + 1)
    return norm.eval()


def after(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 4, 3))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer": (
        lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32)),
        (64, 32),
    ),
    "rms, gates": (lambda: Gated(32), (8, 16, 32)),
    "transformer": (lambda: Block(32, p=0.0), (4, 16, 32)),
    "layer scale": (Scaled, (64, 32)),
    "batch": (lambda: after(nn.BatchNorm2d(8)), (4, 3, 12, 12)),
    "batch, eval": (lambda: after(trained(nn.BatchNorm2d(8))), (4, 3, 12, 12)),
    "group": (lambda: after(nn.GroupNorm(2, 8)), (4, 3, 12, 12)),
}


def through_data(p: Tensor) -> None:
    p.data.add_(0.5)


def another_storage(p: Tensor) -> None:
    p.data = p.data + 0.5


def through_numpy(p: Tensor) -> None:
    p.detach().numpy()[:] += 0.5


EDITS = [through_data, another_storage, through_numpy]


def passes(model: nn.Module, x: Tensor, edit: Callable[[Tensor], None]) -> list[list[Tensor]]:
    """Gradients of passes with an edit before each backward."""
    found = []
    for i in range(PASSES):
        model.zero_grad()
        loss = model(x * (i + 1)).square().mean()
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                edit(tensor)
        loss.backward()
        found.append([p.grad.clone() for p in model.parameters()])
    return found


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", NETS)
def test_edits_that_autograd_does_not_see(name: str, edit: Callable[[Tensor], None]) -> None:
    make, shape = NETS[name]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    plain, wrapped = made(make), made(make)
    wrapped.load_state_dict(plain.state_dict())
    with tt.activations(wrapped, least=1024) as act:
        assert "recompute" in {row.how for row in act.plan(x).rows}
        for one, other in zip(passes(plain, x, edit), passes(wrapped, x, edit), strict=True):
            assert all(same(a, b) for a, b in zip(one, other, strict=True))
        assert not act.problems


def test_another_storage_within_a_pass() -> None:
    """A norm's bias is exchanged after that of an earlier one was used."""

    def call(m: nn.Module, x: Tensor) -> Tensor:
        x = F.relu(m.first(m.a(x)))
        m.second.bias.data = torch.linspace(-1, 1, 32) * float(x.detach().sum().sin())
        return m.b(F.relu(m.second(x)))

    def make() -> nn.Module:
        parts = {"a": nn.Linear(32, 32), "b": nn.Linear(32, 4)}
        return Sequence(call, first=nn.BatchNorm1d(32), second=nn.BatchNorm1d(32), **parts)

    x = torch.rand(64, 32)
    plain, wrapped = made(make), made(make)
    wrapped.load_state_dict(plain.state_dict())
    with tt.activations(wrapped, least=1024):
        for one, other in zip(
            passes(plain, x, lambda _: None), passes(wrapped, x, lambda _: None), strict=True
        ):
            assert all(same(a, b) for a, b in zip(one, other, strict=True))


def test_an_update_that_autograd_sees_still_raises() -> None:
    model = NETS["layer"][0]()
    x = torch.rand(64, 32)
    with tt.activations(model, least=0):
        for _ in range(PASSES):
            loss = model(x).square().mean()
            with torch.no_grad():
                model[1].weight.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
