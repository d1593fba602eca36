"""A codec for what is saved: what is packed and what is not, gates, scores, seeds, and bad values."""

import copy
import gc
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold  # noqa: E402
import tuckfold.torch as tt  # noqa: E402
from nets import (  # noqa: E402
    NETWORKS,
    Block,
    Residual,
    Sequence,
    gradients,
    images,
    made,
    resnet_like,
    same,
    stored,
    tokens,
)
from tuckfold.torch._activations import _finite, _lossy  # noqa: E402
from tuckfold.torch._activations._native import library  # noqa: E402

FOUR = "block_quant(bits=4, group=64, round=stochastic)"
EIGHT = "block_quant(bits=8, group=64)"
SPARSE = "nonzero_quant(bits=3, group=64)"
needs_sparse = pytest.mark.skipif(
    all(codec.name != "nonzero_quant" for codec in tuckfold.list_codecs()),
    reason="this build has no nonzero_quant",
)


def error(got, expected) -> float:
    """Of gradients, relative to their norm."""
    pairs = [(a.double(), b.double()) for a, b in zip(got, expected, strict=True) if b is not None]
    difference = sum((a - b).square().sum() for a, b in pairs)
    return float((difference / sum(b.square().sum() for _, b in pairs)).sqrt())


def wrapped(model, codec: str = EIGHT, **options):
    return tt.wrap(model, **({"least": 1024, "codec": codec} | options))


def is_steady(act) -> bool:
    return any(s.program is not None and not s.failures for s in act._learning._states.values())


def codecs(act, *x) -> set[str]:
    return {row.how for row in act.plan(*x).rows if "(" in row.how}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_near_and_passes_that_repeat_give_the_same(name: str) -> None:
    make, data = NETWORKS[name]
    model, x = made(make), data()
    expected = gradients(copy.deepcopy(model), x)
    act = wrapped(model)
    passes = [gradients(model, x) for _ in range(5)]
    assert 0 < error(passes[0], expected) < 0.01
    for other in passes[1:]:
        assert all(map(same, passes[0], other))
    assert is_steady(act) or name == "unet"  # whose work is in one function
    act.remove()
    act = wrapped(model, FOUR)
    found = [error(gradients(model, x), expected) for _ in range(5)]
    assert error(passes[0], expected) < min(found) < max(found) < 0.16
    assert act.problems == [] and codecs(act, x) >= {FOUR}
    assert act.plan(x).ratio > 7


@pytest.mark.parametrize("inplace", [True, False])
def test_one_tensor_of_a_normalization_and_its_activation_is_stored(inplace: bool) -> None:
    model = made(lambda: resnet_like(inplace))
    act = wrapped(model)
    rows = act.plan(images()).rows
    pair = [r.how for r in rows if r.module in ("4.bn1", "4.conv2") and r.role == "input"]
    assert pair == [EIGHT, "recompute"]
    assert {r.how for r in rows if r.op == "relu"} == {"1 bit"}


@pytest.mark.parametrize(
    "codec",
    [
        FOUR,
        "dct_quant(rate=2)",
        "bounded(abs=0.3)",
        pytest.param("nonzero_quant(bits=1, group=64)", marks=needs_sparse),
    ],
)
@pytest.mark.parametrize("norm", [True, False])
def test_a_gate_keeps_its_zeros(codec: str, norm: bool) -> None:
    """The gradient of what a ReLU lets pass has zeros where it had them, and nowhere else."""

    def call(m, x, extra):
        y = m.first(x)
        y = (m.norm(y) if norm else y) + extra
        return m.last(F.relu(y))

    model = made(
        lambda: Sequence(
            call,
            first=nn.Conv2d(3, 8, 3, padding=1),
            norm=nn.BatchNorm2d(8),
            last=nn.Conv2d(8, 3, 3),
        )
    )
    plain = copy.deepcopy(model)
    act = wrapped(model, codec)
    x = images()
    for _ in range(4):
        zeros = []
        for net in (model, plain):
            extra = torch.zeros(4, 8, 32, 32, requires_grad=True)
            net(x, extra).square().sum().backward()
            zeros.append(extra.grad == 0)
        assert torch.equal(*zeros)
        assert 0.2 < zeros[0].float().mean() < 0.8
    assert act.problems == [] and (norm or codec in codecs(act, x, extra))


