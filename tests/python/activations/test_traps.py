"""What goes wrong with hooks for saved tensors elsewhere, a test for each."""

import copy
import gc
import pickle
import re
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import (  # noqa: E402
    NETWORKS,
    Block,
    Sequence,
    alexnet_like,
    exact,
    gradients,
    images,
    made,
    resnet_like,
    same,
    stored,
    tokens,
)  # fmt: skip


def hows(act: object, *x: Tensor) -> set[str]:
    return {row.how for row in act.plan(*x).rows}


def test_parameters_are_never_packed() -> None:
    """Linear saves weight.t(), a view; autocast saves a copy in another dtype."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    model[0].weight.data.clamp_(0, 1).round_()  # looks like a mask
    for frozen in (False, True):
        model[0].requires_grad_(not frozen)
        for dtype in (torch.float32, torch.bfloat16):
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=dtype != torch.float32),
                tt.activations(model, least=0) as act,
            ):
                plan = act.plan(torch.rand(8, 64))
                assert not [row for row in plan.rows if row.shape == (64, 64) and row.how != "keep"]


def test_a_tensor_that_is_alive_elsewhere_is_kept() -> None:
    kept: list[Tensor] = []

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.conv(x))
        kept.append(y)
        return F.max_pool2d(y, 2)

    model = Sequence(call, conv=nn.Conv2d(3, 4, 3))
    with exact(model, images()) as act:
        assert stored(act.plan(images()))["relu", "result"] == {"keep"}
    model.call = lambda m, x: F.max_pool2d(F.relu(m.conv(x)), 2)
    with exact(model, images()) as act:
        assert stored(act.plan(images()))["relu", "result"] == {"1 bit"}


def in_place(m: nn.Module, x: Tensor) -> Tensor:
    y = F.relu(m.conv(x))
    z = m.last(y)
    y.add_(1)
    return z


def test_in_place_changes_raise_the_error_of_autograd() -> None:
    maker = re.compile(r"which is output 0 of \w+")
    model = Sequence(in_place, conv=nn.Conv2d(3, 4, 3), last=nn.Conv2d(4, 2, 1))
    with pytest.raises(RuntimeError) as plain:
        model(images()).sum().backward()
    for least in (0, 1 << 30):
        with tt.activations(model, least=least), pytest.raises(RuntimeError) as wrapped:
            model(images()).sum().backward()
        # Which node made the tensor later is not known to us.
        assert maker.sub("", str(wrapped.value)) == maker.sub("", str(plain.value))


def test_in_place_changes_after_forward_are_seen() -> None:
    model = Sequence(lambda m, x: F.relu(m.conv(x)), conv=nn.Conv2d(3, 4, 3))
    with tt.activations(model, least=0):
        y = model(images())
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_changes_out_of_autograds_sight_are_not_recomputed() -> None:
    """The graph says gelu, but the values are others."""

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.gelu(m.a(x))
        if m.change:
            with torch.no_grad():
                y.mul_(2)
        return m.b(y)

    model = Sequence(call, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    x = torch.rand(4, 8)
    for change, how in ((False, "recompute"), (True, "keep"), (False, "recompute")):
        model.change = change
        with exact(model, x) as act:
            assert how in stored(act.plan(x))["addmm", "mat1"]
            assert change == ("recompute" not in hows(act, x))


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


def test_operators_and_roles_are_known() -> None:
    with tt.activations(made(alexnet_like), least=0) as act:
        rows = act.plan(images()).rows
    assert {(row.module, row.op, row.role) for row in rows} >= {
        ("1", "relu", "result"),
        ("2", "max_pool2d_with_indices", "self"),
        ("2", "max_pool2d_with_indices", "result1"),
        ("3", "convolution", "input"),
        ("8", "addmm", "mat1"),
    }
    assert all(row.op for row in rows)


def test_views_share_one_storage() -> None:
    """q, k and v look into one tensor: neither stored three times nor taken for each other."""
    with exact(nn.Sequential(Block(16), Block(16)), torch.rand(2, 5, 16)) as act:
        plan = act.plan(torch.rand(2, 5, 16))
        attention = [
            row
            for row in plan.rows
            if row.op.startswith("scaled_dot") and row.role in ("query", "key", "value")
        ]
        assert len(attention) == 6
        assert len({row.storage for row in attention}) == 2
        assert sum(row.before for row in attention) == 2 * 4 * 2 * 5 * 3 * 16

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.a(x))
        return (y.t() @ y)[:, :3] * y.chunk(2)[0].sum()

    with exact(Sequence(call, a=nn.Linear(8, 8)), torch.rand(8, 8)):
        pass


def test_an_address_that_is_used_again_is_another_tensor() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        for conv in m.convs:
            x = F.relu(conv(x))
            F.max_pool2d(x, 2)  # saved, and freed at once
            x = F.avg_pool2d(x, 2, 1)
        return x

    model = Sequence(call, convs=nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(8)))
    with exact(model, images()):
        pass


def test_expanded_and_strided_tensors() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.a(x))
        wide = F.leaky_relu(y[:, :, None].expand(-1, -1, 6)) * y[:, None, :6].expand(-1, 8, -1)
        return F.relu(wide[:, ::2, 1:].transpose(0, 1)).sum() + F.relu6(y.t()[::3]).sum()

    with exact(Sequence(call, a=nn.Linear(4, 8)), torch.randn(5, 4)):
        pass


def test_strides_come_back() -> None:
    seen: list[tuple[int, ...]] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.saved_tensors[0].stride())
            return g, None

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.gelu(m.a(x))
        return Look.apply(m.b(y), y).sum()

    model = Sequence(call, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 1)).to(
        memory_format=torch.channels_last
    )
    x = images().to(memory_format=torch.channels_last)
    with exact(model, x) as act:
        assert "recompute" in hows(act, x)
    assert set(seen) == {F.gelu(model.a(x)).stride()}


def test_random_state_and_small_tensors_are_kept() -> None:
    x = torch.rand(4, 6, 32)
    with tt.activations(nn.Sequential(Block(32))) as act:
        assert hows(act, x) == {"keep"}  # all below 64 KiB
    with exact(nn.Sequential(Block(32)), x) as act:
        kept = stored(act.plan(x))
        assert (
            kept["native_layer_norm", "result1"] == kept["native_layer_norm", "result2"] == {"keep"}
        )


def test_softmax_is_kept() -> None:
    with exact(
        nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 8)), torch.rand(4, 8)
    ) as act:
        assert stored(act.plan(torch.rand(4, 8)))["softmax", "result"] == {"keep"}


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


class Tagged(torch.Tensor):
    """A subclass that stays one through operators."""


def test_subclasses_pass_untouched() -> None:
    classes: list[type] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            classes.append(type(ctx.saved_tensors[0]))
            return g, None

    tagged = torch.rand(4, 8).as_subclass(Tagged)
    model = Sequence(lambda m, x: Look.apply(m.a(x), tagged), a=nn.Linear(8, 8))
    model(torch.rand(4, 8)).sum().backward()
    with tt.activations(model, least=0):
        model(torch.rand(4, 8)).sum().backward()
    assert classes[0] is classes[1]
    with exact(
        Sequence(
            lambda m, x: F.relu(m.a(x.as_subclass(Tagged))).as_subclass(Tensor), a=nn.Linear(8, 8)
        ),
        torch.rand(4, 8),
    ):
        pass


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


def test_what_is_unpacked_is_freed() -> None:
    """Backward holds no more than one or two unpacked tensors."""
    with tt.activations(
        nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(64, 64), nn.GELU()))), least=0
    ) as act:
        plan = act.plan(torch.rand(64, 64))
    one = 64 * 64 * 4
    assert plan.after <= 13 * one
    assert plan.peak <= plan.after + 3 * one


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


def test_tokens_and_embeddings() -> None:
    make, _ = NETWORKS["gpt"]
    with exact(made(make), tokens()) as act:
        found = stored(act.plan(tokens()))
        assert found["gelu", "self"] == {"keep"}
        assert "recompute" in found["addmm", "mat1"]
