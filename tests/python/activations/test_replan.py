"""Choices that are made anew in training: not without a gain; and the first passes, which are gentle."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import gradients, images, made, resnet_like  # noqa: E402
from test_lossy import error, is_steady  # noqa: E402
from tuckfold.torch._activations._budget import problem_of, watched  # noqa: E402


class Branches(nn.Module):
    """Two of them, each with a factor that says how much it matters."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (
            nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8)) for _ in range(2)
        )
        self.factors = (1.0, 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return self.factors[0] * self.a(x) + self.factors[1] * self.b(x)


def bits_of(fit: tt.Fit) -> dict[str, int]:
    """By branch; 32 for what is kept."""
    found = {}
    for name, how, *_ in fit.items:
        if "tanh" in name:
            found[name[0]] = int(how.partition("bits=")[2].partition(",")[0] or 32)
    return found


def test_choices_follow_what_matters_and_do_not_swing() -> None:
    model = made(Branches)
    batches = [torch.randn(256, 64) for _ in range(3)]
    act = tt.wrap(model, noise="1%", least=4096)

    def step(x: Tensor) -> None:
        model(x).square().sum().backward()

    first = act.replan(step, batches, probes=8)
    bits = bits_of(first)
    assert first.changed == 0 and bits["a"] < 32
    again = act.replan(step, batches, probes=8)
    assert again.changed == 0 and bits_of(again) == bits  # the same network, other probes
    model.factors = (1e-3, 1.0)
    act.forget()
    after = act.replan(step, batches, probes=8)
    assert after.changed == 1 and bits_of(after)["a"] < bits["a"]  # it hardly matters any more


def test_what_is_stored_one_way_costs_a_tenth_less() -> None:
    model, x = made(resnet_like).train(), images(8)
    act = tt.wrap(model, budget="1GiB", least=4096)
    act.goal.decide(act, {}, is_open=True)
    act.goal.is_fitting = True
    ledger, _ = watched(act, (x,), {}, lambda out: out.square().mean())
    menu = ("block_quant(bits=4, group=256)",)
    plain, _ = problem_of(ledger, menu, 1.0, {})
    items = [i for i in ledger.items if i.how != "recompute"]
    current = {items[0].key: menu[0]}
    biased, _ = problem_of(ledger, menu, 1.0, {}, None, current)
    for item, before, after in zip(ledger.items, plain["items"], biased["items"], strict=True):
        for a, b in zip(before["choices"], after["choices"], strict=True):
            is_current = item is items[0] and a["how"] == menu[0]
            assert b.get("noise", 0) == pytest.approx(
                a.get("noise", 0) * (0.9 if is_current else 1)
            )


def test_the_first_passes_have_eight_bits() -> None:
    model = made(resnet_like).train()
    x = images()
    expected = gradients(copy.deepcopy(model), x)
    act = tt.wrap(model, codec="block_quant(bits=2, group=64)", least=1024, gentle=6)
    errors = [error(gradients(model, x), expected) for _ in range(12)]
    assert max(errors[:5]) < 0.1 * min(errors[6:]), errors
    assert is_steady(act) and act.problems == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gentle": -1}, r"\[wrap\] gentle must be a number of passes, 0 or more, got -1"),
        ({"gentle": 5, "budget": "1GiB"}, "a budget or gentle, not both"),
    ],
)
def test_what_is_not_gentle_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tt.wrap(nn.Linear(4, 4), **options)
