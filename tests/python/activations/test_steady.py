"""Passes that repeat an earlier one: the same gradients, the same bytes stored, hooks for few tensors."""

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from bench.experiments.activations.host import NarrowResNet50  # noqa: E402
from bench.experiments.activations.models import GPT, UNet, lora  # noqa: E402
from bench.gpu.networks import Bottleneck  # noqa: E402
from nets import (  # noqa: E402
    NETWORKS,
    Sequence,
    exact,
    gradients,
    images,
    made,
    resnet_like,
    same,
)
from tuckfold.torch._activations import _products, _program, _run  # noqa: E402
from tuckfold.torch._activations._native import Native, library  # noqa: E402
from tuckfold.torch._activations._saved import Handle  # noqa: E402
from tuckfold.torch._activations._steady import Steady  # noqa: E402

PASSES = 6


@pytest.fixture
def steady(monkeypatch) -> list[Steady | Native]:
    """The passes that repeat an earlier one, as they come."""
    seen: list[Steady | Native] = []

    def watch(way: type) -> None:
        finish = way.finish

        def finished(self: Steady | Native, output: object) -> bool:
            self.went = finish(self, output)
            seen.append(self)
            return self.went

        monkeypatch.setattr(way, "finish", finished)

    watch(Steady)
    watch(Native)
    return seen


def all_same(a: list[Tensor | None], b: list[Tensor | None]) -> bool:
    return all(map(same, a, b))


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "unet"])
@pytest.mark.parametrize("recompute", [0, 2, True, 8])
def test_every_pass_has_the_same_gradients(name: str, recompute: int, steady) -> None:
    make, batch = NETWORKS[name]
    model = made(make)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0, recompute=recompute)
    for seed in range(PASSES):
        assert all_same(gradients(model, batch(), seed=seed), gradients(plain, batch(), seed=seed))
    assert [run.went for run in steady] == [True] * (PASSES - 3)
    assert all(run.hooked >= 2 for run in steady), [run.hooked for run in steady]
    assert act.problems == []


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "unet"])
def test_as_much_is_stored_as_by_hooks_for_every_tensor(name: str, steady, monkeypatch) -> None:
    freed = [0]
    store = Handle.store

    def counted(self: Handle, form: object) -> None:
        freed[-1] += 1
        store(self, form)

    monkeypatch.setattr(Handle, "store", counted)
    make, batch = NETWORKS[name]
    model = made(make)
    tt.wrap(model, least=0)
    for _ in range(PASSES):
        torch.manual_seed(0)
        model(batch()).sum().backward()
        if steady and isinstance(steady[-1], Native):
            freed[-1] += steady[-1].stored
        freed.append(0)
    assert len(steady) == PASSES - 3
    assert set(freed[1:-1]) == {freed[1]}


def warmed(model: nn.Module, *x: Tensor, **options: object) -> object:
    """Wraps a model; its next pass repeats an earlier one."""
    act = tt.wrap(model, **({"least": 0} | options))
    for _ in range(3):
        gradients(model, *x)
    return act


class Frozen(nn.Module):
    """A convolution whose input is read only where its weight has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(torch.tanh(self.first(x)) * 1.0) * 1.0


def test_a_weight_that_is_no_longer_frozen_is_seen(steady) -> None:
    model = made(Frozen)
    act = warmed(model, images())
    assert "nothing" in {row.how for row in act.plan(images()).rows}
    gradients(model, images())
    assert steady[-1].went and steady[-1].hooked
    model.frozen.requires_grad_(True)
    plain = copy.deepcopy(model)
    for _ in range(4):
        assert all_same(gradients(model, images()), gradients(plain, images()))


class Branch(nn.Module):
    """Adds one of two tensors of the same sizes, which is nowhere to be seen but in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.norm, self.relu, self.gate = nn.BatchNorm2d(3), nn.ReLU(), nn.Sigmoid()
        self.which = 0

    def forward(self, x: Tensor) -> Tensor:
        sides = [self.gate(self.a(x)), self.gate(self.b(x))]
        y = self.relu(self.norm(x * self.c.bias[:, None, None]) + sides[self.which])
        return self.c(y) + self.a(sides[0]) + self.b(sides[1])


