"""Graphs that live long, are read twice, fail or run in threads; checkpoints and hooks of others."""

import copy
import gc
import pickle
import threading
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import (  # noqa: E402
    NETWORKS,
    Sequence,
    alexnet_like,
    exact,
    gradients,
    images,
    made,
    resnet_like,
    same,
)  # fmt: skip


def hows(act: object, *x: Tensor) -> set[str]:
    return {row.how for row in act.plan(*x).rows}


def test_no_cycle_holds_a_graph_that_never_runs() -> None:
    model = made(resnet_like)
    tt.wrap(model, least=0)

    def handles() -> int:
        return sum(type(o).__name__ == "Handle" for o in gc.get_objects())

    gc.collect()
    before = handles()
    gc.disable()
    try:
        out = model(images())
        assert handles() > before + 20
        del out
        assert handles() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(where: str, reentrant: bool) -> None:
    def inside(m: nn.Module, x: Tensor) -> Tensor:
        x = m.first(x)
        return m.last(checkpoint(m.middle, x, use_reentrant=reentrant))

    parts = made(resnet_like)
    model = Sequence(inside, first=parts[:4], middle=parts[4:6], last=parts[6:])
    x = images().requires_grad_()
    if where == "inside":
        with exact(model, x) as act, warnings.catch_warnings(record=reentrant):
            assert "pool index" in hows(act, x)
        return
    root = Sequence(lambda m, x: checkpoint(m.net, x, use_reentrant=reentrant), net=parts)
    plain = copy.deepcopy(root)
    tt.wrap(root.net, least=0)
    assert all(map(same, gradients(root, x), gradients(plain, x)))


@pytest.mark.parametrize("name", NETWORKS)
def test_retain_graph(name: str) -> None:
    make, batch = NETWORKS[name]
    model = made(make)
    with tt.activations(model, least=0):
        torch.manual_seed(0)
        loss = model(batch()).square().sum()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    again = torch.autograd.grad(loss, parameters[-1:], retain_graph=True)
    last = torch.autograd.grad(loss, parameters)
    assert all(map(same, first, last))
    assert same(again[0], first[-1])


@pytest.mark.parametrize("name", ["alexnet", "unet", "resnet, not in place"])
def test_double_backward(name: str) -> None:
    make, batch = NETWORKS[name]

    def penalty(model: nn.Module) -> list[Tensor | None]:
        torch.manual_seed(0)
        model.zero_grad()
        x = batch().requires_grad_()
        (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return [p.grad for p in model.parameters()]

    plain = made(make)
    wrapped = copy.deepcopy(plain)
    tt.wrap(wrapped, least=0)
    assert all(map(same, penalty(plain), penalty(wrapped)))


def test_gradgradcheck() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.GELU(), nn.MaxPool2d(2), nn.LeakyReLU(), nn.Conv2d(2, 1, 1)
    ).double()
    tt.wrap(model, least=0)
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, x)
    assert torch.autograd.gradgradcheck(model, x)


def test_an_error_in_forward_leaves_no_hooks() -> None:
    model = Sequence(lambda m, x: m.a(x[:, :3]), a=nn.Linear(8, 8))
    with tt.activations(model, least=0):
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.rand(4, 8))
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_an_interrupt_in_forward_is_cleaned_up_at_the_next_call() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        if m.stop:
            raise KeyboardInterrupt
        return F.relu(m.a(x))

    model = Sequence(call, a=nn.Linear(8, 8))
    with tt.activations(model, least=0):
        model.stop = True
        with pytest.raises(KeyboardInterrupt):
            model(torch.rand(4, 8))
        model.stop = False
        model(torch.rand(4, 8)).sum().backward()
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_an_error_in_backward_leaves_the_model_usable() -> None:
    model = made(alexnet_like)
    with exact(model, images()):
        out = model(images())
        out.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            out.sum().backward()


