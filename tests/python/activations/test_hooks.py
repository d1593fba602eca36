"""Hooks in C++ do what Python does: the same gradients, bit by bit, the same tensors stored, the same errors."""

import copy
import gc
import logging
import math
import os
import subprocess
import sys
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import ATTENTIONS, NETWORKS, Sequence, gradients, images, made, resnet_like, same, tokens  # noqa: E402
from tuckfold.torch._activations import _recipe, _recompute, _record, _store  # noqa: E402
from tuckfold.torch._activations._graph import VIEWS, kind  # noqa: E402
from tuckfold.torch._activations._lossy import SCORES, VALUES  # noqa: E402
from tuckfold.torch._activations._native import Native, library  # noqa: E402
from tuckfold.torch._activations._recipe import Way  # noqa: E402
from tuckfold.torch._activations._recompute import BUILDERS  # noqa: E402
from tuckfold.torch._activations._rules import RULES  # noqa: E402

pytestmark = pytest.mark.skipif(
    library() is None, reason="no hooks in C++ for this torch, or TUCKFOLD_HOOKS=python"
)
WARM = 4  # passes until C++ takes over
FOUR = "block_quant(bits=4, group=64, round=stochastic)"


@pytest.fixture
def native(monkeypatch) -> list[Native]:
    """The passes in C++ that went as their program says, as they come."""
    seen: list[Native] = []
    finish = Native.finish

    def finished(self: Native, output: object) -> bool:
        went = finish(self, output)
        if went:
            seen.append(self)
        return went

    monkeypatch.setattr(Native, "finish", finished)
    return seen


def wrapped(model: nn.Module, way: str, monkeypatch, **options: object) -> object:
    with monkeypatch.context() as patch:
        patch.setenv("TUCKFOLD_HOOKS", way)
        return tt.wrap(model, **({"least": 0} | options))


OPTIONS = {
    "exact": {},
    "nothing recomputed": {"recompute": 0},
    "two operators": {"recompute": 2},
    "4 bits": {"codec": FOUR},
    "2-D": {"codec": "dct_quant(rate=2)"},
    "nonzero": {"codec": "nonzero_quant(bits=3, group=64)"},
    "of any size": {"codec": "bounded(abs=0.01)"},
}


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "unet"])
@pytest.mark.parametrize("options", OPTIONS)
def test_both_ways_give_the_same_bits(name: str, options: str, native, monkeypatch) -> None:
    make, batch = NETWORKS[name]
    found = {}
    for way in ("python", "cpp"):
        model = made(make)
        act = wrapped(model, way, monkeypatch, **OPTIONS[options])
        found[way] = [gradients(model, batch(), seed=seed) for seed in range(WARM + 2)]
        found[way, "stored"] = act._learning.stored
        assert act.problems == []
    assert len(native) == 2
    for a, b in zip(found["python"], found["cpp"], strict=True):
        assert all(map(same, a, b))
    assert found["python", "stored"] == found["cpp", "stored"] > 0


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["resnet", "resnet, not in place", "gpt"])
def test_kernels_that_do_several_operators(
    name: str, layout: torch.memory_format, bf16: bool, native, monkeypatch
) -> None:
    """They are used on a GPU, where they have the bits of torch's. Here both ways use them."""
    if name == "gpt" and layout == torch.channels_last:
        pytest.skip("it has no images")
    monkeypatch.setattr(_store, "ways", lambda device: [Way.FUSED])
    monkeypatch.setattr(_store, "is_proven", lambda *_: True)
    make, batch = NETWORKS[name]
    x = batch() if name == "gpt" else batch().contiguous(memory_format=layout)
    found, used = {}, []
    for function in ("fused", "fused_rows"):
        call = getattr(_recipe, function)
        spy = lambda *a, call=call: used.append(a) or call(*a)  # noqa: E731
        for module in (_recipe, _recompute):
            monkeypatch.setattr(module, function, spy)
    for way in ("plain", "python", "cpp"):
        model = made(make).to(memory_format=layout)
        if way != "plain":
            act = wrapped(model, way, monkeypatch)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found[way] = [gradients(model, x, seed=seed) for seed in range(WARM + 2)]
        if way != "plain":
            assert act.problems == []
    assert len(native) == 2 and used
    for plain, python, cpp in zip(*found.values(), strict=True):
        assert all(map(same, python, cpp))
        for a, b in zip(plain, python, strict=True):
            assert torch.nn.functional.cosine_similarity(a.flatten().float(), b.flatten().float(), dim=0) > 0.99  # fmt: skip