@needs_sparse
def test_zeros_are_stored_apart_where_there_are_some() -> None:
    """And a ReLU needs no other mask; dense tensors get groups of all values."""
    model = made(NETWORKS["alexnet"][0])
    act = wrapped(model, SPARSE)
    rows = {(r.module, r.op, r.role): r.how for r in act.plan(images()).rows}
    assert rows["3", "convolution", "input"] == SPARSE
    model = made(resnet_like)
    act = wrapped(model, SPARSE)
    found = stored(act.plan(images()))
    assert found["native_batch_norm", "input"] == {"block_quant(bits=3, group=64, round=nearest)"}
    model = made(
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    )
    twin = copy.deepcopy(model)
    act = wrapped(model, SPARSE)
    rows = {(r.module, r.role): r.how for r in act.plan(images()).rows}
    assert rows["1", "result"] == rows["2", "input"] == SPARSE
    expected = gradients(twin, images())
    found = [gradients(model, images()) for _ in range(5)]
    for got in found:
        assert all(map(same, got, found[0])) and 0 < error(got, expected) < 0.1
        assert same(got[0] == 0, expected[0] == 0)
    assert is_steady(act) and act.problems == []


def test_scores_of_attention_get_eight_bits() -> None:
    """Its backward takes exponentials of products of q and k; with two bits they explode."""
    model = made(lambda: Block(64, p=0.0))
    with torch.no_grad():
        model.qkv.weight *= 6
    x = torch.randn(2, 64, 64)
    expected = gradients(copy.deepcopy(model), x)
    act = wrapped(model, "block_quant(bits=4, group=64, round=stochastic)")
    assert error(gradients(model, x), expected) < 0.3
    found = stored(act.plan(x))
    attention = {role: hows for (op, role), hows in found.items() if op.startswith("scaled_dot")}
    assert all("bits=8" in how for role in ("query", "key") for how in attention[role])
    assert attention["logsumexp"] == {"keep"} and attention["output"] == {FOUR}


def test_what_scores_are_recomputed_from_gets_eight_bits_too() -> None:
    """Where q and k are normalized, they are made again from what their normalizations read."""

    def call(m, x):
        q, k, v = m.norm1(m.q(x)), m.norm2(m.k(x)), m.v(x)
        return F.scaled_dot_product_attention(*(y.unsqueeze(1) for y in (q, k, v)))

    model = made(
        lambda: Sequence(
            call,
            q=nn.Linear(64, 64),
            k=nn.Linear(64, 64),
            v=nn.Linear(64, 64),
            norm1=nn.LayerNorm(64),
            norm2=nn.LayerNorm(64),
        )
    )
    x = torch.randn(4, 64, 64)
    act = wrapped(model, FOUR)
    rows = {(r.module, r.role): r.how for r in act.plan(x).rows}
    assert rows["", "query"] == rows["", "key"] == "recompute" and rows["", "value"] == FOUR
    assert "bits=8" in rows["norm1", "input"] and "bits=8" in rows["norm2", "input"]
    assert [error(gradients(model, x), gradients(model, x)) for _ in range(3)] != [0, 0, 0]
    assert is_steady(act)


