"""Normalizations and activations in place: what follows them is made again, with the same bits."""

import copy

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import exact, gradients, images, made, same  # noqa: E402

NORMS = {
    "group": lambda: nn.GroupNorm(2, 8),
    "group, plain": lambda: nn.GroupNorm(2, 8, affine=False),
    "instance": lambda: nn.InstanceNorm2d(8),
    "instance, running": lambda: nn.InstanceNorm2d(8, track_running_stats=True),
    "batch": lambda: nn.BatchNorm2d(8),
    "batch, plain": lambda: nn.BatchNorm2d(8, affine=False),
    "batch, eval": lambda: trained(nn.BatchNorm2d(8)),
    "layer, plain": lambda: nn.LayerNorm((30, 30), elementwise_affine=False),
    "layer, no bias": lambda: nn.LayerNorm((30, 30), bias=False),
}
ACTIVATIONS = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "relu6 in place": lambda: nn.ReLU6(inplace=True),
    "leaky": nn.LeakyReLU,
    "leaky in place": lambda: nn.LeakyReLU(0.2, inplace=True),
    "silu": nn.SiLU,
}


def trained(norm: nn.Module) -> nn.Module:
    norm(torch.randn(4, 8, 9, 9) * 3 + 1)
    return norm.eval()


def net(norm: nn.Module, activation: nn.Module) -> nn.Module:
    with torch.no_grad():
        for p in norm.parameters():
            p.copy_(torch.randn(p.shape))
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, activation, nn.Conv2d(8, 4, 3))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ["relu", "leaky in place"])
def test_what_follows_a_normalization_is_made_again(norm: str, activation: str) -> None:
    if norm.startswith("instance") and activation == "leaky in place":
        pytest.skip("in place on a view of what a node made: autograd copies slices")
    model = made(lambda: net(NORMS[norm](), ACTIVATIONS[activation]()))
    with exact(model, images()) as act:
        rows = act.plan(images()).rows
    assert [row.how for row in rows if row.module == "3"] == ["recompute"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_activations_after_a_normalization(norm: str, activation: str) -> None:
    model = made(lambda: net(NORMS[norm](), ACTIVATIONS[activation]()))
    with exact(model, images()) as act:
        rows = act.plan(images()).rows
    assert [row.how for row in rows if row.module == "3"] == ["recompute"]
    kept = [row for row in rows if row.how == "keep" and row.shape == (4, 8, 30, 30)]
    assert len(kept) <= (2 if activation == "silu" else 1)  # the normalization's input


def test_a_change_that_autograd_does_not_see_is_not_made_again() -> None:
    class Spoilt(nn.Module):
        """ReLU6 in place, and a change beside it."""

        def __init__(self, before: bool) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)
            self.before = before

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.a(x))
            if self.before:
                y.detach().add_(0.25)
            y = F.relu6(y, inplace=True)
            if not self.before:
                y.detach().mul_(0.5)
            return self.b(y)

    for before in (True, False):
        with exact(made(lambda before=before: Spoilt(before)), images()):
            pass


def test_a_copy_is_no_operator_in_place() -> None:
    class Copied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu6(self.norm(self.a(x)).clone())
            y.detach().mul_(0.5)
            return self.b(y)

    with exact(made(Copied), images()):
        pass


def test_plain_layer_norms_of_other_epsilons_do_not_mix() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
            self.first = nn.LayerNorm(16, eps=1e-5, elementwise_affine=False)
            self.second = nn.LayerNorm(16, eps=0.5, elementwise_affine=False)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(F.layer_norm(self.first(x * self.a.bias), (16,), eps=0.1))
            return self.b(self.second(x))

    with exact(made(Two), torch.randn(8, 16)) as act:
        rows = act.plan(torch.randn(8, 16)).rows
    assert [row.how for row in rows if row.module == "b" and row.role == "mat1"] == ["recompute"]
    assert [row.how for row in rows if row.module == "a" and row.role == "mat1"] == ["keep"]


def test_running_statistics_that_change_before_backward_are_seen() -> None:
    model = made(lambda: net(NORMS["batch, eval"](), nn.ReLU()))
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)

    def step(m: nn.Module) -> None:
        out = m(images())
        m[1].running_mean.add_(1)  # autograd saved it
        out.sum().backward()

    for m in (plain, model):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(m)


def test_an_update_of_the_bias_before_backward_changes_nothing() -> None:
    results = []
    for wrapped in (False, True):
        model = made(lambda: net(nn.GroupNorm(2, 8), nn.ReLU()))
        if wrapped:
            tt.wrap(model, least=0)
            for _ in range(3):
                gradients(model, images())
            model.zero_grad()
        out = model(images())
        with torch.no_grad():
            model[1].bias.add_(1)
        out.sum().backward()
        results.append([p.grad for p in model.parameters()])
    assert all(map(same, *results))