def test_statistics_are_not_copied(native, monkeypatch) -> None:
    """Parameters are, all at once, since `.data` may change them; nobody else has what a normalization saved."""
    monkeypatch.setattr(_store, "ways", lambda device: [Way.FUSED])
    monkeypatch.setattr(_store, "is_proven", lambda *_: True)
    copies = {}
    for way in ("plain", "python", "cpp"):
        model, x = made(resnet_like), images(2, 32)
        if way != "plain":
            wrapped(model, way, monkeypatch, least=1024)
        for _ in range(WARM + 1):
            gradients(model, x)
        with torch.profiler.profile() as profile:
            gradients(model, x)
        copies[way] = sum(event.name == "aten::clone" for event in profile.events())
    assert native and copies["plain"] == copies["python"] == copies["cpp"]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_kernel_that_unpacks_and_normalizes(
    layout: torch.memory_format, bf16: bool, native, monkeypatch
) -> None:
    """What a codec stored becomes the output of a normalization, a sum and a ReLU in one kernel, which also has the
    zeros of the ReLU. Two kernels have other values there."""
    monkeypatch.setattr(_store, "ways", lambda device: [Way.FUSED])
    monkeypatch.setattr(_store, "is_proven", lambda *_: True)
    x = images(8, 64).contiguous(memory_format=layout)
    found, used = {}, []
    unpack = _recipe.fused_unpack
    for way in ("two kernels", "python", "cpp"):
        seen: list = [] if way == "two kernels" else used
        none = way == "two kernels"
        call = lambda *a, none=none, seen=seen: seen.append(None if none else unpack(*a)) or seen[-1]  # noqa: E731  # fmt: skip
        monkeypatch.setattr(_recipe, "fused_unpack", call)
        model = made(resnet_like).to(memory_format=layout)
        act = wrapped(model, "cpp" if way == "cpp" else "python", monkeypatch, codec=FOUR)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found[way] = [gradients(model, x, seed=seed) for seed in range(WARM + 2)]
        assert act.problems == []
        act.remove()
    assert len(native) == 2
    made_here = [out for out in used if out is not None]
    assert made_here and {out.is_contiguous(memory_format=layout) for out in made_here} == {True}
    for two, python, cpp in zip(*found.values(), strict=True):
        assert all(map(same, python, cpp))
        for a, b in zip(two, python, strict=True):
            assert torch.nn.functional.cosine_similarity(a.flatten().float(), b.flatten().float(), dim=0) > 0.99  # fmt: skip


@pytest.mark.parametrize("kept", ["4", "5", "6"])
def test_what_a_recipe_reads_may_stay_as_it_is(kept: str, native, caplog, tmp_path) -> None:
    """A block's input, which operators in place have made, is kept, and another block's output is
    recomputed from it. Passes repeat each other all the same."""
    caplog.set_level(logging.DEBUG, "tuckfold.activations")
    model, x, path = made(resnet_like), images(8, 64), tmp_path / "plan.toml"
    with tt.activations(model, least=4096) as act:
        act.plan(x)
        act.save(path)
    entries = path.read_text().split("[[tensor]]")
    for i, entry in enumerate(entries):
        if f'module = "{kept}"\nop = "relu"' in entry:
            entries[i] = entry.replace('how = "recompute"', 'how = "keep"')
        # With a codec in the plan recipes look for a value that is not read for its mask.
        if 'module = "1"' in entry and 'role = "input"' in entry:
            entries[i] = entry.replace('how = "keep"', f'how = "{FOUR}"')
    path.write_text("[[tensor]]".join(entries))
    act = tt.wrap(model, plan=path, least=4096)
    assert {"keep", "recompute", FOUR} < {row.how for row in act.plan(x).rows}
    for _ in range(WARM + 2):
        model(x).square().mean().backward()
    assert act.repeats and native and "differed" not in caplog.text


def warmed(model: nn.Module, *x: Tensor, **options: object) -> object:
    act = tt.wrap(model, **({"least": 0} | options))
    for _ in range(WARM):
        gradients(model, *x)
    return act


def test_every_kind_that_python_knows_is_in_the_table() -> None:
    program = torch.classes.tuckfold_hooks.Program(0, False, torch.empty(0))
    known = set(VALUES) | set(SCORES) | set(BUILDERS) | set(RULES) | set(_record.CONSTANTS)
    # Of losses, which are no part of models as a rule, and of a view that autograd does not record.
    left_out = {"NllLossBackward0", "NllLoss2DBackward0", "NarrowBackward0"}
    for name in sorted((known | VIEWS) - left_out):
        assert program.add_target(name, 0, [], []) >= 0, name
    assert program.add_target("NoSuchBackward0", 0, [], []) == -1
    for table in (VALUES, SCORES):
        for name, roles in table.items():
            number = program.add_target(name, 0, [], [])
            assert number >= 0 and roles, name


