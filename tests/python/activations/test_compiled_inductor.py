"""Wrapped models compiled by inductor, which fuses operators. Compiling takes long, so there are few."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from compiling import fresh, hows  # noqa: E402, F401
from nets import Residual, Sequence, gradients, made, same  # noqa: E402


def convolutions() -> nn.Module:
    """Normalizations, gates, dropout, GELU and a mask."""

    def call(m, x):
        y = m.block(F.relu(m.norm(m.first(x))))
        y = F.dropout(F.gelu(m.up(y.flatten(2).transpose(1, 2))), 0.2)
        return m.down(y).relu().mean(1)

    return Sequence(
        call,
        first=nn.Conv2d(3, 8, 3, padding=1),
        norm=nn.BatchNorm2d(8),
        block=Residual(8, inplace=True),
        up=nn.Linear(8, 32),
        down=nn.Linear(32, 9),
    )


@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16]
)
def test_gradients_keep_every_bit(dtype) -> None:
    model = made(convolutions).to(dtype)
    plain = copy.deepcopy(model)
    x = torch.rand(3, 3, 16, 16).to(dtype)
    act = tt.wrap(model, least=1024)
    got = gradients(torch.compile(model, fullgraph=True), x)
    expected = gradients(torch.compile(plain, fullgraph=True), x)
    assert act.problems == []
    assert all(map(same, got, expected))
    assert {"recompute", "1 bit"} <= hows(act)
    stored = {(row.module, row.op): row.how for row in act.plan().rows}
    assert "recompute" in {how for (_, op), how in stored.items() if op in ("gelu", "relu")}


def test_caches_tell_plain_and_wrapped_graphs_apart(tmp_path, monkeypatch) -> None:
    """The second compilation of each comes from torch's cache, and stores what the first did."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def build():
        return Sequence(lambda m, x: m.b(F.gelu(m.a(x))), a=nn.Linear(16, 256), b=nn.Linear(256, 4))

    x, saved, found = torch.randn(32, 16), [], []

    def hits() -> int:
        return torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]

    for i in range(4):
        torch.compiler.reset()
        model = made(build)
        act = tt.wrap(model, least=1024) if i % 2 else None
        before = hits()
        out = torch.compile(model, fullgraph=True)(x)
        found.append(hits() - before)
        saved.append(sum(t.nbytes for t in out.grad_fn.saved_tensors))
        out.sum().backward()  # only then is it in the cache
        if act is not None:
            if i == 3:
                with pytest.raises(ValueError, match=r"\[plan\] the compiled graphs came from"):
                    act.plan()
            act.remove()
    assert saved[0] == saved[2] > saved[1] == saved[3]
    assert found == [0, 0, 1, 1]
