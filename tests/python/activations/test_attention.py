"""Fused attention with q, k and v that a codec stores: its gradient is that of attention at the decoded values."""

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import ATTENTIONS, Block, Sequence, gradients, made  # noqa: E402
from test_lossy import error, is_steady  # noqa: E402
from tuckfold.torch._activations import _attention as attention  # noqa: E402

FOUR = "block_quant(bits=4, group=64)"


class Attention(nn.Module):
    """q, k and v have a storage each; how their gradients come out is noted.

    gives: the output of attention itself, which is then held by the caller.
    """

    def __init__(self, wide: float = 1.0, gives: bool = False, **options) -> None:
        super().__init__()
        self.gives = gives
        self.q, self.k, self.v = (nn.Linear(64, 64) for _ in range(3))
        self.wide, self.options = wide, options
        self.seen: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        values = {"q": self.wide * self.q(x), "k": self.k(x), "v": self.v(x)}
        for name, value in values.items():
            self.seen[name] = value.detach().clone()
            value.register_hook(lambda g, name=name: self.seen.__setitem__(f"d{name}", g.clone()))
        heads = [t.view(4, 32, 4, 16).transpose(1, 2) for t in values.values()]
        out = F.scaled_dot_product_attention(*heads, **self.options)
        return out if self.gives else out + 1


def rules(folder: Path, codec: str = FOUR) -> Path:
    path = folder / "rules.toml"
    path.write_text(f'[[rule]]\nop = "scaled_dot*"\nstore = "{codec}"\n')
    return path


def decoded(x: Tensor, codec: str = FOUR) -> Tensor:
    return tt.unpack(tt.pack(x.flatten(), codec), codec, (x.numel(),)).view(x.shape)


def of_decoded(model: Attention, g: Tensor, codec: str = FOUR) -> dict[str, Tensor]:
    """The gradients of q, k and v at what their codec makes of them."""
    leaves = {name: decoded(model.seen[name], codec).requires_grad_() for name in "qkv"}
    heads = [t.view(4, 32, 4, 16).transpose(1, 2) for t in leaves.values()]
    F.scaled_dot_product_attention(*heads, **model.options).backward(g)
    return {f"d{name}": leaf.grad for name, leaf in leaves.items()}


@pytest.mark.parametrize("codec", [FOUR, "block_quant(bits=8, group=64)"])
@pytest.mark.parametrize("gives", [False, True])  # whether the caller holds the output
@pytest.mark.parametrize("least", [4096, 1])  # the sums are kept, or have a handle
@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_gradient_is_that_of_decoded_values(
    name: str, least: int, gives: bool, codec: str, tmp_path: Path
) -> None:
    model = made(lambda: Attention(4.0, gives, **ATTENTIONS[name]))
    act = tt.wrap(model, rules=rules(tmp_path, codec), least=least)
    for step in range(7):
        torch.manual_seed(step)
        x, g = torch.randn(4, 32, 64), torch.randn(4, 4, 32, 16)
        out = model(x)
        for _ in range(2):
            out.backward(g, retain_graph=True)
            for key, expected in of_decoded(model, g, codec).items():
                assert torch.equal(model.seen[key], expected), (step, key)
    assert is_steady(act) and act.problems == []


def test_few_bits_do_not_explode(tmp_path: Path) -> None:
    """With exact sums the error would be many times the gradient."""
    model = made(lambda: Block(64, p=0.0))
    with torch.no_grad():
        model.qkv.weight *= 6
    x = torch.randn(2, 64, 64)
    expected = gradients(copy.deepcopy(model), x)
    errors = []
    for bits in (8, 4, 2):
        codec = f"block_quant(bits={bits}, group=64, round=stochastic)"
        act = tt.wrap(model, rules=rules(tmp_path, codec), least=4096)
        hows = {r.role: r.how for r in act.plan(x).rows if r.op.startswith("scaled_dot")}
        assert hows["query"] == hows["key"] == hows["value"] == codec
        assert hows["output"] == (codec if bits == 8 else "recompute")
        assert hows["logsumexp"] == "keep"
        found = [error(gradients(model, x), expected) for _ in range(4)]
        assert is_steady(act)
        errors.append(max(found))
        act.remove()
    assert errors == sorted(errors) and errors[0] < 0.1 and errors[1] < 0.6 and errors[2] < 2.5


def test_an_output_that_was_changed_is_an_error_as_without_hooks(tmp_path: Path) -> None:
    model = made(lambda: Attention(4.0, gives=True))
    act = tt.wrap(model, rules=rules(tmp_path), least=4096)
    for _ in range(7):
        out = model(torch.randn(4, 32, 64))
        with torch.no_grad():
            out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward(torch.randn(4, 4, 32, 16))
    assert act.problems == []


def test_a_budget_gives_scores_few_bits_once_their_noise_is_measured() -> None:
    model = made(lambda: nn.Sequential(*(Block(64, p=0.0) for _ in range(2))))
    x = torch.randn(8, 64, 64)
    act = tt.wrap(model, noise=0.5, least=4096)
    fit = act.fit(x)
    scores = [how for name, how, *_ in fit.items if ".query" in name or ".key" in name]
    assert scores and not any(f"bits={b}" in how for how in scores for b in (2, 3, 4, 6))
    act.probe(lambda batch: model(batch).square().mean().backward(), [x], probes=8)
    fit = act.fit(x)
    scores = [how for name, how, *_ in fit.items if ".query" in name or ".key" in name]
    assert any(f"bits={b}" in how for how in scores for b in (2, 3, 4, 6)), fit
    expected = gradients(copy.deepcopy(model), x)
    assert error(gradients(model, x), expected) < 1.5


