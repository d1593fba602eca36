"""A plan that was made for passes that are not compiled, under torch.compile: a budget's choices in compiled graphs."""

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from compiling import compiled, fresh  # noqa: E402, F401
from nets import Block, gradients, made  # noqa: E402
from test_lossy import error  # noqa: E402

COARSE, FINE = "block_quant(bits=2, group=64)", "block_quant(bits=8, group=64)"


def test_codecs_go_where_the_plan_has_them(tmp_path: Path) -> None:
    """Values that a graph saves are named by what made them, and eager tensors by what reads them."""
    model = made(
        lambda: nn.Sequential(
            nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 64)
        )
    )
    x = torch.randn(256, 64)
    rules = tmp_path / "rules.toml"
    rules.write_text(
        f'[[rule]]\nop = "gelu"\nstore = "{COARSE}"\n[[rule]]\nop = "tanh"\nstore = "{FINE}"\n'
    )
    act = tt.wrap(model, rules=rules, least=4096)
    eager = {(r.module, r.op, r.role): r.how for r in act.plan(x).rows}
    assert eager["1", "gelu", "self"] == COARSE and eager["3", "tanh", "result"] == FINE
    act.save(tmp_path / "plan.toml")
    act.remove()
    expected = gradients(copy.deepcopy(model), x)
    act = tt.wrap(model, plan=tmp_path / "plan.toml", least=4096)
    found = gradients(compiled(model), x)
    hows = {(r.module, r.op): r.how for r in act.plan().rows}
    assert hows["0", "addmm"] == COARSE  # GELU's input
    assert hows["3", "tanh"] == FINE
    assert hows.get(("1", "gelu"), "recompute") == "recompute"
    assert act.problems == [] and 0 < error(found, expected) < 0.5


def test_a_budgets_choices_reach_compiled_graphs(tmp_path: Path) -> None:
    model = made(lambda: nn.Sequential(*(Block(64, p=0.0) for _ in range(2))))
    x = torch.randn(8, 64, 64)
    act = tt.wrap(model, noise="1%", least=4096)
    fit = act.fit(x)
    chosen = {how for _, how, *_ in fit.items if "(" in how}
    assert chosen
    act.plan(x)
    act.save(tmp_path / "plan.toml")
    act.remove()
    expected = gradients(copy.deepcopy(model), x)
    act = tt.wrap(model, plan=tmp_path / "plan.toml", least=4096)
    found = gradients(compiled(model), x)
    plan = act.plan()
    packed = {row.how for row in plan.rows if "(" in row.how}
    assert packed and packed <= chosen
    assert plan.ratio > 1.5 and act.problems == []
    assert 0 < error(found, expected) < 0.3