class Every(nn.Module):
    """Nodes with constants, each a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU6(), nn.Conv2d(8, 8, 1),
            nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8),
            nn.LeakyReLU(0.2, inplace=True), nn.AvgPool2d(2), nn.Conv2d(8, 8, 1), nn.Hardswish(),
            nn.Conv2d(8, 8, 1), nn.Mish(), nn.Conv2d(8, 8, 1), nn.SiLU(), nn.ReflectionPad2d(1),
            nn.Conv2d(8, 8, 3), nn.GELU(approximate="tanh"), nn.AdaptiveMaxPool2d(4), nn.Flatten(2),
            nn.LayerNorm(16), nn.Linear(16, 16), nn.Sigmoid(), nn.RMSNorm(16), nn.Linear(16, 16),
            nn.Softmax(-1), nn.Linear(16, 4), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("codec", [None, FOUR])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nodes_with_constants(codec: str | None, dtype: torch.dtype, native, monkeypatch) -> None:
    found = []
    for way in ("python", "cpp"):
        model = made(Every)
        wrapped(model, way, monkeypatch, codec=codec)
        passes = []
        for seed in range(WARM + 2):
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                passes.append(gradients(model, images(2, 16), seed=seed))
        found.append(passes)
    assert len(native) == 2
    for a, b in zip(*found, strict=True):
        assert all(map(same, a, b))


def change_eps(m: nn.Module) -> None:
    m[1].eps = 0.1


def change_momentum(m: nn.Module) -> None:
    m[1].momentum = None  # what no value depends on


def replace_bias(m: nn.Module) -> None:
    m[1].bias = nn.Parameter(torch.ones_like(m[1].bias))


def write_bias(m: nn.Module) -> None:
    m[1].bias.data = torch.ones_like(m[1].bias)


def evaluate(m: nn.Module) -> None:
    m[1].eval()


def replace_pool(m: nn.Module) -> None:
    m[3] = nn.MaxPool2d(2, 2)


def freeze(m: nn.Module) -> None:
    m[4].conv1.requires_grad_(False)


@pytest.mark.parametrize(
    "change",
    [change_eps, change_momentum, replace_bias, write_bias, evaluate, replace_pool, freeze],
)
def test_a_model_that_changes_is_seen(change, native) -> None:
    model = made(resnet_like)
    act = warmed(model, images())
    gradients(model, images())
    assert len(native) == 1
    change(model)
    plain = copy.deepcopy(model)
    for _ in range(WARM + 2):
        assert all(map(same, gradients(model, images()), gradients(plain, images())))
    assert act.problems == []


def test_a_change_in_place_raises_with_the_words_of_autograd() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        m.y = m.norm(m.a(x))
        return m.c(m.relu(m.y))

    def built() -> nn.Module:
        layers = {name: nn.Linear(64, 64) for name in "ac"}
        return made(lambda: Sequence(call, relu=nn.GELU(), norm=nn.LayerNorm(64), **layers))

    x, words = torch.randn(4, 64), []
    for is_wrapped in (True, False):
        model = built()
        if is_wrapped:
            warmed(model, x)
        loss = model(x).sum()
        with torch.no_grad():
            model.y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            loss.backward()
        words.append(str(error.value).partition(" Hint")[0])
    assert words[0] == words[1]


@pytest.mark.parametrize("options", [{}, {"codec": FOUR}])
def test_graphs_are_read_twice_and_in_any_order(options: dict, native) -> None:
    model = made(resnet_like)
    warmed(model, images(), **options)
    losses = [model(images()).square().sum() for _ in range(3)]
    assert len(native) == 3
    parameters = list(model.parameters())
    first = torch.autograd.grad(losses[1], parameters, retain_graph=True)
    for i in (2, 0):
        torch.autograd.grad(losses[i], parameters)
    assert all(map(same, first, torch.autograd.grad(losses[1], parameters)))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(losses[1], parameters)


def test_second_derivatives(native) -> None:
    def layers() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))  # fmt: skip

    model, x = made(layers), torch.randn(4, 8)
    plain = copy.deepcopy(model)
    warmed(model, x.clone().requires_grad_())
    found = []
    for m in (model, plain):
        inputs = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(m(inputs).square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), list(m.parameters())))
    assert all(map(same, *found)) and len(native) >= 1


def test_no_cycle_holds_a_graph_that_never_runs(native) -> None:
    model = made(resnet_like)
    warmed(model, images())

    class Token:
        pass

    seen: list[weakref.ref] = []

    def mark(module: nn.Module, arguments: object, out: Tensor) -> None:
        token = Token()
        out.grad_fn.metadata["token"] = token  # which lives as long as the node
        seen.append(weakref.ref(token))

    hook = model[4].conv1.register_forward_hook(mark)
    gc.collect()
    gc.disable()
    try:
        out = model(images())
        assert len(native) == 1 and native[0].stored >= 10
        assert seen[0]() is not None
        del out
        assert seen[0]() is None
    finally:
        gc.enable()
        hook.remove()


def test_what_is_stored_is_freed_while_the_pass_runs(native) -> None:
    """The storage of a ReLU's result is gone once the next layer has run, and only bits are left."""
    from torch.multiprocessing.reductions import StorageWeakRef

    model = made(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.Tanh()
        )
    )
    x = images()
    warmed(model, x)
    seen = []
    hook = model[1].register_forward_hook(lambda m, a, out: seen.append(StorageWeakRef(out.untyped_storage())))  # fmt: skip
    out = model(x)
    assert len(native) == 1 and seen[0].expired()
    out.sum().backward()
    hook.remove()