def test_no_error_of_ours_leaves_a_forward_pass(monkeypatch, caplog) -> None:
    from tuckfold.torch._activations import _store

    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(_store, "forms_of", fail)
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    assert all(map(same, gradients(model, images()), gradients(plain, images())))
    assert act.problems == ["MemoryError: none left"]
    assert caplog.text.count("none left") == 1  # once, not for each tensor


def test_no_grad_eval_and_accumulation() -> None:
    model = made(resnet_like)
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)
    for m in (model, plain):
        m.zero_grad()
        for seed in range(3):
            with torch.no_grad():
                m.eval()(images(2))
            torch.manual_seed(seed)
            m.train()(images(2)).square().mean().backward()
    assert all(
        same(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)
    )


def test_several_graphs_alive() -> None:
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)

    def both(m: nn.Module) -> list[Tensor]:
        m.zero_grad()
        torch.manual_seed(0)
        losses = [m(images(n)).square().sum() for n in (2, 3, 4)]
        for i in (1, 2, 0):
            losses[i].backward()
        return [p.grad for p in m.parameters()]

    assert all(map(same, both(model), both(plain)))


def test_gradients_inside_of_forward() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(F.relu(m.a(x)).square().sum(), x, create_graph=True)
        return m.b(F.relu(g))

    with exact(Sequence(call, a=nn.Linear(8, 8), b=nn.Linear(8, 8)), torch.rand(4, 8)):
        pass


def test_threads() -> None:
    model = made(resnet_like).eval()
    plain = [
        torch.autograd.grad(
            model(images(n)).square().sum(), list(model.parameters()), allow_unused=True
        )
        for n in (1, 2, 3, 4)
    ]
    tt.wrap(model, least=0)
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(3):
            got = torch.autograd.grad(
                model(images(n)).square().sum(), list(model.parameters()), allow_unused=True
            )
            if not all(map(same, got, plain[n - 1])):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_backward_in_another_thread() -> None:
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)
    torch.manual_seed(0)
    loss = model(images()).square().sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    torch.manual_seed(0)
    plain(images()).square().sum().backward()
    assert all(
        same(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)
    )


