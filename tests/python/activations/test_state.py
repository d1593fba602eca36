"""A run that goes on from a checkpoint has the losses of one that was never interrupted."""

import io

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import NETWORKS, images, made, resnet_like  # noqa: E402
from tuckfold.torch._activations._native import library  # noqa: E402

TWO = "block_quant(bits=2, group=64, round=stochastic)"


class Training:
    """A model, its optimizer and its handle; batches have sizes in turn."""

    def __init__(self, name: str, options: dict) -> None:
        make, self.batch = NETWORKS[name]
        self.model = made(make)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.act = tt.wrap(self.model, **({"least": 1024} | options))
        self.called = self.model

    def steps(self, first: int, last: int) -> list[float]:
        losses = []
        for step in range(first, last):
            self.optimizer.zero_grad()
            with torch.random.fork_rng():
                torch.default_generator.set_state(torch.Generator().manual_seed(step).get_state())
                x = self.batch(8 if step % 3 else 4)
            torch.manual_seed(11)
            loss = self.called(x).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def saved(self) -> io.BytesIO:
        file = io.BytesIO()
        parts = (self.model, self.optimizer, self.act)
        torch.save([part.state_dict() for part in parts], file)
        file.seek(0)
        return file

    def load(self, file: io.BytesIO) -> None:
        for part, state in zip(
            (self.model, self.optimizer, self.act), torch.load(file), strict=True
        ):
            part.load_state_dict(state)


@pytest.mark.parametrize("way", ["python", "cpp"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("options", [{"codec": TWO}, {"codec": TWO, "gentle": 9}])
def test_a_run_that_goes_on_has_the_same_losses(
    name: str, options: dict, way: str, monkeypatch
) -> None:
    if way == "cpp" and library() is None:
        pytest.skip("no hooks in C++ for this torch, or TUCKFOLD_HOOKS=python")
    monkeypatch.setenv("TUCKFOLD_HOOKS", way)
    whole = Training(name, options).steps(0, 20)
    assert whole != Training(name, options | {"codec": TWO.replace("2", "3")}).steps(0, 20)
    for stop in (1, 4, 13):
        torch.manual_seed(11)
        before = Training(name, options)
        assert before.steps(0, stop) == whole[:stop]
        file = before.saved()
        torch.manual_seed(5)
        after = Training(name, options)
        after.load(file)
        assert after.steps(stop, 20) == whole[stop:], stop


@pytest.mark.parametrize("name", ["resnet", "gpt"])
def test_a_fitted_run_goes_on_with_the_same_losses(name: str) -> None:
    options = {"noise": 0.05}
    before = Training(name, options)
    before.steps(0, 7)
    assert before.act.goal.fitted.noise > 0
    file = before.saved()
    expected = before.steps(7, 16)
    after = Training(name, options)
    after.load(file)
    assert after.steps(7, 16) == expected


@pytest.mark.parametrize("before_load", [0, 2])  # passes of the new handle until it is loaded
def test_a_compiled_run_goes_on_with_the_same_losses(before_load: int) -> None:
    def training(seed: int) -> Training:
        torch.compiler.reset()
        torch.manual_seed(seed)
        made = Training("gpt", {"codec": TWO})
        made.called = torch.compile(made.model, backend="aot_eager", dynamic=False)
        return made

    whole = training(11).steps(0, 9)
    before = training(11)
    assert before.steps(0, 5) == whole[:5]
    file = before.saved()
    after = training(5)
    after.steps(0, before_load)
    after.load(file)
    assert after.steps(5, 9) == whole[5:]
    torch.compiler.reset()


def test_what_a_fit_has_chosen_goes_on() -> None:
    model, x = made(resnet_like), images()
    act = tt.wrap(model, noise=0.05, least=1024)
    fit = act.fit(x)
    assert fit.noise > 0
    state = act.state_dict()
    act.remove()
    again = tt.wrap(model, noise=0.05, least=1024)
    again.load_state_dict(state)
    assert again.goal.chosen == act.goal.chosen and str(again.goal.fitted) == str(fit)
    passes = again._passes
    model(x).sum().backward()
    assert again._passes == passes + 1  # nothing was fitted


def test_the_seed_of_the_state_holds_until_torch_has_another() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    torch.manual_seed(3)
    act = tt.wrap(model, codec=TWO, least=1024)
    seeds = [act.next_seed() for _ in range(4)]
    state = act.state_dict()
    torch.manual_seed(4)
    act.load_state_dict(state | {"passes": 2})
    assert [act.next_seed() for _ in range(2)] == seeds[2:]
    torch.manual_seed(5)
    act.load_state_dict(state | {"passes": 0})
    torch.manual_seed(3)
    assert act.next_seed() == seeds[0]
    torch.manual_seed(6)
    assert act.next_seed() != seeds[1]


def test_states_that_do_not_fit_are_refused() -> None:
    model = nn.Linear(4, 4)
    act = tt.wrap(model)
    state = act.state_dict()
    for wrong in ({}, state | {"more": 1}, None, state | {"passes": -1}):
        with pytest.raises(ValueError, match="use what state_dict"):
            act.load_state_dict(wrong)
    act.remove()
    with pytest.raises(ValueError, match="give wrap the options"):
        tt.wrap(model, budget="1GiB").load_state_dict(state)


@pytest.mark.parametrize("way", ["python", "cpp"])
def test_after_layers_were_frozen_and_trained_again(way: str, monkeypatch) -> None:
    """What was learnt while they were frozen does not count, and tensors of theirs are stored again."""
    monkeypatch.setenv("TUCKFOLD_HOOKS", way)
    if way == "cpp" and library() is None:
        pytest.skip("no hooks in C++ for this torch")

    def build() -> nn.Module:
        layers = [nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 64)]
        return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), *layers)

    def steps(model, count: int) -> list[list[torch.Tensor]]:
        found = []
        for _ in range(count):
            model.zero_grad()
            model(x).square().sum().backward()
            found.append([p.grad.clone() for p in model.parameters() if p.requires_grad])
        return found

    x = torch.randn(64, 64)
    model = made(build)
    act = tt.wrap(model, codec=TWO, least=1024)
    steps(model, 7)
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    steps(model, 7)
    model[0].requires_grad_(True)
    model[1].requires_grad_(True)
    steps(model, 2)
    state = act.state_dict()
    expected = steps(model, 6)
    assert act.repeats
    again = made(build)
    again.load_state_dict(model.state_dict())
    tt.wrap(again, codec=TWO, least=1024).load_state_dict(state)
    for a, b in zip(steps(again, 6), expected, strict=True):
        assert all(map(torch.equal, a, b))