def test_other_wiring_of_the_same_operators_is_seen(steady) -> None:
    model = made(Branch)
    plain = copy.deepcopy(model)
    warmed(model, images())
    for which in (0, 1, 0, 1, 1):
        model.which = plain.which = which
        assert all_same(gradients(model, images()), gradients(plain, images()))
    assert [run.went for run in steady[:2]] == [True, False]


def test_other_sizes_have_their_own_program(steady) -> None:
    model = made(resnet_like)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    for n in (4, 2) * 5:
        assert all_same(gradients(model, images(n)), gradients(plain, images(n)))
    assert len(steady) == 4 and all(run.went for run in steady)
    assert act.problems == []


def test_layers_that_come_and_go_are_watched_in_full(steady) -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        for i, layer in enumerate((m.a, m.b, m.c)):
            if torch.rand(()) < 0.5 or i == 0:
                x = F.relu(layer(x))
        return m.d(x)

    layers = {name: nn.Linear(8, 8) for name in "abcd"}
    model = made(lambda: Sequence(call, **copy.deepcopy(layers)))
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    x = torch.randn(4, 8)
    for seed in range(40):
        assert all_same(gradients(model, x, seed=seed), gradients(plain, x, seed=seed))
    assert sum(not run.went for run in steady) <= 3
    assert act.problems == []


def test_a_change_in_place_raises_as_without_us() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = torch.sigmoid(m.a(x))
        z = m.relu(m.b(y))
        if m.spoil:
            with torch.no_grad():
                y.add_(1)
        return m.c(z)

    layers = {name: nn.Linear(64, 64) for name in "abc"}
    model = Sequence(call, relu=nn.ReLU(), **layers)
    model.spoil = False
    x = torch.randn(4, 64)
    warmed(model, x)
    model.spoil = True
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        model(x).sum().backward()


@pytest.mark.parametrize("name", ["alexnet", "resnet, not in place", "gpt"])
def test_graphs_are_read_twice(name: str, steady) -> None:
    make, batch = NETWORKS[name]
    model = made(make)
    warmed(model, batch())
    torch.manual_seed(0)
    losses = [model(batch()).square().sum() for _ in range(2)]
    parameters = list(model.parameters())
    first = torch.autograd.grad(losses[1], parameters, retain_graph=True)
    torch.autograd.grad(losses[0], parameters)
    assert all(map(same, first, torch.autograd.grad(losses[1], parameters)))
    assert [run.went for run in steady] == [True, True]


def test_an_interrupted_pass_is_cleaned_up(steady) -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = m.relu(m.a(x))
        if m.stop:
            raise KeyboardInterrupt
        return m.b(y)

    model = made(lambda: Sequence(call, a=nn.Linear(8, 8), relu=nn.ReLU(), b=nn.Linear(8, 8)))
    model.stop = False
    x = torch.randn(4, 8)
    plain = copy.deepcopy(model)
    warmed(model, x)
    model.stop = True
    with pytest.raises(KeyboardInterrupt):
        model(x)
    model.stop = False
    other, other_plain = made(resnet_like), made(resnet_like)
    act = warmed(other, images())
    for _ in range(4):
        assert all_same(gradients(model, x), gradients(plain, x))
        assert all_same(gradients(other, images()), gradients(other_plain, images()))
    assert act.problems == []
    assert steady[-1].went