def test_operators_that_are_not_in_the_table_get_exact_values() -> None:
    """Also where their input is recomputed: nothing that it is made of is lossy."""

    def call(m, x):
        y = m.norm(m.a(x))
        return m.b(y) * 1.5 + (y * y + 1).log() + y.exp()

    model = made(
        lambda: Sequence(call, a=nn.Linear(64, 64), b=nn.Linear(64, 64), norm=nn.LayerNorm(64))
    )
    x = torch.randn(64, 64)
    act = wrapped(model)
    found = stored(act.plan(x))
    assert found["exp", "result"] == found["log", "self"] == {"keep"}
    assert found["mul", "self"] <= {"recompute", EIGHT}
    model = made(lambda: Sequence(lambda m, x: m.norm(m.a(x)).sin(), a=model.a, norm=model.norm))
    plain = copy.deepcopy(model)
    act = wrapped(model)
    for _ in range(4):
        assert all(map(same, gradients(model, x), gradients(plain, x)))
    assert stored(act.plan(x))["native_layer_norm", "input"] == {"keep"}


def test_statistics_whole_numbers_and_factors_of_many_stay() -> None:
    model = made(NETWORKS["resnet"][0])
    act = wrapped(model, FOUR, least=0)
    rows = act.plan(images()).rows
    assert all(row.how == "keep" for row in rows if row.shape == (8,))
    gate = made(
        lambda: Sequence(
            lambda m, x: m.b(m.a(x) * m.a(x).mean((2, 3), keepdim=True).sigmoid()),
            a=nn.Conv2d(3, 64, 1),
            b=nn.Conv2d(64, 3, 1),
        )
    )
    act = wrapped(gate, FOUR, least=0)
    found = [(r.shape[-1], r.how) for r in act.plan(images()).rows if r.op == "mul"]
    assert sorted(found) == [(1, "keep"), (32, FOUR)]
    gpt = made(NETWORKS["gpt"][0])
    act = wrapped(gpt, FOUR, least=0)
    rows = act.plan(tokens()).rows
    assert all(row.how == "keep" for row in rows if row.shape[-1:] == (1,))
    assert any(row.shape[-1:] == (1,) for row in rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_dtypes_and_memory_formats(dtype, memory) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(5, 9, 3), nn.SiLU(), nn.Conv2d(9, 5, 3), nn.Tanh())
    model = model.to(dtype).to(memory_format=memory)
    plain = copy.deepcopy(model)
    act = wrapped(model, least=64)
    for n in (3, 3, 3, 3, 1):  # the last batch is short
        x = torch.randn(n, 5, 13, 11).to(dtype).to(memory_format=memory)
        assert error(gradients(model, x), gradients(plain, x)) < 0.02
    assert act.problems == [] and is_steady(act)
    assert codecs(act, x) == {EIGHT}


def test_views_of_a_part_and_tensors_that_somebody_holds_are_kept() -> None:
    held = []

    def call(m, x):
        y = m.a(x)
        held.append(y)
        return m.b(y) + m.b(m.a(x)[:, :32].repeat(1, 2)[:, ::2].contiguous().repeat(1, 2))

    model = made(lambda: Sequence(call, a=nn.Linear(64, 64), b=nn.Linear(64, 8)))
    act = wrapped(model, least=0)
    rows = act.plan(torch.randn(128, 64)).rows
    assert [r.how for r in rows if r.module == "b"] == ["keep", EIGHT]


def test_seeds_differ_by_step_follow_torch_and_disturb_nothing() -> None:
    x = images()

    def run(seed: int) -> list:
        model = made(NETWORKS["resnet"][0])
        wrapped(model, FOUR)
        torch.manual_seed(seed)
        found = []
        for _ in range(5):
            model.zero_grad()
            model(x).square().sum().backward()
            found.append([p.grad.clone() for p in model.parameters()])
        return [*found, [torch.rand(8)]]

    first, again, other = run(1), run(1), run(2)
    assert all(map(same, sum(first, []), sum(again, [])))
    for a, b in zip(first[:4], first[1:5], strict=True):
        assert not all(map(same, a, b))
    assert not all(map(same, first[4], other[4]))
    torch.manual_seed(1)
    assert same(first[-1][0], torch.rand(8))  # as if nothing had been drawn