class Wide(nn.Module):
    """Scores grow with the square of wide."""

    def __init__(self, wide: float) -> None:
        super().__init__()
        self.qkv, self.out, self.wide = nn.Linear(32, 96), nn.Linear(32, 32), wide

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).mul(self.wide).view(1, 256, 3, 32).permute(2, 0, 1, 3)
        return self.out(F.scaled_dot_product_attention(*qkv.unsqueeze(2)).view(256, 32))


class Normalized(Wide):
    """q and k are made again from what their normalizations read."""

    def __init__(self, wide: float) -> None:
        super().__init__(wide)
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        nn.init.constant_(self.norm1.weight, wide)
        nn.init.constant_(self.norm2.weight, wide)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.contiguous() for t in self.qkv(x).view(256, 3, 32).unbind(1))
        heads = [t.view(1, 1, 256, 32) for t in (self.norm1(q), self.norm2(k), v)]
        return self.out(F.scaled_dot_product_attention(*heads).view(256, 32))


def wide_errors(model: nn.Module, codec: str, way) -> list[float]:
    torch.manual_seed(1)
    x = torch.randn(256, 32)
    plain = copy.deepcopy(model)
    plain(x).square().mean().backward()
    expected = [p.grad for p in plain.parameters()]
    act = tt.wrap(model, least=512, codec=codec)
    called, found = way(model), []
    for _ in range(6):
        model.zero_grad()
        called(x).square().mean().backward()
        found.append(error([p.grad for p in model.parameters()], expected))
    assert act.problems == []
    act.remove()
    return found


@pytest.mark.parametrize("way", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Wide, Normalized])
@pytest.mark.parametrize("codec", [FOUR, "block_quant(bits=8, group=64, round=stochastic)"])
def test_large_scores_do_not_explode_with_a_codec(kind, codec: str, way: str) -> None:
    """With saved sums the error would be millions of times the gradient, whatever the number of bits."""
    torch.compiler.reset()
    call = (lambda m: m) if way == "eager" else (lambda m: torch.compile(m, backend=way))
    small = max(wide_errors(made(lambda: kind(2.0)), codec, call))
    large = max(wide_errors(made(lambda: kind(16.0)), codec, call))
    largest = max(wide_errors(made(lambda: kind(32.0)), codec, call))
    assert 0 < small < 0.5 and large < 10 and largest < 30, (small, large, largest)
    torch.compiler.reset()


def test_a_lossless_codec_leaves_the_sums_as_they_were() -> None:
    for way in (lambda m: m, lambda m: torch.compile(m, backend="aot_eager")):
        assert wide_errors(made(lambda: Wide(32.0)), "zstd", way) == [0.0] * 6
    torch.compiler.reset()


LOSSLESS = ["zstd", "shuffle | zstd"]
FINE = ["bounded(rel=0.0001)", "dct_quant(rate=12)", "block_quant(bits=8, group=64) | zstd"]
COARSE = ["block_quant(bits=4, group=64)", "bounded(rel=0.05)", "dct_quant(rate=4)"]


@pytest.mark.parametrize("codec", LOSSLESS + FINE + COARSE)
def test_eight_bits_are_the_least_that_scores_get(codec: str) -> None:
    """A codec that is as good, or loses nothing, stays."""

    def call(m, x):
        q, k, v = m.qkv(x).chunk(3, -1)
        scores = torch.einsum("bic,bjc->bij", q, k).softmax(-1)
        return m.out(scores @ v)

    model = made(lambda: Sequence(call, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)))
    x = torch.randn(4, 64, 64)
    expected = gradients(copy.deepcopy(model), x)
    act = tt.wrap(model, codec=codec, least=4096)
    hows = {row.how for row in act.plan(x).rows if row.op == "softmax"}
    (how,) = hows
    assert how == codec if codec not in COARSE else "bits=8" in how
    found = error(gradients(model, x), expected)
    assert found == 0 if codec in LOSSLESS else found < 0.3


def test_an_output_of_decoded_values_lowers_the_error(monkeypatch, tmp_path: Path) -> None:
    """Of the gradients of q and k, with scores that deviate by about 10."""
    monkeypatch.setenv("TUCKFOLD_HOOKS", "python")
    torch.manual_seed(0)
    x, g = torch.randn(4, 32, 64), torch.randn(4, 4, 32, 16)
    model = made(lambda: Attention(30.0))
    model(x).backward(g)
    expected = [model.seen["dq"], model.seen["dk"]]
    act = tt.wrap(model, rules=rules(tmp_path, "block_quant(bits=8, group=64)"), least=1)
    found = []
    for with_output in (True, False):
        if not with_output:
            monkeypatch.setattr(attention.Output, "value", lambda self: None)
        model(x).backward(g)
        found.append(error([model.seen["dq"], model.seen["dk"]], expected))
    assert 0 < found[0] < 0.85 * found[1] < 0.2, found
    act.remove()
