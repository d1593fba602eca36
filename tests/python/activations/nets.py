"""Networks and comparisons that the tests of activations share."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def bits(x: Tensor) -> Tensor:
    """Integers with the same bits, so that NaN equals itself and -0 is not 0."""
    return x.view(
        {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    )


def same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def gradients(model: nn.Module, *x: Tensor, seed: int = 0) -> list[Tensor | None]:
    """Of a loss that depends on every output, with buffers left as they were."""
    buffers = [b.clone() for b in model.buffers()]
    model.zero_grad()
    torch.manual_seed(seed)
    out = model(*x)
    leaves = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
    sum(
        (t.float() * torch.linspace(-1, 1, t.numel()).reshape(t.shape)).sum() for t in leaves
    ).backward()
    with torch.no_grad():
        for b, value in zip(model.buffers(), buffers, strict=True):
            b.copy_(value)
    return [p.grad.clone() if p.grad is not None else None for p in model.parameters()]


class Sequence(nn.Module):
    """A function with modules."""

    def __init__(self, call: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.call = call

    def forward(self, *x: Tensor) -> Tensor:
        return self.call(self, *x)


class Residual(nn.Module):
    def __init__(self, c: int, inplace: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=self.inplace)
        y = self.bn2(self.conv2(y))
        if self.inplace:
            y += x
        else:
            y = y + x
        return F.relu(y, inplace=self.inplace)


class Block(nn.Module):
    """A transformer's block with dropout."""

    def __init__(self, c: int, heads: int = 2, p: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.drop, self.heads = nn.Dropout(p), heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(b, t, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(self.drop(F.gelu(self.up(self.norm2(x))))))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm, self.a, self.b, self.c = nn.RMSNorm(c), *(nn.Linear(c, c) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.c(F.silu(self.a(y)) * self.b(y))


def alexnet_like() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        nn.Flatten(), nn.Dropout(), nn.Linear(16 * 8 * 8, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def resnet_like(inplace: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace), nn.MaxPool2d(3, 2, 1),
        *(Residual(8, inplace) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def unet_like() -> nn.Module:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        a = F.leaky_relu(m.a(x), 0.1)
        b = F.relu6(m.b(F.avg_pool2d(a, 2)))
        up = F.interpolate(b, scale_factor=2)
        return m.c(F.pad(torch.cat([a, up], 1), (1, 1, 1, 1), mode="reflect"))

    return Sequence(
        call,
        a=nn.Conv2d(3, 8, 3, padding=1),
        b=nn.Conv2d(8, 8, 3, padding=1),
        c=nn.Conv2d(16, 3, 3),
    )


def gpt_like(c: int = 32) -> nn.Module:
    def call(m: nn.Module, tokens: Tensor) -> Tensor:
        return m.head(m.blocks(m.drop(m.embed(tokens))))

    return Sequence(
        call, embed=nn.Embedding(300, c), drop=nn.Dropout(0.1),
        blocks=nn.Sequential(Block(c), Gated(c), Block(c)), head=nn.Linear(c, 300),
    )  # fmt: skip


def images(n: int = 4, side: int = 32) -> Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def tokens(n: int = 4, length: int = 16) -> Tensor:
    return torch.randint(300, (n, length), generator=torch.Generator().manual_seed(1))


NETWORKS = {
    "alexnet": (alexnet_like, images),
    "resnet": (resnet_like, images),
    "resnet, not in place": (lambda: resnet_like(False), images),
    "unet": (unet_like, images),
    "gpt": (gpt_like, tokens),
}


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


@contextmanager
def exact(model: nn.Module, *x: Tensor, **options: object) -> Iterator[object]:
    """Wraps a model, and afterwards holds its gradients to those of a copy.

    In five passes: the fourth repeats an earlier one by what was learnt of it, the fifth in C++.
    """
    import tuckfold.torch as tt

    plain = copy.deepcopy(model)
    with tt.activations(model, **({"least": 0} | options)) as act:
        yield act
        got = [gradients(model, *x) for _ in range(5)]
    expected = gradients(plain, *x)
    for found in got:
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert act.problems == []


def stored(plan: object) -> dict[tuple[str, str], set[str]]:
    """How tensors were stored, by operator and role."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in plan.rows:
        found.setdefault((row.op, row.role), set()).add(row.how)
    return found


# Ways to call torch's attention, for 32 tokens.
ATTENTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.7},
    "masked": {"attn_mask": torch.randn(32, 32, generator=torch.Generator().manual_seed(5))},
}
