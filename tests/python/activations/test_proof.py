"""A recipe is used only if it was seen to make the same bits, for hostile values, too."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import Sequence, exact, images, made, resnet_like, stored  # noqa: E402
from tuckfold.torch._activations import _proof, _recompute, _store  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_proven():
    _proof.forget()
    yield
    _proof.forget()


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))


def exactly(v: list[Tensor], eps: float) -> Tensor:
    """As forward does."""
    return torch.ops.aten.native_batch_norm(v[0], v[1], v[2], None, None, True, 0.0, eps)[0]


def nearly(v: list[Tensor], eps: float) -> Tensor:
    """The same while weights are 1 and biases 0, and else rounded otherwise."""
    plain = exactly([v[0], torch.ones_like(v[1]), torch.zeros_like(v[2])], eps)
    return plain * v[1][:, None, None] + v[2][:, None, None]


@pytest.mark.parametrize(("fast", "used"), [(exactly, True), (nearly, False)])
def test_the_fast_way_must_hold_for_other_weights(monkeypatch, fast, used: bool) -> None:
    """Layers begin with weight 1 and bias 0; what is equal then need not be equal later."""
    builder_recipe = _recompute.Builder.recipe
    monkeypatch.setenv("TUCKFOLD_HOOKS", "python")  # C++ has the operator itself, on a GPU alone
    monkeypatch.setattr(_recompute, "_normalized", fast)
    tried: list[bool] = []

    def only_fast(self, node, _):
        recipe = builder_recipe(self, node, True)
        tried.append(recipe is not None)
        return recipe

    monkeypatch.setattr(_recompute.Builder, "recipe", only_fast)
    model = made(batch_norm)
    x = images(2, 9)
    with exact(model, x) as act:
        assert (stored(act.plan(x))["relu", "result"] == {"recompute"}) == used
    assert any(tried)
    nn.init.normal_(model[1].weight)
    nn.init.normal_(model[1].bias)
    with exact(model, x):
        pass


def test_dropout_is_rehearsed_without_the_users_random_numbers(monkeypatch) -> None:
    rehearsed: list[int] = []
    hostile = _recompute._hostile
    monkeypatch.setattr(_recompute, "_hostile", lambda *a: rehearsed.append(1) or hostile(*a))

    def call(m: nn.Module, x: Tensor) -> Tensor:
        return m.b(torch.ops.aten.native_dropout(F.gelu(m.a(x)), 0.3, True)[0])

    model = Sequence(call, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    with exact(model, torch.rand(4, 8)) as act:
        assert "recompute" in stored(act.plan(torch.rand(4, 8)))["addmm", "mat1"]
    assert rehearsed


def test_a_recipe_with_other_bits_is_refuted(monkeypatch) -> None:
    wrong = lambda self, node, left: _recompute.Recipe(  # noqa: E731
        "wrong", lambda v, _: F.gelu(v[0]) * 1.0000001, [self._saved(node, "_saved_self")]
    )
    monkeypatch.setitem(_recompute.BUILDERS, "GeluBackward0", wrong)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    with exact(model, torch.rand(4, 8)) as act:
        assert {row.how for row in act.plan(torch.rand(4, 8)).rows} == {"keep"}
    assert [same for text, same in _proof.answers() if text.startswith("wrong")] == [False]


def test_equal_values_do_not_hide_another_order_of_axes() -> None:
    """After a layer of zeros every order of axes looks the same."""

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.gelu(m.a(x)).to(torch.float64, memory_format=torch.channels_last)
        return m.b(y)

    model = Sequence(call, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 3).double())
    for p in model.a.parameters():
        nn.init.zeros_(p)
    x = images(2, 9)
    with exact(model, x) as act:
        act.plan(x)
    nn.init.normal_(model.a.weight)
    with exact(model, x):
        pass


def test_storages_are_freed_as_backward_goes() -> None:
    with tt.activations(made(resnet_like), least=0) as act:
        plan = act.plan(images())
    first = next(i for i, event in enumerate(plan.events) if event[1] == "read")
    held = [stored for _, what, stored, _ in plan.events[first:] if what == "free"]
    assert held == sorted(held, reverse=True)
    assert held[-1] == 0
    assert held[len(held) // 2] < 0.75 * plan.after


def test_long_chains_are_cut(monkeypatch) -> None:
    """A residual sum is made of the one before; not all the way back."""
    counts: list[int] = []
    recomputed = _store.recomputed

    def look(*arguments):
        form = recomputed(*arguments)
        if form is not None:
            counts.append(form.recipe.count)
        return form

    monkeypatch.setattr(_store, "recomputed", look)
    with tt.activations(made(resnet_like), least=0) as act:
        act.plan(images())
    assert 2 < max(counts) <= _recompute.MOST_OPERATORS
