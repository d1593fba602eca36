"""Compiled models that are wrapped, left and wrapped otherwise: each time they run what is asked for now."""

import gc

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from compiling import compiled, fresh  # noqa: E402, F401
from nets import made  # noqa: E402

TWO = "block_quant(bits=2, group=64)"
EIGHT = "block_quant(bits=8, group=64)"


class Net(nn.Module):
    """Of a class of its own: torch.compile takes forward alone, and hooks run outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.last = Net(), nn.Linear(64, 64)

    def forward(self, x):
        return self.last(self.net(x))


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))


def error(got, expected) -> float:
    difference = sum((a - b).double().square().sum() for a, b in zip(got, expected, strict=True))
    return float((difference / sum(b.double().square().sum() for b in expected)).sqrt())


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def ready(model, how: str):
    """The model, compiled in one of several ways."""
    if how == "in place":
        model.compile(backend="aot_eager", fullgraph=True)
        return model
    return compiled((lambda x: model(x)) if how == "a function" else model)


def step(model, call, x) -> list[torch.Tensor]:
    model.zero_grad()
    call(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("how", ["module", "in place", "a function"])
@pytest.mark.parametrize("first", ["wrapped", "compiled", "run"])
@pytest.mark.parametrize("make", [Net, sequential])
def test_what_is_asked_for_now(how: str, first: str, make) -> None:
    if make is sequential and how == "in place":
        pytest.skip("torch compiles nothing there")
    model, x = made(make), torch.randn(512, 64)
    plain = step(model, model, x)
    act = tt.wrap(model, codec=TWO) if first == "wrapped" else None
    module = ready(model, how)

    def now() -> float:
        return error(step(model, module, x), plain)

    if first == "run":
        assert now() < 1e-6
    act = act or tt.wrap(model, codec=TWO)
    assert 0.01 < now() < 0.1
    act.remove()
    assert now() < 1e-6
    act = tt.wrap(model)
    assert now() < 1e-6
    act.remove()
    act = tt.wrap(model, codec=EIGHT)
    assert 1e-5 < now() < 1e-3
    with act.paused():
        assert now() < 1e-6
    assert 1e-5 < now() < 1e-3
    act.remove()
    with tt.activations(model, codec=TWO):
        assert 0.01 < now() < 0.1
    assert now() < 1e-6


def test_a_part_of_what_is_compiled() -> None:
    model, x = made(Around), torch.randn(512, 64)
    plain = step(model, model, x)
    module = compiled(model)
    for _ in range(2):
        assert error(step(model, module, x), plain) < 1e-6
        act = tt.wrap(model.net, codec=TWO)
        assert error(step(model, module, x), plain) > 1e-3
        act.remove()


def test_wrapping_in_the_same_way_finds_the_graphs_that_there_are() -> None:
    model, x = made(Net), torch.randn(512, 64)
    module, counts = compiled(model), set()
    for _ in range(12):  # more than torch compiles one function
        with tt.activations(model, codec=TWO):
            step(model, module, x)
            step(model, module, x)
        step(model, module, x)
        gc.collect()
        counts.add(graphs())
    assert len(counts) == 1


@pytest.mark.parametrize("first", ["wrapped", "compiled", "run"])
@pytest.mark.parametrize("how", ["module", "in place"])
def test_check_tries_the_codec(first: str, how: str) -> None:
    model, x = made(Net), torch.randn(512, 64)
    act = tt.wrap(model, codec=TWO) if first == "wrapped" else None
    module = ready(model, how)
    if first != "compiled":
        module(x).sum().backward()
    result = tt.check(module, x, **({} if act else {"codec": TWO}))
    assert not result.ok and 0.01 < result.quality.relative_error < 0.1
    assert result.stored < result.saved / 4


def test_check_says_where_nothing_was_tried() -> None:
    model = made(sequential)
    model.compile(backend="aot_eager")  # torch compiles nothing of it
    with pytest.warns(UserWarning, match=r"\[check\] no saved tensor was seen"):
        result = tt.check(model, torch.randn(512, 64), codec=TWO)
    assert result.saved == 0


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m, self.k = Net(), Net()

    def forward(self, x):
        return self.k(F.relu(self.m(x)))


@pytest.mark.parametrize("part", ["m", "k"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_codec_keeps_to_the_part_that_is_wrapped(part: str, backend: str) -> None:
    """Compiled and not; what the other part saves is exact, also where torch has cached the same graph."""
    model, x = made(Pair), torch.randn(512, 64)
    plain = step(model, model, x)
    act = tt.wrap(getattr(model, part), codec=TWO)
    for call in (model, compiled(model, backend=backend)):
        got = step(model, call, x)
        errors = {
            name: error([a], [b])
            for (name, _), a, b in zip(model.named_parameters(), got, plain, strict=True)
        }
        # What m gets from k's backward is exact in any case where k's weights are.
        assert errors[f"{part}.b.weight"] > 1e-3
        if part == "m":
            assert max(e for name, e in errors.items() if name.startswith("k.")) < 1e-5
        else:
            assert errors["k.b.bias"] < 1e-5
    assert act.problems == []


def test_a_part_of_a_wrapped_model_that_another_calls_is_exact() -> None:
    class Other(nn.Module):
        def __init__(self, net) -> None:
            super().__init__()
            self.net, self.last = net, nn.Linear(64, 64)

        def forward(self, x):
            return self.last(F.gelu(self.net.a(x)))

    model, x = made(lambda: Other(Net())), torch.randn(512, 64)
    model.net.b.requires_grad_(False)

    def now(call) -> list[torch.Tensor]:
        model.zero_grad()
        call(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = now(model)
    tt.wrap(model.net, codec=TWO)
    assert error(now(model), plain) < 1e-5  # its call is not made
    assert error(now(compiled(model)), plain) < 1e-5


@pytest.mark.parametrize("order", ["mk", "km"])
def test_of_several_wrapped_parts_the_first_is_packed(order: str, caplog) -> None:
    model, x = made(Pair), torch.randn(512, 64)
    plain = step(model, model, x)
    for part in order:
        tt.wrap(getattr(model, part), codec=TWO)
    with caplog.at_level("WARNING", logger="tuckfold.activations"):
        got = step(model, compiled(model), x)
    assert "2 wrapped models" in caplog.text
    packed = {
        name
        for (name, _), a, b in zip(model.named_parameters(), got, plain, strict=True)
        if name.endswith("b.weight") and error([a], [b]) > 1e-3
    }
    assert packed == {f"{order[0]}.b.weight"}
