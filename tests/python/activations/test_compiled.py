"""Wrapped models under torch.compile: the same bits as the plain compiled model, in less memory.

Most tests use the backend aot_eager, which compiles fast; test_compiled_inductor.py has the other.
"""

import copy
import gc
import logging
import pickle
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from compiling import compiled, fresh, hows  # noqa: E402, F401
from nets import NETWORKS, Block, Sequence, alexnet_like, gradients, images, made, same  # noqa: E402


def alike(model, *x, least: int = 4096, **options):
    """Wraps a model, compiles it and a plain copy, and compares gradients; gives the handle back."""
    plain = copy.deepcopy(model)
    expected = gradients(compiled(plain), *x)
    act = tt.wrap(model, least=least, **options)
    got = gradients(compiled(model), *x)
    assert act.problems == []
    assert all(same(a, b) for a, b in zip(got, expected, strict=True))
    act.alive = model  # a handle does not hold its model
    return act


class Gates(nn.Module):
    """ReLU's outputs that backward reads the signs of alone, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(33, 129), nn.Linear(129, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first(x)).cumsum(1)
        return self.last(torch.where(y.sin() > 0.5, y, 0.1 * y))


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_keep_every_bit(name: str) -> None:
    make, data = NETWORKS[name]
    act = alike(made(make), data())
    plan = act.plan()
    assert plan.after < plan.before


def test_relu_and_masks_become_bits_of_any_length() -> None:
    act = alike(made(Gates), torch.randn(7, 33), least=0)
    rows = {(r.op, r.dtype): (r.how, r.before, r.after) for r in act.plan().rows}
    assert rows["relu", "float32"] == ("1 bit", 7 * 129 * 4, -(-7 * 129 // 8))
    assert rows["gt", "bool"][0] == "1 bit"


def test_nan_passes_a_gate_as_it_does_without_us() -> None:
    x = torch.randn(16, 33)
    x[3] = float("nan")
    x[5] = float("inf")
    alike(made(Gates), x, least=0)


def test_recomputing_can_be_turned_off() -> None:
    make, data = NETWORKS["gpt"]
    assert "recompute" in hows(alike(made(make), data()))
    act = alike(made(make), data(), recompute=False)
    assert "recompute" not in hows(act)


def test_wrap_takes_what_torch_compile_returned() -> None:
    model = made(alexnet_like)
    module = compiled(model)
    before = gradients(module, images())  # compiled and run before
    act = tt.wrap(module, least=4096)
    assert act.model is model
    assert all(map(same, before, gradients(module, images())))
    assert "1 bit" in hows(act)
    with pytest.raises(ValueError, match="wrapped already"):
        tt.wrap(module)


def test_a_model_compiled_in_place_has_a_plan() -> None:
    make, data = NETWORKS["gpt"]
    model = made(make)
    act = tt.wrap(model, least=4096)
    model.compile(backend="aot_eager", fullgraph=True)
    plan = act.plan(data())
    assert {row.how for row in plan.rows} == {"1 bit", "keep", "recompute"}
    assert plan.after < plan.before < plan.peak + plan.before
    line = next(line for line in str(plan).splitlines() if "1 bit" in line)
    words = "blocks.0.drop native_dropout result 4x16x128 bool 1 bit 8.0 KiB 1.0 KiB"
    assert " ".join(line.split()) == words


def test_plain_and_wrapped_models_of_one_class_share_no_graph() -> None:
    wrapped, plain = made(alexnet_like), made(alexnet_like)
    act = tt.wrap(wrapped, least=4096)
    saved = []
    for model in (compiled(wrapped), compiled(plain), compiled(wrapped)):
        out = model(images())
        saved.append(sorted(str(t.dtype) for t in out.grad_fn.saved_tensors))
    assert saved[0] == saved[2] != saved[1]
    assert "torch.bool" in saved[1] and "torch.bool" not in saved[0]
    act.remove()
    out = compiled(wrapped)(images())
    assert sorted(str(t.dtype) for t in out.grad_fn.saved_tensors) == saved[1]


def test_models_that_are_wrapped_differently_share_no_graph() -> None:
    acts = []
    for options in ({}, {"least": 1 << 30}, {"recompute": False}):
        model = made(NETWORKS["gpt"][0])
        acts.append(tt.wrap(model, **({"least": 4096} | options)))
        compiled(model)(NETWORKS["gpt"][1]())
    assert [hows(act) for act in acts] == [
        {"keep", "1 bit", "recompute"},
        {"keep"},
        {"keep", "1 bit"},
    ]


def test_remove_leaves_torch_as_it_was() -> None:
    import torch._dynamo.backends.debugging as backend
    import torch._inductor.config as config

    names = config.custom_partitioner_fn, backend.min_cut_rematerialization_partition
    model = made(alexnet_like)
    kind, keys = type(model), set(model.__dict__)
    act = tt.wrap(model, least=4096)
    compiled(model)(images()).sum().backward()
    assert config.custom_partitioner_fn is not names[0]
    act.remove()
    assert (config.custom_partitioner_fn, backend.min_cut_rematerialization_partition) == names
    # The attribute is torch's own, from 2.15 on.
    assert type(model) is kind and set(model.__dict__) - {"_is_torch_compile"} == keys

    model = made(alexnet_like)  # and a handle that nobody removed
    tt.wrap(model, least=4096)
    compiled(model)(images()).sum().backward()
    torch.compiler.reset()
    del model
    gc.collect()
    assert (config.custom_partitioner_fn, backend.min_cut_rematerialization_partition) == names


def test_a_partitioner_of_the_user_goes_first() -> None:
    import torch._inductor.config as config
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    from tuckfold.torch._activations._compiled import Partitioner

    class Mine(CustomPartitionerFn):
        def __call__(self, gm, joint_inputs, **options):
            raise NotImplementedError

        def uuid(self) -> str:
            return "mine"

    with config.patch(custom_partitioner_fn=(mine := Mine())):
        model = made(alexnet_like)
        act = tt.wrap(model)
        assert isinstance(config.custom_partitioner_fn, Partitioner)
        assert config.custom_partitioner_fn.previous is mine
        assert config.custom_partitioner_fn.uuid() == "mine"  # outside of a compilation
        act.remove()
        assert config.custom_partitioner_fn is mine


def test_copies_are_plain() -> None:
    model = made(alexnet_like)
    plain = type(model)
    tt.wrap(model)
    for twin in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert type(twin) is plain
    assert type(model) is not plain and isinstance(model, plain)
    assert type(model).__name__ == plain.__name__


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(dynamic) -> None:
    model = made(
        lambda: Sequence(lambda m, x: m.b(F.gelu(m.a(x))), a=nn.Linear(8, 64), b=nn.Linear(64, 8))
    )
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    ours, theirs = compiled(model, dynamic=dynamic), compiled(plain, dynamic=dynamic)
    for rows in (16, 24, 7):
        x = torch.randn(rows, 8)
        assert all(map(same, gradients(ours, x), gradients(theirs, x)))
    assert act.problems == []
    assert "recompute" in hows(act)


def test_graph_breaks_and_several_graphs() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Block(32), Block(32)

        def forward(self, x):
            y = self.a(x)
            torch._dynamo.graph_break()
            return self.b(y)

    model = made(Broken)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=4096)
    x = torch.randn(2, 16, 32)
    got = gradients(compiled(model, fullgraph=False), x)
    expected = gradients(compiled(plain, fullgraph=False), x)
    assert all(map(same, got, expected))
    assert len(act.compiled) == 2
    assert {row.module.split(".")[0] for row in act.plan().rows} == {"a", "b"}


def test_a_compiled_block_of_a_wrapped_model() -> None:
    model = made(NETWORKS["gpt"][0])
    x = NETWORKS["gpt"][1]()
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=4096)
    for net in (model, plain):
        net.blocks[0].compile(backend="aot_eager")
    assert all(map(same, gradients(model, x), gradients(plain, x)))
    assert act.problems == []
    assert act.compiled


def test_a_compiled_function_around_the_model() -> None:
    model = made(alexnet_like)
    act = tt.wrap(model, least=4096)

    @compiled
    def loss(x):
        return model(x).square().mean()

    loss(images()).backward()
    assert "1 bit" in hows(act)


def test_without_gradients_nothing_changes() -> None:
    model = made(alexnet_like)
    act = tt.wrap(model, least=4096)
    module = compiled(model)
    with torch.no_grad():
        module(images())
    model.eval()
    with torch.inference_mode():
        module(images())
    assert act.compiled == {}


def test_retain_graph_and_double_backward() -> None:
    model = made(Gates)
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)
    x = torch.randn(4, 33, requires_grad=True)
    grads, errors = [], []
    for net in (model, plain):
        out = compiled(net)(x).sum()
        (first,) = torch.autograd.grad(out, x, retain_graph=True)
        (second,) = torch.autograd.grad(out, x, retain_graph=True)
        assert same(first, second)
        grads.append(first)
        with pytest.raises(RuntimeError) as error:
            (twice,) = torch.autograd.grad(out, x, create_graph=True)
            twice.sum().backward()
        errors.append(str(error.value))
    assert same(*grads)
    assert errors[0] == errors[1]


def test_checkpoint_inside() -> None:
    def call(m, x):
        return m.b(checkpoint(m.a, x, use_reentrant=False))

    alike(made(lambda: Sequence(call, a=Block(32), b=Block(32))), torch.randn(2, 16, 32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_channels_last(dtype) -> None:
    def call(m, x):
        with torch.autocast("cpu", dtype):
            return m.b(F.relu(m.norm(m.a(x)))).float()

    model = made(
        lambda: Sequence(
            call,
            a=nn.Conv2d(3, 16, 3),
            norm=nn.BatchNorm2d(16),
            b=nn.Conv2d(16, 4, 3),
        ).to(memory_format=torch.channels_last)
    )
    alike(model, images().to(memory_format=torch.channels_last), least=0)


def test_half_precision_parameters() -> None:
    make, _ = NETWORKS["resnet"]
    alike(made(make).bfloat16(), images().bfloat16(), least=0)


def test_values_that_are_returned_or_changed_stay() -> None:
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)
            self.register_buffer("seen", torch.zeros(32))

        def forward(self, x):
            y = F.gelu(self.a(x)) + self.seen
            self.seen.add_(y.detach().mean(0))
            return y, self.b(y)

    act = alike(made(Returns), torch.randn(64, 32), least=0)
    assert all(row.how == "keep" for row in act.plan().rows if row.op in ("gelu", "add"))


def test_rules_name_modules_of_a_compiled_model(tmp_path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmatch = "blocks.0*"\nstore = "keep"\n')
    make, data = NETWORKS["gpt"]
    act = alike(made(make), data(), rules=rules)
    stored = {row.module.split(".")[1] for row in act.plan().rows if row.how != "keep"}
    assert stored and "0" not in stored


def test_a_plan_of_a_compiled_model_is_read_again(tmp_path) -> None:
    make, data = NETWORKS["gpt"]
    act = alike(made(make), data())
    act.save(tmp_path / "plan.toml")
    act.report(tmp_path / "run.html")
    assert "recompute" in (tmp_path / "run.html").read_text()
    again = alike(made(make), data(), plan=tmp_path / "plan.toml")
    assert str(again.plan()) == str(act.plan())


def test_check_compares_with_the_plain_compiled_model(monkeypatch) -> None:
    model = made(alexnet_like)
    tt.wrap(model, least=4096)
    result = tt.check(compiled(model), images())
    assert result.ok and result.stored < result.saved

    from tuckfold.torch._activations._packs import Packer

    bits = Packer.bits

    def wrong(self, node):
        packed, made_again = bits(self, node)
        return packed, self.split.add(torch.ops.aten.logical_not.default, made_again)

    monkeypatch.setattr(Packer, "bits", wrong)
    model = made(alexnet_like)
    tt.wrap(model, least=4096 - 1)
    assert not tt.check(compiled(model), images()).ok


def test_what_fails_leaves_the_graph_to_torch(monkeypatch, caplog) -> None:
    from tuckfold.torch._activations._packs import Packer

    def fail(self, node):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(Packer, "bits", fail)
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=4095)
    assert all(
        map(same, gradients(compiled(model), images()), gradients(compiled(plain), images()))
    )
    assert act.problems == ["RuntimeError: on purpose"]


def test_nothing_to_gain_is_said(caplog) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    tt.wrap(model, least=0)
    with caplog.at_level(logging.WARNING):
        compiled(model)(torch.randn(4, 8)).sum().backward()
    assert "nothing to store in less memory" in caplog.text


def test_a_torch_that_lacks_what_we_need_compiles_the_plain_model(monkeypatch, caplog) -> None:
    import tuckfold.torch._activations as package

    name = "tuckfold.torch._activations._compiled"
    monkeypatch.setitem(sys.modules, name, None)  # which cannot be imported
    monkeypatch.delattr(package, "_compiled", raising=False)
    model = made(alexnet_like)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=4096)
    got = gradients(compiled(model), images())
    assert all(map(same, got, gradients(compiled(plain), images())))
    assert "as if they were not wrapped" in caplog.text
    assert act.compiled == {}
    act.remove()


def test_open_sizes_are_named_where_nothing_is_stored_in_less(caplog) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(64, 256), nn.Dropout(), nn.Linear(256, 64)))
    tt.wrap(model, least=4096)
    module = torch.compile(model, backend="aot_eager")
    module(torch.rand(512, 64)).square().sum().backward()
    assert "sizes are open" not in caplog.text
    module(torch.rand(300, 64)).square().sum().backward()  # the last batch: torch opens the size
    assert "nothing to store in less memory" in caplog.text
    assert "dynamic=False" in caplog.text and "drop_last=True" in caplog.text


def test_deviations_of_batches_are_those_of_forwards_own_loops(monkeypatch) -> None:
    """A kernel that adds up also saves a deviation; the one that goes on makes its own, which may differ by a rounding.
    What is made again reads a copy of the second kind."""
    from tuckfold.torch._activations import _compiled

    divide, graphs = _compiled._divide, []

    def divided(act, given, outputs, fused):
        graphs.append(divide(act, given, outputs, True))
        return graphs[-1]

    monkeypatch.setattr(_compiled, "_divide", divided)

    def call(m, x):
        y = m.first(x)
        var, mean = torch.var_mean(y, (0, 2, 3), keepdim=True, correction=0)
        return m.second(F.relu((y - mean) * torch.rsqrt(var + 1e-5) * m.scale)).mean((2, 3))

    def build():
        model = Sequence(call, first=nn.Conv2d(3, 8, 3), second=nn.Conv2d(8, 4, 3))
        model.scale = nn.Parameter(torch.rand(1, 8, 1, 1))
        return model

    model = made(build)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=1024)
    got = gradients(compiled(model), images())
    assert all(map(same, got, gradients(compiled(plain), images())))
    assert act.problems == [] and "recompute" in hows(act)
    forward, backward = (g.graph for g in graphs[0])
    (wide,) = (n for n in forward.nodes if n.name.startswith("expand"))
    assert wide.args[0].name == "rsqrt" and wide.args[1] == [2, 8, 1, 1]
    (one,) = (n for n in backward.nodes if n.name.startswith("slice"))
    assert one.args == (one.args[0], 0, 0, 1) and one.args[0].name.startswith("clone")
    assert "rsqrt" in {n.name for n in backward.find_nodes(op="placeholder")}  # for gradients


class Attends(nn.Module):
    """Whose views have sizes that are numbers of the graph where batches may differ."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.after, self.up, self.down = nn.RMSNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            self.wide(self.norm(x)).view(batch, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


def test_sizes_of_the_graph_are_no_tensors() -> None:
    model = Attends()
    act = tt.wrap(model, least=0)
    with pytest.raises(ValueError, match="no graph of it was compiled"):
        act.plan()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    for batch in (4, 6):
        compiled(torch.randn(batch, 8, 16)).square().mean().backward()
    assert act.problems == []
    assert act.plan().rows


def test_sizes_that_follow_from_sizes() -> None:
    """A view of what is made again has them, and backward has only what they follow from."""

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1),
            nn.Hardtanh(), nn.Flatten(), nn.Linear(256, 5),
        )  # fmt: skip

    plain, model = net(), net()
    act = tt.wrap(model, least=0)
    both = [torch.compile(m, backend="aot_eager", dynamic=True) for m in (plain, model)]
    for batch in (4, 6, 3):
        x = torch.randn(batch, 3, 16, 16)
        for m, run in zip((plain, model), both, strict=True):
            m.zero_grad()
            run(x).square().mean().backward()
        pairs = zip(plain.parameters(), model.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
    assert act.problems == [] and act.plan().after < act.plan().before