def test_each_tensor_has_its_own_seed() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Tanh()))
    wrapped(model, FOUR)
    x = torch.randn(64, 8)
    y = model[0](x).detach()
    seen = []
    for module in (model[1], model[2]):
        module.register_full_backward_hook(lambda m, g, out: seen.append(g[0] / out[0]))
    model(x).sum().backward()
    slopes = [1 - torch.tanh(torch.tanh(y)).square(), 1 - torch.tanh(y).square()]
    noise = [a - b for a, b in zip(seen, slopes, strict=True)]
    together = torch.stack([n.flatten() for n in noise])
    assert abs(float(torch.corrcoef(together)[0, 1])) < 0.05 and float(noise[0].abs().max()) > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_tensors_that_are_not_finite_are_kept_and_counted(bad: float, caplog) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64), nn.Tanh()))
    plain = copy.deepcopy(model)
    act = wrapped(model, least=64)
    x = torch.randn(64, 64)
    wrong = x.clone()
    wrong[3, 5] = bad
    for _ in range(4):
        gradients(model, x)
    assert act.answers.count == 0
    got, expected = gradients(model, wrong), gradients(plain, wrong)
    assert act.answers.count >= 1 and "not finite" in caplog.text
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a.isfinite(), b.isfinite())
    before = act.answers.count
    assert 0 < error(gradients(model, x), gradients(plain, x)) < 0.01  # packed again
    assert act.answers.count == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "codec",
    ["dct_quant(rate=4)", "dct_chop(keep=4)", "dct_chop(keep=4) | block_quant(bits=8)", SPARSE],
)
@pytest.mark.parametrize("passes", [0, 7], ids=["first pass", "in C++"])
def test_values_that_codecs_cannot_sum_are_kept(
    codec: str, dtype: torch.dtype, passes: int, caplog
) -> None:
    """Finite ones, whose sums are not."""

    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return super().forward(x * scale)

    layer = Scaled(64, 64, bias=False, dtype=dtype)
    x = torch.rand(32, 64, dtype=dtype)

    def gradient(scale: float) -> torch.Tensor:
        layer.weight.grad = None
        (layer(x, scale) * 1e-30).sum().backward()
        return layer.weight.grad

    expected = gradient(4e37)
    assert expected.isfinite().all()
    act = tt.wrap(layer, codec=codec, least=1)
    for _ in range(passes):
        gradient(1.0)
    assert same(gradient(4e37), expected)
    assert act.answers.count == 1 and "not finite" in caplog.text
    gradient(2.0**90)
    assert act.answers.count == 1 and codecs(act, x)


def test_a_sum_of_halves_is_finite() -> None:
    """As a GPU is asked for it, where values are of half precision."""
    form = SimpleNamespace(label="dct_quant(rate=4)", shape=torch.Size([1 << 18]))
    handle = SimpleNamespace(tensor=torch.ones(1 << 18, dtype=torch.float16, device="meta"))
    assert _finite._witness(form, handle).dtype == torch.float32


def test_rules_name_codecs(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f'[[rule]]\ntype = "Conv2d"\nstore = "{FOUR}"\n')
    model = made(resnet_like)
    act = tt.wrap(model, rules=path, least=1024)
    found = stored(act.plan(images()))
    assert found["convolution", "input"] == {"keep", FOUR}
    assert found["native_batch_norm", "input"] == {"keep"}
    act.remove()
    act = tt.wrap(model, rules=path, least=1024, codec=EIGHT)
    found = stored(act.plan(images()))
    assert found["convolution", "input"] == {"keep", FOUR}
    assert found["native_batch_norm", "input"] == {EIGHT}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_plan_that_was_saved_gives_the_same(name: str, tmp_path: Path) -> None:
    make, data = NETWORKS[name]
    x, path = data(), tmp_path / "plan.toml"
    model = made(make)
    act = wrapped(model)
    first = act.plan(x)
    act.save(path)
    expected = gradients(model, x)
    twin = made(make)
    act = tt.wrap(twin, plan=path, least=1024)
    assert stored(act.plan(x)) == stored(first)
    for _ in range(4):
        got = gradients(twin, x)
        # Where an operator of a module has several tensors in one role, the plan has one line for them.
        assert all(map(same, got, expected)) if name != "gpt" else error(got, expected) < 0.01