def test_grad_scaler_and_hooks_of_others() -> None:
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)
    results = []
    for m in (model, plain):
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        torch.manual_seed(0)
        scaler.scale(m(images()).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        results.append(list(m.parameters()))
    assert all(map(same, *results))
    with torch.autograd.graph.save_on_cpu():  # the outer hooks have taken charge
        assert all(map(same, gradients(model, images()), gradients(plain, images())))


def test_functional_transforms() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with tt.activations(model, least=0):
        f = lambda p, x: torch.func.functional_call(model, p, x).sum()  # noqa: E731
        g = torch.func.grad(f)(dict(model.named_parameters()), torch.rand(3, 4))
    assert g["0.weight"].shape == (4, 4)


def test_copies_are_plain_models() -> None:
    model = made(alexnet_like)
    tt.wrap(model, least=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(map(same, gradients(model, images()), gradients(other, images())))
        tt.wrap(other).remove()


def test_order_of_backward_does_not_matter() -> None:
    model = made(alexnet_like)
    with tt.activations(model, least=0):
        torch.manual_seed(0)
        out = model(images())
    expected = torch.autograd.grad(out.sum(), list(model.parameters()), retain_graph=True)
    for p, g in zip(model.parameters(), expected, strict=True):
        assert same(torch.autograd.grad(out.sum(), p, retain_graph=True)[0], g)


def test_a_deleted_model_is_freed_at_once() -> None:
    """Its memory must not wait for the garbage collector."""
    model = made(resnet_like)
    act = tt.wrap(model, least=0)
    model(images()).sum().backward()
    parameter = weakref.ref(model[0].weight)
    gc.collect()
    gc.disable()
    try:
        del model
        assert parameter() is None
    finally:
        gc.enable()
    with pytest.raises(ValueError, match="the model of this handle is gone"):
        act.plan(images())
    act.remove()


class Interrupted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyboardInterrupt


def test_an_interrupted_pass_leaves_no_hooks_once_it_is_removed() -> None:
    model = Interrupted()
    act = tt.wrap(model)
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(3))
    act.remove()
    torch.func.grad(lambda t: (t**2).sum())(torch.ones(3))  # refuses where hooks are installed


def test_an_interrupted_pass_of_another_model_is_in_nobodys_way() -> None:
    other = Interrupted()
    kept = tt.wrap(other)
    with pytest.raises(KeyboardInterrupt):
        other(torch.ones(3))
    model, x = made(alexnet_like), images(32)
    act = tt.wrap(model)
    assert act.plan(x).ratio > 1.5
    act.remove()
    kept.remove()


def test_removing_inside_of_a_forward_pass_ends_it() -> None:
    class Removes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            act.remove()
            return (x * x).sum()

    model = Removes()
    act = tt.wrap(model)
    x = torch.rand(300, 300, requires_grad=True)
    model(x).backward()
    assert torch.equal(x.grad, 2 * x)
    torch.func.grad(lambda t: (t**2).sum())(torch.ones(3))


def test_threads_may_change_between_forward_and_backward() -> None:
    class Mish(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Parameter(torch.randn(100_003)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return F.mish(x * self.a) * self.b

    def gradient(model: Mish, x: Tensor) -> Tensor:
        model.zero_grad()
        torch.set_num_threads(1)
        loss = model(x).sum()
        torch.set_num_threads(2)
        loss.backward()
        assert torch.get_num_threads() == 2
        return model.b.grad.clone()

    threads = torch.get_num_threads()
    try:
        torch.manual_seed(0)
        model, x = Mish(), torch.randn(100_003)
        plain = gradient(model, x)
        tt.wrap(model)
        assert torch.equal(gradient(model, x), plain)
    finally:
        torch.set_num_threads(threads)


def _normalized() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
    )


def _step(model: nn.Module, x: Tensor) -> None:
    model(x).square().mean().backward()


TRIALS = {
    "plan": lambda act, x: act.plan(x),
    "peak": lambda act, x: act.peak(x),
    "check": lambda act, x: tt.check(act.model, x),
    "fit": lambda act, x: act.fit(x),
    "probe": lambda act, x: act.probe(lambda b: _step(act.model, b), [x], probes=2),
    "replan": lambda act, x: act.replan(lambda b: _step(act.model, b), [x], probes=2),
}


@pytest.mark.parametrize("name", TRIALS)
@pytest.mark.parametrize("options", [{"budget": "64MiB"}, {"noise": 0}])
def test_graphs_that_wait_outlive_trial_passes(name: str, options: dict[str, object]) -> None:
    """Trials write running statistics, which batch normalization saves, and put them back."""
    model = made(_normalized)
    plain, x = copy.deepcopy(model), torch.randn(4, 3, 16, 16)
    act = tt.wrap(model, least=1, **options)
    values = [m(x).square().mean() for m in (model, plain)]
    TRIALS[name](act, x)
    for value in values:
        value.backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    for a, b in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(a, b) and a._version == b._version


@pytest.mark.parametrize("options", [{"budget": "64MiB"}, {"noise": 0}])
def test_graphs_that_wait_outlive_a_fit_of_the_next_pass(options: dict[str, object]) -> None:
    """For larger inputs, and of another model with the same backbone."""
    backbone = made(_normalized)
    plain = copy.deepcopy(backbone)
    small, large = torch.randn(4, 3, 16, 16), torch.randn(8, 3, 16, 16)
    for body, is_wrapped in ((plain, False), (backbone, True)):
        first, second = nn.Sequential(body), nn.Sequential(body, nn.Tanh())
        if is_wrapped:
            for model in (first, second):
                tt.wrap(model, least=1, **options)
        outputs = [first(small), first(large), second(small)]
        sum(y.square().mean() for y in outputs).backward()
    for a, b in zip(backbone.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_a_buffer_that_is_changed_before_backward_is_still_an_error() -> None:
    model = made(_normalized)
    act, x = tt.wrap(model, least=1), torch.randn(4, 3, 16, 16)
    value = model(x).square().mean()
    model[1].running_mean.add_(1)
    act.plan(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()
