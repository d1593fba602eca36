"""Tensors that wait in the CPU's memory. On the CPU that is a copy; what GPUs add is in test_gpu_lossy.py."""

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import NETWORKS, gradients, images, made, resnet_like, same  # noqa: E402
from test_lossy import is_steady  # noqa: E402
from tuckfold._planner import plan_storage  # noqa: E402
from tuckfold.torch._activations import _offload as offload  # noqa: E402
from tuckfold.torch._activations._budget import _solved, problem_of, speed_of_text, watched  # noqa: E402


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each storage that was put away."""
    seen: list[int] = []
    init = offload.Offloaded.__init__

    def counted(self, x) -> None:
        seen.append(x.nbytes)
        init(self, x)

    monkeypatch.setattr(offload.Offloaded, "__init__", counted)
    return seen


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_keep_every_bit(name: str, copies: list[int]) -> None:
    make, data = NETWORKS[name]
    model, x = made(make), data()
    twin = copy.deepcopy(model)
    act = tt.wrap(model, offload=True, least=1024)
    hows = {row.how for row in act.plan(x).rows}
    assert "cpu" in hows and not any("(" in how for how in hows)
    expected = gradients(twin, x)
    for step in range(5):
        copies.clear()
        assert all(map(same, gradients(model, x), expected)), step
        assert len(copies) > 1
    assert is_steady(act) or name == "unet"  # whose passes are watched in full
    assert act.problems == [] and act.answers.count == 0


def test_what_is_read_twice_is_still_there() -> None:
    model = made(resnet_like)
    act = tt.wrap(model, offload=True, least=1024)
    for _ in range(4):
        out = model(images()).sum()
        grads = [
            torch.autograd.grad(out, list(model.parameters()), retain_graph=again)
            for again in (True, False)
        ]
        assert all(map(same, *grads))
    assert act.problems == []


def test_rules_and_plans_name_it(tmp_path: Path, copies: list[int]) -> None:
    model = made(resnet_like)
    twin = copy.deepcopy(model)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nop = "convolution"\nstore = "cpu"\n')
    act = tt.wrap(model, rules=rules, least=1024)
    rows = act.plan(images()).rows
    assert {row.how for row in rows if row.op == "convolution"} >= {"cpu"}
    assert {row.how for row in rows if row.op == "native_batch_norm"} == {"keep"}
    act.save(tmp_path / "plan.toml")
    assert 'how = "cpu"' in (tmp_path / "plan.toml").read_text()
    act.remove()
    copies.clear()
    act = tt.wrap(model, plan=tmp_path / "plan.toml", least=1024)
    again = act.plan(images()).rows
    assert [row.how for row in again] == [row.how for row in rows]
    assert copies and all(map(same, gradients(model, images()), gradients(twin, images())))


def test_the_slower_the_link_the_less_goes_over_it() -> None:
    model, x = made(resnet_like).train(), images(64)
    act = tt.wrap(model, budget="1GiB", offload="1GB/s", least=4096)
    act.goal.decide(act, {}, is_open=True)
    act.goal.is_fitting = True
    ledger, _ = watched(act, (x,), {}, lambda out: out.square().mean())
    menu = ("block_quant(bits=4, group=256, round=stochastic)",)
    problem, _ = problem_of(ledger, menu, 1.0, {})
    exact = [
        item | {"choices": [c for c in item["choices"] if c["kind"] != "codec"]}
        for item in problem["items"]
    ]
    # Too little for what stays exact, enough for codecs.
    least = [
        plan_storage(problem | {"items": i, "budget": 0})["peak"] for i in (exact, problem["items"])
    ]
    assert least[1] < 0.97 * least[0]
    sizes = {}
    for link in (1e15, 1e3, None):
        problem, names = problem_of(ledger, menu, 1.0, {}, link)
        plan = _solved(problem | {"budget": sum(least) // 2})
        assert plan["fits"]
        chosen = [names[i][k] for i, k in enumerate(plan["choice"])]
        sizes[link] = sum(
            item.nbytes for item, how in zip(ledger.items, chosen, strict=True) if how == "cpu"
        )
        codecs = {how for how in chosen if "(" in how}
        assert bool(codecs) == (
            link != 1e15
        )  # where copies take no time, nothing needs to be lossy
    assert sizes[1e15] > 0 and sizes[1e3] == sizes[None] == 0


def test_what_no_codec_may_store_can_go_too() -> None:
    """The exponential's result is exact or nowhere."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return self.b(self.a(x).exp().log1p())

    model = made(Net)
    act = tt.wrap(model, noise=0.0, offload=True, least=1024)
    fit = act.fit(torch.rand(512, 64))
    found = {name: how for name, how, *_ in fit.items}
    assert found["exp.result"] in ("cpu", "keep") and fit.noise == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offload": "fast"}, r"offload must be True, False or the speed of the link, such as 25GB/s, got 'fast'"),
        ({"offload": "25GB"}, "offload must be"),
        ({"offload": True, "codec": "block_quant(bits=4)"}, "codec or offload"),
    ],
)  # fmt: skip
def test_what_is_no_link_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tt.wrap(nn.Linear(4, 4), **options)


def test_speeds_as_text() -> None:
    assert [speed_of_text(t) for t in ("25GB/s", "1 MiB/s", True, False)] == [25e9, 2**20, 0, None]
