"""A codec inside of compiled graphs: what is packed and what is not, seeds, gates, and errors."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from compiling import compiled, fresh, hows  # noqa: E402, F401
from nets import NETWORKS, Block, Sequence, gradients, images, made, same, tokens  # noqa: E402

FOUR = "block_quant(bits=4, group=64, round=stochastic)"
EIGHT = "block_quant(bits=8, group=64, round=stochastic)"


def error(got, expected) -> float:
    difference = sum((a - b).double().square().sum() for a, b in zip(got, expected, strict=True))
    return float((difference / sum(b.double().square().sum() for b in expected)).sqrt())


def wrapped(model, spec: str, **options):
    return tt.wrap(model, **({"least": 4096, "codec": spec} | options))


def test_gradients_are_near_those_of_the_plain_model() -> None:
    make, data = NETWORKS["resnet"]
    model, x = made(make), data()
    expected = gradients(compiled(copy.deepcopy(model)), x)
    found = {}
    for spec in (FOUR, EIGHT):
        twin = copy.deepcopy(model)
        act = wrapped(twin, spec)
        found[spec] = error(gradients(compiled(twin), x), expected)
        assert act.problems == []
        assert {spec, f"{spec}, 1 bit"} <= hows(act)
        assert act.plan().ratio > (4 if spec == FOUR else 2.5)
    assert 0 < found[EIGHT] < 0.02
    assert found[EIGHT] < found[FOUR] < 0.15


def test_a_gate_keeps_its_zeros() -> None:
    """The gradient of what a ReLU lets pass has zeros where it had them, and nowhere else."""

    def call(m, x):
        m.kept = m.first(x)
        m.kept.retain_grad()
        return m.last(F.relu(m.kept))

    def build():
        return Sequence(call, first=nn.Linear(16, 512), last=nn.Linear(512, 1))

    x = torch.randn(64, 16)
    model = made(build)
    plain = copy.deepcopy(model)

    class Loss(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x, extra):
            return self.net.last(F.relu(self.net.first(x) + extra))

    zeros = []
    for net in (model, plain):
        extra = torch.zeros(64, 512, requires_grad=True)
        loss = Loss(net)
        act = wrapped(loss, FOUR, least=0) if net is model else None
        compiled(loss)(x, extra).sum().backward()
        assert act is None or f"{FOUR}, 1 bit" in hows(act)
        zeros.append(extra.grad == 0)
    assert torch.equal(*zeros)
    assert 0.3 < zeros[0].float().mean() < 0.7


def test_attention_gets_eight_bits_for_what_it_computes_scores_from() -> None:
    model = made(lambda: Block(64, p=0.0))
    x = torch.randn(2, 64, 64)
    expected = gradients(compiled(copy.deepcopy(model)), x)
    act = wrapped(model, "block_quant(bits=2, group=64, round=stochastic)")
    got = gradients(compiled(model), x)
    by_module = {row.module: row.how for row in act.plan().rows if row.op == "addmm"}
    assert "bits=8" in by_module["qkv"] and "bits=2" in by_module["up"]
    assert error(got, expected) < 0.7


def test_statistics_and_whole_numbers_stay() -> None:
    make, data = NETWORKS["resnet"]
    model = made(make)
    act = wrapped(model, FOUR, least=0)
    compiled(model)(data())
    rows = act.plan().rows
    assert all(row.how == "keep" for row in rows if row.shape == (8,) or row.dtype == "int64")
    assert any(row.shape == (8,) for row in rows)


def test_seeds_change_with_every_step_and_follow_torch() -> None:
    x, runs = images(), []
    for seed in (1, 1, 2):
        model = made(NETWORKS["resnet"][0])
        act = wrapped(model, FOUR)
        module = compiled(model)
        torch.manual_seed(seed)
        module(x)
        count = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        steps = []
        for _ in range(3):
            model.zero_grad()
            module(x).square().sum().backward()
            steps.append([p.grad.clone() for p in model.parameters()])
        assert not all(map(same, steps[0], steps[1])) and not all(map(same, steps[1], steps[2]))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == count
        runs.append(steps)
        act.remove()
    assert all(all(map(same, a, b)) for a, b in zip(runs[0], runs[1], strict=True))
    assert not all(map(same, runs[0][0], runs[2][0]))


@pytest.mark.parametrize("codec", ["block_quant(bits=8, group=64)", "block_quant(bits=8, group=64, round=stochastic)"])  # fmt: skip
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_dropout_draws_what_it_draws_without_a_codec(codec: str, backend: str) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.5), nn.Linear(256, 4))

    x = torch.randn(128, 64)
    found = []
    for is_wrapped in (False, True):
        model = made(make)
        act = wrapped(model, codec) if is_wrapped else None
        module = torch.compile(model, backend=backend, fullgraph=True)
        module(x)
        torch.manual_seed(5)
        losses = [float(module(x).square().mean()) for _ in range(3)]
        found.append((losses, float(torch.rand(()))))
        if is_wrapped:
            result = tt.check(module, (x,), loss=lambda out: out.square().mean())
            assert result.is_good, str(result)
            act.remove()
    assert found[0] == found[1]


def test_open_sizes_are_said(caplog) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)))
    act = wrapped(model, "block_quant(bits=8, group=64)")
    module = torch.compile(model, backend="aot_eager")
    module(torch.rand(512, 64)).square().sum().backward()
    packed = act.plan().ratio
    assert packed > 3 and "open sizes" not in caplog.text
    module(torch.rand(600, 64)).square().sum().backward()  # torch opens the size now
    assert (
        act.plan().ratio < packed and "codecs do nothing: compile with dynamic=False" in caplog.text
    )


def test_seeds_that_inference_asked_for_first() -> None:
    x = torch.randn(3)
    with torch.inference_mode():
        first = torch.ops.tuckfold.seeds(x, 123456, 5)
    assert len({*first.tolist(), *torch.ops.tuckfold.seeds(x, 123456, 5).tolist()}) == 10


def test_nearest_rounding_repeats_itself() -> None:
    model = made(NETWORKS["resnet"][0])
    wrapped(model, "block_quant(bits=4, group=64)")
    module = compiled(model)
    assert all(map(same, gradients(module, images(), seed=1), gradients(module, images(), seed=2)))


def test_a_plain_model_never_gets_a_lossy_graph() -> None:
    """Also where a graph break has parts of a model compiled for themselves."""

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Block(32, p=0.0), Block(32, p=0.0)

        def forward(self, x):
            y = self.a(x)
            torch._dynamo.graph_break()
            return self.b(y)

    model = made(Broken)
    plain = copy.deepcopy(model)
    x = torch.randn(2, 16, 32)
    expected = gradients(plain, x)
    act = wrapped(model, FOUR)
    lossy = gradients(compiled(model, fullgraph=False), x)
    assert FOUR in hows(act) and error(lossy, expected) > 1e-3
    ours = gradients(compiled(plain, fullgraph=False), x)
    assert error(ours, expected) < 1e-5
    act.remove()
    assert error(gradients(compiled(model, fullgraph=False), x), expected) < 1e-5


@pytest.mark.parametrize("spec", ["bounded(abs=0.1)", "dct_quant(rate=4)"])
def test_graphs_stay_exact_where_a_codec_needs_sides_or_varies(spec: str) -> None:
    model = made(NETWORKS["resnet"][0])
    expected = gradients(compiled(copy.deepcopy(model)), images())
    act = wrapped(model, spec)
    assert all(map(same, gradients(compiled(model), images()), expected))
    assert act.problems == [] and not any("(" in how for how in hows(act))


def test_remove_leaves_the_classes_of_all_modules() -> None:
    model = made(NETWORKS["gpt"][0])
    before = [type(m) for m in model.modules()]
    act = wrapped(model, FOUR)
    assert all(type(m) is not kind for m, kind in zip(model.modules(), before, strict=True))
    assert all(isinstance(m, kind) for m, kind in zip(model.modules(), before, strict=True))
    twin = copy.deepcopy(model)
    act.remove()
    for net in (model, twin):
        assert [type(m) for m in net.modules()] == before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("block_quant(bits=9)", "bits"),
        ("blockquant", "blockquant"),
        ("raw", "smaller"),
    ],
)
def test_wrong_codecs_are_refused(spec: str, message: str) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=message):
        tt.wrap(model, codec=spec)
    assert type(model) is nn.Linear


def test_values_are_unpacked_where_they_are_read() -> None:
    """Not at the start of backward, where all of them would be alive at once."""
    from tuckfold.torch._activations import _compiled
    from tuckfold.torch._activations._chains import is_repeatable

    graphs = []
    divide = _compiled._divide

    def watch(*arguments, **names):
        graphs.append(divide(*arguments, **names))
        return graphs[-1]

    model = made(lambda: nn.Sequential(*(Block(32, p=0.0) for _ in range(4))))
    wrapped(model, FOUR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compiled, "_divide", watch)
        compiled(model)(torch.randn(4, 32, 32))
    forward, backward = (list(module.graph.nodes) for module in graphs[0])
    first = next(i for i, n in enumerate(backward) if n.op != "placeholder")
    heavy = [i for i, n in enumerate(backward) if "mm" in str(n.target)]
    unpacks = [i for i, n in enumerate(backward) if "unpack" in str(n.target)]
    assert len(unpacks) > 12
    places = {node: i for i, node in enumerate(backward)}

    def first_product(node) -> int:
        """That reads it, also through views and element-wise operators."""
        if places[node] in heavy:
            return places[node]
        follow = [n for n in node.users if places[n] in heavy or is_repeatable(n)]
        return min((first_product(n) for n in follow), default=len(backward))

    for i in unpacks:
        use = min(first_product(user) for user in backward[i].users)
        if use < len(backward):
            assert sum(i < j < use for j in heavy) <= 3
    assert unpacks[-1] - first > len(backward[first:]) * 0.7
    packs = [i for i, n in enumerate(forward) if "pack" in str(n.target)]
    assert packs[0] < len(forward) * 0.3 and packs[-1] > len(forward) * 0.7


def test_a_plan_with_a_codec_is_read_again(tmp_path) -> None:
    model = made(NETWORKS["gpt"][0])
    act = wrapped(model, FOUR)
    compiled(model)(tokens())
    act.save(tmp_path / "plan.toml")
    plan = str(act.plan())
    act.remove()
    again = wrapped(model, FOUR, plan=tmp_path / "plan.toml")
    compiled(model)(tokens())
    assert str(again.plan()) == plan


def _softmax(scores):
    return scores.softmax(-1)


def _softmax_dropped(scores):
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return F.dropout(scores.masked_fill(~causal, -1e4).softmax(-1), 0.1)


def _softmax_by_hand(scores):
    raised = (scores - scores.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("softmax", [_softmax, _softmax_dropped, _softmax_by_hand])
def test_scores_of_a_softmax_have_eight_bits(softmax, backend: str) -> None:
    """What backward takes exponentials of, and what a softmax returned; scores deviate by about 6."""

    def call(m, x):
        q, k, v = m.qkv(x).chunk(3, -1)
        return m.out(softmax(torch.einsum("bic,bjc->bij", q, k)) @ v)

    model = made(lambda: Sequence(call, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)))
    with torch.no_grad():
        model.qkv.weight.mul_(1.5)
    x = torch.randn(4, 64, 64)
    torch.manual_seed(5)
    expected = gradients(compiled(copy.deepcopy(model), backend=backend), x)
    act = wrapped(model, "block_quant(bits=4, group=64)")
    torch.manual_seed(5)
    found = error(gradients(compiled(model, backend=backend), x), expected)
    scores = {row.how for row in act.plan().rows if row.shape == (4, 64, 64) and "soft" in row.op}
    scores |= {row.how for row in act.plan().rows if row.op in ("exp", "div", "sub")}
    assert not any("bits=4" in how for how in scores), scores
    assert found < 0.25, found


SHARP = {
    "logarithm": lambda x: (x.abs() + 1e-4).log(),
    "quotient": lambda x: 1 / (x.square() + 1e-4),
    "root": lambda x: (x.abs() + 1e-5).sqrt(),
    "exponential": lambda x: (4 * x).exp(),
    "limits": lambda x: x.clamp(-0.1, 0.1),
    "leaky": lambda x: F.leaky_relu(x, 0.01),
    "largest": lambda x: x.amax(-1, keepdim=True) * x,
    "a gate beside negative values": lambda x: F.relu(x) + 0.1 * x * x * x,
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SHARP)
def test_what_is_read_sharply_has_no_loss_there(name: str, backend: str) -> None:
    """Gradients of operators that amplify small errors are as near as those of products."""
    model = made(
        lambda: Sequence(
            lambda m, x: m.last(SHARP[name](m.first(x))),
            first=nn.Linear(64, 64), last=nn.Linear(64, 64),
        )
    )  # fmt: skip
    x = torch.randn(256, 64)
    expected = gradients(copy.deepcopy(model), x)
    act = wrapped(model, "block_quant(bits=4, group=64)")
    assert error(gradients(compiled(model, backend=backend), x), expected) < 0.12
    assert act.problems == []