@pytest.mark.parametrize("codec", [None, FOUR])
@pytest.mark.parametrize("all_ways", [False, True])
def test_no_pass_before_holds_memory_until_garbage_is_collected(
    codec: str | None, all_ways: bool, native, monkeypatch
) -> None:
    """The pass that was recorded for C++ had everything that it stored."""
    if all_ways:  # as on a GPU
        monkeypatch.setattr(_store, "ways", lambda device: Way)
    model, x = made(resnet_like), images()
    tt.wrap(model, least=0, codec=codec)
    gc.collect()
    gc.disable()
    try:
        before = {id(each) for each in gc.get_objects() if type(each) is Tensor}
        for _ in range(WARM + 2):
            model(x).sum().backward()
            model.zero_grad()
        held = [
            each for each in gc.get_objects()
            if type(each) is Tensor and id(each) not in before and each.nbytes >= 4096
        ]  # fmt: skip
    finally:
        gc.enable()
    assert native
    assert not held, [each.shape for each in held]


def test_threads_have_their_own_passes(native) -> None:
    model = made(resnet_like)
    expected = gradients(copy.deepcopy(model), images())
    act = warmed(model, images())
    found: list[bool] = []

    def work() -> None:
        for _ in range(3):
            torch.manual_seed(0)
            out = model(images())
            loss = (out * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum()
            got = torch.autograd.grad(loss, list(model.parameters()))
            found.append(all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, expected, strict=True)))  # fmt: skip

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 12 and len(native) == 12
    assert act.problems == []


def test_an_interrupted_pass_leaves_nothing(native) -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = m.relu(m.a(x))
        if m.stop:
            raise KeyboardInterrupt
        return m.b(y)

    model = made(lambda: Sequence(call, a=nn.Linear(8, 8), relu=nn.ReLU(), b=nn.Linear(8, 8)))
    model.stop, x = False, torch.randn(4, 8)
    plain = copy.deepcopy(model)
    act = warmed(model, x)
    for stop in (True, False, True, False, False):
        model.stop = stop
        if stop:
            with pytest.raises(KeyboardInterrupt):
                model(x)
        else:
            assert all(map(same, gradients(model, x), gradients(plain, x)))
    assert act.problems == []


def test_values_that_are_not_finite_are_kept(native, caplog) -> None:
    model = made(resnet_like)
    act = warmed(model, images(), codec=FOUR)
    x = images()
    gradients(model, x)
    x[0, 0, 0, 0] = float("inf")
    with caplog.at_level(logging.WARNING, "tuckfold.activations"):
        model(x).sum().backward()
    assert "has values that are not finite; it is kept" in caplog.text
    assert act.answers.count > 0 and len(native) == 2


def test_an_output_of_many_tensors(native) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.relu = nn.Linear(8, 8), nn.Linear(8, 8), nn.GELU()

        def forward(self, x: Tensor) -> dict[str, object]:
            return {"n": 3, "a": self.relu(self.a(x)), "rest": (self.relu(self.b(x)), None)}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two, self.c = Two(), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            found = self.two(x)
            return self.c(found["a"]), self.c(found["rest"][0])

    model, x = made(Model), torch.randn(4, 8)
    plain = copy.deepcopy(model)
    warmed(model, x)
    assert all(map(same, gradients(model, x), gradients(plain, x)))
    assert len(native) == 1