def test_backward_twice_and_changes_in_place() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)))
    wrapped(model, FOUR)
    x = torch.randn(64, 64)
    loss = model(x).sum()
    first, again = (
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for _ in range(2)
    )
    assert all(map(same, first, again))
    y = model[1](model[0](x))
    loss = model[2](y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        loss.backward()


def test_without_recomputation() -> None:
    model, x = made(lambda: Residual(8, False)), torch.randn(4, 8, 16, 16)
    expected = gradients(copy.deepcopy(model), x)
    act = wrapped(model, recompute=0)
    for _ in range(4):
        assert 0 < error(gradients(model, x), expected) < 0.01
    assert "recompute" not in {row.how for row in act.plan(x).rows}


def test_inputs_of_other_sizes_have_passes_of_their_own() -> None:
    model = made(resnet_like)
    plain = copy.deepcopy(model)
    act = wrapped(model)
    for n in (4, 4, 4, 4, 3, 4, 3, 1):
        assert error(gradients(model, images(n)), gradients(plain, images(n))) < 0.02
    assert act.problems == []


def test_sparse_arguments_are_passed_over() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32, bias=False)

        def forward(self, x, graph):
            return torch.sparse.mm(graph, self.layer(x.relu()))

    model, x = made(Graph), torch.randn(64, 32)
    graph = (torch.rand(64, 64) < 0.1).float().to_sparse()
    act = wrapped(model)
    assert EIGHT in codecs(act, x, graph) and act.problems == []
    act.remove()
    act = tt.wrap(model, noise=0.5, least=1024)
    act.fit((x, graph))
    model(x, graph).sum().backward()
    assert act.problems == []


def test_rules_name_codecs_that_need_two_sides(tmp_path: Path) -> None:
    model = made(resnet_like)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nop = "convolution"\nstore = "dct_quant(rate=4)"\n')
    act = tt.wrap(model, rules=rules, least=1024)
    assert codecs(act, images()) == {"dct_quant(rate=4)"} and act.problems == []


@pytest.mark.parametrize("way", ["python", "cpp"])
def test_what_a_pass_saves_last_is_kept(way: str, monkeypatch) -> None:
    if way == "cpp" and library() is None:
        pytest.skip("there is no library of hooks")
    monkeypatch.setenv("TUCKFOLD_HOOKS", way)
    monkeypatch.setitem(_lossy.LATE, "cpu", 0.25)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(32) for _ in range(6)))
    x = torch.randn(8, 16, 32)
    act = wrapped(model, FOUR)
    for _ in range(7):
        model(x).sum().backward()
    assert act.problems == [] and is_steady(act)
    how = {row.module: row.how for row in act.plan(x).rows if row.op == "gelu"}
    assert "(" in how["0"] and "(" in how["3"] and how["5"] == "keep"


def test_passes_leave_nothing_for_the_garbage_collector() -> None:
    """Packed bytes in a cycle would stay until Python looks for cycles."""
    model, x = nn.Sequential(*(Block(32) for _ in range(3))), torch.randn(8, 16, 32)
    wrapped(model, FOUR)

    def packed() -> int:
        found = (o for o in gc.get_objects() if type(o) is torch.Tensor and o.dtype == torch.uint8)
        return sum(o.nbytes for o in found)

    gc.collect()
    gc.disable()
    try:
        before = packed()
        for _ in range(6):
            model(x).sum().backward()
        assert packed() == before
    finally:
        gc.enable()