@pytest.mark.parametrize("way", ["python", "cpp"])
@pytest.mark.parametrize("end", ["raises", "returns nothing"])
def test_a_pass_that_ends_otherwise_is_no_problem(
    end: str, way: str, steady, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all modules have been called, so that the order of these is as it was."""
    monkeypatch.setenv("TUCKFOLD_HOOKS", way)

    def call(m: nn.Module, x: Tensor) -> Tensor | None:
        y = m.b(m.relu(m.a(x)))
        if m.stop and end == "raises":
            raise KeyError("data")
        return None if m.stop else y.relu().sum(1)

    model = made(lambda: Sequence(call, a=nn.Linear(8, 8), relu=nn.ReLU(), b=nn.Linear(8, 8)))
    model.stop = False
    x = torch.randn(4, 8)
    plain = copy.deepcopy(model)
    act = warmed(model, x)
    model(x)
    model.stop = True
    if end == "raises":
        with pytest.raises(KeyError):
            model(x)
    else:
        assert model(x) is None
    assert act.problems == [] and not steady[-1].went
    model.stop = False
    for _ in range(4):
        assert all_same(gradients(model, x), gradients(plain, x))
    assert act.problems == []


def test_a_wrapped_model_inside_of_a_wrapped_model(steady) -> None:
    model = made(resnet_like)
    plain = copy.deepcopy(model)
    tt.wrap(model[4], least=0)
    warmed(model, images())
    for _ in range(3):
        assert all_same(gradients(model, images()), gradients(plain, images()))
    assert all(run.went for run in steady) and len(steady) == 3


def test_a_model_that_has_learnt_is_freed_at_once_and_its_copies_are_plain() -> None:
    model = made(resnet_like)
    act = warmed(model, images())
    gradients(model, images())
    other = copy.deepcopy(model)
    assert all_same(gradients(other, images()), gradients(model, images()))
    parameter = weakref.ref(model[4].conv1.weight)
    gc.collect()
    gc.disable()
    try:
        del model
        assert parameter() is None
    finally:
        gc.enable()
    act.remove()


def test_what_waits_early_in_a_pass_is_no_reason_to_watch_it(monkeypatch, steady) -> None:
    """A UNet pools between its modules: indices wait for the end of the next one, while little is stored."""
    monkeypatch.setattr(_run, "_MUCH", 0)  # as with tensors that are large
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16), exact(UNet(8), torch.rand(2, 3, 64, 64)):
        pass
    assert [run.went for run in steady] == [True, True]


def test_few_modules_are_listened_to_where_little_waits_for_it() -> None:
    """All layers of a ResNet-50: at the ends of its blocks, and of few others."""
    torch.manual_seed(0)
    model = NarrowResNet50()
    act = tt.wrap(model, least=0)
    for _ in range(4):
        model(torch.rand(1, 3, 64, 64)).sum().backward()
    (state,) = act._learning._states.values()
    blocks = {n for n, m in enumerate(model.modules()) if isinstance(m, Bottleneck)}
    assert len(blocks) == 16
    assert len(state.program.modules & blocks) > 12
    assert len(state.program.sequence) < 40


class Ways(nn.Module):
    """A part of what it makes is found from each of its outputs, and some from none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = F.relu(self.a(x)), F.gelu(self.b(x))
        F.relu(self.c(x))
        return a * 2, b.sin()


class Called(nn.Module):
    """Twice, with modules in a list, and one that another has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.ways, self.last = nn.ModuleList(Ways() for _ in range(2)), nn.Linear(16, 16)
        self.shared = self.ways[0].a

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            for way in self.ways:
                one, other = way(x)
                x = self.last(one + other)
        return F.relu(self.shared(x))


def test_modules_of_several_outputs_calls_and_parents(monkeypatch, steady) -> None:
    monkeypatch.setattr(_program, "_MOST_GATHERED", 1.0)  # wherever it can be
    with exact(nn.Sequential(Called(), nn.ReLU(), Called()), torch.rand(8, 16)):
        pass
    assert [run.went for run in steady] == [True, True]


@pytest.mark.parametrize("name", NETWORKS)
def test_gathered_as_much_as_can_be(name: str, monkeypatch, steady) -> None:
    monkeypatch.setattr(_program, "_MOST_GATHERED", 1.0)
    make, batch = NETWORKS[name]
    with exact(made(make), batch()):
        pass
    assert all(run.went and run.stored == run.hooked for run in steady)


def test_what_products_read_is_stored_before_them(monkeypatch, steady) -> None:
    """Outputs of activations, which they would have kept otherwise."""
    monkeypatch.setitem(_products.SHARE, "cpu", 0.02)
    monkeypatch.setattr(_run, "_MUCH", 0)
    torch.manual_seed(0)
    model = lora(GPT(256, 128, depth=4))
    tt.wrap(model, least=4096)
    for _ in range(PASSES):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randint(256, (2, 64))).float().square().mean()
        loss.backward()
    later = Steady if library() is None else Native
    assert [type(run) for run in steady] == [Steady, later, later]
    assert all(run.went and run.stored == run.hooked for run in steady)


def test_removing_takes_all_hooks_away() -> None:
    model = made(resnet_like)
    act = warmed(model, images())
    act.remove()
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_a_model_with_nothing_to_gain_has_no_hooks_left(steady) -> None:
    model = made(resnet_like)
    act = warmed(model, images(), least=1 << 30)
    gradients(model, images())
    assert steady[-1].went and steady[-1].hooked == 0
    assert all(m is model or not m._forward_hooks for m in model.modules())
    assert act.problems == []


def test_a_bias_that_changes_within_a_pass_is_seen() -> None:
    class Changing(nn.Module):
        """The bias of a later layer changes after that of an earlier one was used."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
            self.norms = nn.ModuleList(nn.GroupNorm(2, 16) for _ in range(3))
            self.relu = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=False)):
                with torch.no_grad():
                    norm.bias.copy_(torch.linspace(-1, 1, 16) * (i + 1 + float(x[0, 0])))
                x = self.relu(norm(layer(x)))
            return self.layers[3](x)

    model = made(Changing)
    plain = copy.deepcopy(model)
    warmed(model, torch.randn(8, 16))
    for seed in range(4):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
        assert all_same(gradients(model, x), gradients(plain, x))