def test_what_cpp_does_not_know_stays_in_python(native, caplog) -> None:
    """The epsilon of a layer normalization is in its module, which is found by its weight."""
    plain = nn.LayerNorm(8, elementwise_affine=False)
    model = made(lambda: nn.Sequential(nn.Linear(8, 8), plain, nn.Linear(8, 8)))
    x = torch.randn(4, 8)
    with caplog.at_level(logging.DEBUG, "tuckfold.activations"):
        act = warmed(model, x)
        gradients(model, x)
    assert act.repeats and native == [] and act.problems == []
    assert "passes stay in Python" in caplog.text


@pytest.mark.parametrize("way", ["python", "cpp", "other"])
def test_the_way_is_chosen_by_the_environment(way: str) -> None:
    code = (
        "import torch, tuckfold.torch as tt\n"
        "act = tt.wrap(torch.nn.Linear(2, 2))\n"
        "print(act.library is not None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TUCKFOLD_HOOKS": way},
        capture_output=True,
        text=True,
        check=False,
    )
    if way == "other":
        assert "TUCKFOLD_HOOKS must be python or cpp, got 'other'" in done.stderr
    else:
        assert done.stdout.strip() == str(way == "cpp"), done.stderr


def test_signatures_follow_the_table() -> None:
    """Python and C++ list the same numbers: else no pass would ever run in C++."""
    out = made(Every)(images(2, 16))
    seen, stack = set(), [out.grad_fn]
    while stack:
        node = stack.pop()
        seen.add(kind(node))
        assert all(math.isfinite(n) for n in _record.signature_of(node))
        stack += [edge[0] for edge in node.next_functions if edge[0] is not None]
    assert len(seen & set(_record.CONSTANTS)) >= 7


def test_a_gpt_with_dropout(native) -> None:
    make, _ = NETWORKS["gpt"]
    model = made(make)
    plain = copy.deepcopy(model)
    warmed(model, tokens())
    for seed in range(3):
        assert all(map(same, gradients(model, tokens(), seed=seed), gradients(plain, tokens(), seed=seed)))  # fmt: skip
    assert len(native) == 3


class Attention(nn.Module):
    """q, k and v with large scores; k may be what a normalization makes, which a recipe makes again."""

    def __init__(self, makes: bool, **options: object) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.norm, self.makes, self.options = nn.LayerNorm(64), makes, options

    def forward(self, x: Tensor) -> Tensor:
        k = self.norm(self.k(x)) if self.makes else self.k(x)
        heads = [t.view(4, 32, 4, 16).transpose(1, 2) for t in (4 * self.q(x), k, self.v(x))]
        out = nn.functional.scaled_dot_product_attention(*heads, **self.options)
        return self.out(out.transpose(1, 2).reshape(4, 32, 64))


@pytest.mark.parametrize("makes", [False, True])
@pytest.mark.parametrize("codec", [FOUR, "zstd"])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_sums_of_attention(name: str, codec: str, makes: bool, native, monkeypatch) -> None:
    found = []
    x = torch.randn(4, 32, 64, generator=torch.Generator().manual_seed(1))
    for way in ("python", "cpp"):
        model = made(lambda: Attention(makes, **ATTENTIONS[name]))
        act = wrapped(model, way, monkeypatch, codec=codec)
        found.append([gradients(model, x, seed=seed) for seed in range(WARM + 2)])
        assert act.problems == []
    assert len(native) == 2
    for a, b in zip(*found, strict=True):
        assert all(map(same, a, b))
    if codec == "zstd":
        plain = [gradients(made(lambda: Attention(makes, **ATTENTIONS[name])), x, seed=seed) for seed in range(WARM + 2)]  # fmt: skip
        for a, b in zip(found[1], plain, strict=True):
            assert all(map(same, a, b))


def test_sums_of_attention_read_what_backward_was_given(native) -> None:
    """q, k and v are decoded once for both."""
    model, x = made(lambda: Attention(False)), torch.randn(4, 32, 64)
    warmed(model, x, codec=FOUR)
    with torch.profiler.profile() as profile:
        gradients(model, x)
    assert len(native) == 1
    calls = {e.key: e.count for e in profile.key_averages()}
    stored = calls["tuckfold::pack"]
    assert stored >= 4 and calls["tuckfold::unpack_into"] <= stored
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu"] == 2
