"""The recipe of docs/tasks/activations.md: its gradients on trained networks, and why each rule is there."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
PAGE = Path(__file__).parents[3] / "docs/tasks/activations.md"


@pytest.fixture(scope="module")
def recipe() -> dict:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1]
    names: dict = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102: a page of ours
    return names


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(3 * q, 3 * k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norms[1](x))


def transformer() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64), *[Block(64) for _ in range(3)], torch.nn.Linear(64, 16)
    )


def relu_network() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for before, after in ((3, 16), (16, 16), (16, 16), (16, 16)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after)]
        layers += [torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 16, 10))


def trained(make, batch) -> tuple:
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(60):
        x, y = batch(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model, *batch(999)


def images(step: int) -> tuple:
    g = torch.Generator().manual_seed(step)
    label = torch.randint(10, (32,), generator=g)
    grid = torch.arange(16.0)
    wave = torch.sin(grid[None, :, None] * (label[:, None, None] + 1) / 9 + grid[None, None, :] / 5)
    x = wave[:, None].expand(-1, 3, -1, -1) + 0.2 * torch.randn(32, 3, 16, 16, generator=g)
    return x, torch.nn.functional.one_hot(label, 10).float()


def sequences(step: int) -> tuple:
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 65, 16, generator=g).cumsum(1) / 3
    return x[:, :-1], x[:, 1:]


def cosine(model, x, y, context) -> float:
    def gradient(loss) -> torch.Tensor:
        model.zero_grad()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    exact = gradient(torch.nn.functional.mse_loss(model(x), y))
    with context:
        loss = torch.nn.functional.mse_loss(model(x), y)
    return float(torch.cosine_similarity(gradient(loss), exact, dim=0))


@pytest.mark.parametrize(("make", "batch"), [(relu_network, images), (transformer, sequences)])
@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ("block_quant(bits=8)", 0.9999),
        ("block_quant(bits=4, group=64)", 0.99),
        ("dct_quant(rate=8)", 0.999),
    ],
)
def test_gradients_of_trained_networks_are_kept(
    recipe, make, batch, spec: str, least: float
) -> None:
    model, x, y = trained(make, batch)
    packer = recipe["PackActivations"](spec)
    assert cosine(model, x, y, packer.on()) > least
    assert packer.before > 1.5 * packer.after > 0


def test_a_recipe_that_packs_everything_would_not_keep_them(recipe) -> None:
    """Without the sign, a ReLU's gate opens; without exact attention, its probabilities explode."""
    import tuckfold.torch as tt

    def everything(spec: str):
        return torch.autograd.graph.saved_tensors_hooks(
            lambda t: (
                tt.Packed.pack(t, spec)
                if t.is_floating_point()
                and t.numel() >= 1024
                and not isinstance(t, torch.nn.Parameter)
                else t
            ),
            lambda p: p.unpack() if isinstance(p, tt.Packed) else p,
        )

    model, x, y = trained(relu_network, images)
    assert cosine(model, x, y, everything("dct_quant(rate=8)")) < 0.985
    model, x, y = trained(transformer, sequences)
    assert not cosine(model, x, y, everything("block_quant(bits=2)")) > 0.9


def test_statistics_of_group_normalizations_are_kept(recipe) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(8, 64, 1), torch.nn.GroupNorm(32, 64), torch.nn.GELU(), torch.nn.Conv2d(64, 4, 1)
    )  # fmt: skip
    x = torch.randn(128, 8, 4, 4) * torch.exp(2 * torch.randn(128, 1, 1, 1))
    y = torch.randn(128, 4, 4, 4)
    packer = recipe["PackActivations"]("block_quant(bits=4, group=64)")
    assert cosine(model, x, y, packer.on()) > 0.99 and packer.before > 0
