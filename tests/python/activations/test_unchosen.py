"""Within a budget, or a limit of noise, what the solver has chosen no codec for keeps every bit."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import Sequence, gradients, images, made, same  # noqa: E402
from tuckfold.torch._activations._policy import is_codec  # noqa: E402

# Operators that are made again ...
MADE_AGAIN = {
    "batch_norm": lambda: nn.BatchNorm2d(8),
    "group_norm": lambda: nn.GroupNorm(2, 8),
    "layer_norm": lambda: nn.LayerNorm((8, 16, 16)),
    "rms_norm": lambda: nn.RMSNorm((8, 16, 16)),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "hardswish": nn.Hardswish,
    "glu": lambda: nn.Sequential(nn.Conv2d(8, 16, 1), nn.GLU(1)),
}


class Function(nn.Module):
    def __init__(self, call) -> None:
        super().__init__()
        self.call = call

    def forward(self, y: Tensor) -> Tensor:
        return self.call(y)


def by_hand(y: Tensor) -> Tensor:
    """Attention between the values of each channel."""
    rows = y.flatten(2)
    return ((rows @ rows.transpose(1, 2)).softmax(-1) @ rows).view(y.shape)


# ... and those which save their outputs, and which no codec may store values for.
READERS = {
    "prelu": lambda: nn.PReLU(8),
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "softplus": nn.Softplus,
    "logsigmoid": nn.LogSigmoid,
    "hardsigmoid": nn.Hardsigmoid,
    "softsign": nn.Softsign,
    "abs": lambda: Function(torch.abs),
    "sin": lambda: Function(torch.sin),
    "exp": lambda: Function(torch.exp),
    "clamp": lambda: Function(lambda y: y * y.clamp(-1, 1)),
    "cube": lambda: Function(lambda y: y**3),
    "mul": lambda: Function(lambda y: y * y.roll(1, 0)),
    "bmm": lambda: Function(lambda y: torch.bmm(y.flatten(0, 1), y.flatten(0, 1))),
    "attention": lambda: Function(by_hand),
}


def hows(act, x: Tensor) -> set[str]:
    return {row.how for row in act.plan(x).rows}


def is_exact(act, model: nn.Module, plain: nn.Module, x: Tensor) -> bool:
    expected = gradients(plain, x)
    passes = [gradients(model, x) for _ in range(6)]  # watched, surveyed and repeated ones
    equal = all(all(map(same, got, expected)) for got in passes)
    return equal and not any(map(is_codec, hows(act, x))) and act.problems == []


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("source", MADE_AGAIN)
def test_what_fits_keeps_every_bit(source: str, reader: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), MADE_AGAIN[source](), READERS[reader](), nn.Flatten(1)
    )
    x = torch.randn(16, 4, 16, 16)
    for options in ({"budget": "1GiB"}, {"noise": 0.0}):
        plain = copy.deepcopy(model)
        act = tt.wrap(model, least=4096, **options)
        fit = act.fit(x)
        assert fit.noise == 0 and not any(is_codec(how) for _, how, *_ in fit.items)
        assert is_exact(act, model, plain, x), options
        act.remove()


@pytest.mark.parametrize("source", ["batch_norm", "gelu"])
@pytest.mark.parametrize("part", [0.9, 0.8, 0.7, 0.6])
def test_codecs_store_what_the_fit_names_and_nothing_else(source: str, part: float) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(4, 8, 3, padding=1)]
    for _ in range(4):
        layers += [MADE_AGAIN[source](), nn.PReLU(8), nn.Conv2d(8, 8, 3, padding=1), nn.Softplus()]
    model = nn.Sequential(*layers)
    x = torch.randn(16, 4, 32, 32)
    with tt.activations(model, least=1 << 40) as act:
        plain = act.peak(x).total
    act = tt.wrap(model, budget=int(part * plain), least=4096)
    try:
        fit = act.fit(x)
    except tt.PlanError:
        assert part < 0.8
        return
    named = {how for _, how, *_ in fit.items if is_codec(how)}
    assert {how for how in hows(act, x) if is_codec(how)} <= named
    stored = sum(is_codec(row.how) and row.before > 0 for row in act.plan(x).rows)
    assert stored <= sum(is_codec(how) for _, how, *_ in fit.items)


def test_before_a_fit_and_after_a_failed_one_every_bit_is_kept() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3))

    model, x = made(make).eval(), torch.randn(16, 4, 16, 16)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, budget="64KiB", least=4096)
    assert all(map(same, gradients(model, x), gradients(plain, x)))
    with pytest.raises(tt.PlanError):
        act.fit(x)
    assert all(map(same, gradients(model, x), gradients(plain, x)))


def test_passes_that_the_fit_has_not_seen_keep_what_it_did_not_choose() -> None:
    """A path that is taken later has tensors that nobody has chosen for."""

    def forward(s: nn.Module, x: Tensor) -> Tensor:
        y = s.one(x)
        return s.two(F.gelu(y)) if s.is_new else s.two(y)

    def make() -> nn.Module:
        return Sequence(forward, one=nn.Conv2d(3, 8, 3), two=nn.Conv2d(8, 8, 3))

    model = made(make)
    model.is_new = False
    act = tt.wrap(model, budget="1GiB", least=4096)
    act.fit(images(16))
    model.is_new = True
    plain = copy.deepcopy(model)
    assert all(map(same, gradients(model, images(16)), gradients(plain, images(16))))