@pytest.mark.parametrize("moved", [True, False])
def test_streams(monkeypatch, steady, moved: bool) -> None:
    """A pass may run in another stream than the one before, but a part of it may not."""
    from tuckfold.torch._activations import _handle, _run, _saved, _steady

    monkeypatch.setenv("TUCKFOLD_HOOKS", "python")  # C++ asks the device
    now = [7]
    for module in (_handle, _run, _saved, _steady):
        monkeypatch.setattr(module, "stream_of", lambda _: now[0])

    class Switched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (
                nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in "ab"
            )
            self.side = 0

        def forward(self, x: Tensor) -> Tensor:
            before = now[0]
            now[0] = self.side or before
            y = self.a(x)
            now[0] = before
            return self.b(y)

    model, x = made(Switched), torch.randn(4, 8)
    plain = copy.deepcopy(model)
    warmed(model, x)
    now[0] = 9 if moved else 7
    model.side = 0 if moved else 8
    assert all_same(gradients(model, x), gradients(plain, x))
    assert steady[-1].went == moved


def test_functional_transforms_and_no_grad_after_warming(steady) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))
    x = torch.randn(4, 8)
    act = warmed(model, x)
    expected = [p.grad.clone() for p in model.parameters()]
    weights = torch.linspace(-1, 1, 32).reshape(4, 8)
    f = lambda p: (torch.func.functional_call(model, p, x) * weights).sum()  # noqa: E731
    got = torch.func.grad(f)(dict(model.named_parameters()))
    assert all(torch.allclose(a, b) for a, b in zip(got.values(), expected, strict=True))
    with torch.no_grad():
        model(x)
    gradients(model, x)
    assert [run.went for run in steady] == [True]
    assert act.problems == []


def test_compiling_a_model_that_has_learnt(steady) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))
    x = torch.randn(4, 8)
    warmed(model, x)
    expected = gradients(model, x)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    got = gradients(compiled, x)
    assert all(torch.allclose(a, b) for a, b in zip(got, expected, strict=True))
