"""Wrapped models have the gradients of plain ones, bit for bit, and store less."""

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import NETWORKS, Sequence, bits, exact, gradients, images, made, same, stored, tokens  # noqa: E402


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("recompute", [True, False])
def test_gradients_are_bit_identical(name: str, recompute: bool) -> None:
    make, batch = NETWORKS[name]
    with exact(made(make), batch(), recompute=recompute) as act:
        plan = act.plan(batch())
        assert plan.after < plan.before


@pytest.mark.parametrize(
    ("name", "least"), [("alexnet", 2.5), ("resnet", 1.4), ("unet", 1.2), ("gpt", 1.4)]
)
def test_less_is_stored(name: str, least: float) -> None:
    make, batch = NETWORKS[name]
    with tt.activations(made(make), least=0) as act:
        assert act.plan(batch(16)).ratio > least


@pytest.mark.parametrize("name", ["alexnet", "resnet", "unet"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    make, batch = NETWORKS[name]
    with exact(made(make).to(dtype), batch().to(dtype)):
        pass


@pytest.mark.parametrize("name", ["alexnet", "resnet", "unet"])
def test_channels_last(name: str) -> None:
    make, batch = NETWORKS[name]
    x = batch().to(memory_format=torch.channels_last)
    with exact(made(make).to(memory_format=torch.channels_last), x):
        pass


@pytest.mark.parametrize("name", NETWORKS)
def test_autocast_inside(name: str) -> None:
    make, batch = NETWORKS[name]

    def call(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return m.net(x)

    with exact(Sequence(call, net=made(make)), batch()) as act:
        plan = act.plan(batch())
        assert plan.after < plan.before


@pytest.mark.parametrize("name", NETWORKS)
def test_autocast_around(name: str) -> None:
    make, batch = NETWORKS[name]
    with torch.autocast("cpu", torch.bfloat16), exact(made(make), batch()):
        pass


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-42])
def test_hostile_values(value: float) -> None:
    x = images()
    x[0, 0, :8] = value
    for name in ("alexnet", "resnet", "unet"):
        with exact(made(NETWORKS[name][0]), x):
            pass


def test_training_goes_the_same_way() -> None:
    def train(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(5):
            x = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), torch.arange(8)).backward()
            optimizer.step()
        return [*model.parameters(), *model.buffers()]

    plain = made(NETWORKS["resnet"][0])
    wrapped = copy.deepcopy(plain)
    tt.wrap(wrapped, least=0)
    assert all(same(a, b) for a, b in zip(train(plain), train(wrapped), strict=True))


def test_frozen_backbone() -> None:
    model = made(NETWORKS["resnet"][0]).eval()
    for p in list(model.parameters())[:-2]:
        p.requires_grad_(False)
    for p in model[0].parameters():
        p.requires_grad_(True)  # so that gradients must pass through what is frozen
    with exact(model, images(8)) as act:
        plan = act.plan(images(8))
        assert stored(plan)["convolution", "input"] == {"nothing", "keep", "1 bit"} - {"1 bit"}
        assert plan.ratio > 3


POOLS = [
    nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 1), nn.MaxPool2d((2, 3), (3, 1), (1, 0)),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(2, 2, dilation=2), nn.MaxPool2d(5, 3, 2, (1, 2)),
    nn.MaxPool2d(16, 2, 8), nn.MaxPool2d(17, 1, 8), nn.MaxPool2d(1), nn.MaxPool2d((1, 2)),
    nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(3), nn.AdaptiveMaxPool2d((3, 5)), nn.LPPool2d(2, 2),
    nn.FractionalMaxPool2d(2, output_size=5), nn.ReflectionPad2d(2), nn.ReplicationPad2d(2), nn.ZeroPad2d(1),
]  # fmt: skip


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_pools_and_padding(pool: nn.Module, channels_last: bool) -> None:
    format = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool, nn.Conv2d(4, 2, 1)).to(
        memory_format=format
    )
    x = images(2, 37).to(memory_format=format)
    x[0, :, 5:9] = float("nan")
    x[1, :, 3:5] = -float("inf")
    with exact(model, x):
        pass


@pytest.mark.parametrize("pool", [nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(2), nn.AdaptiveMaxPool3d(2), nn.ReplicationPad3d(1)], ids=str)  # fmt: skip
def test_volumes(pool: nn.Module) -> None:
    model = nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), pool, nn.Conv3d(4, 2, 1))
    with exact(model, torch.rand(2, 1, 9, 11, 13)) as act:
        assert "nothing" in {row.how for row in act.plan(torch.rand(2, 1, 9, 11, 13)).rows}


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(), nn.ReLU(True), nn.ReLU6(), nn.LeakyReLU(0.2), nn.LeakyReLU(0.2, True), nn.Hardtanh(-1, 0.5),
     nn.Hardtanh(0, 1e-45), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.SiLU(True), nn.Mish(), nn.Hardswish(), nn.ELU(), nn.Softplus(),
     nn.Sigmoid(), nn.Tanh(), nn.PReLU(), nn.CELU(), nn.SELU(), nn.Softmax(1), nn.Threshold(0.1, 20), nn.RReLU(), nn.GLU(1)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations(activation: nn.Module, dtype: torch.dtype) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        activation,
        nn.Dropout(0.3),
        nn.Conv2d(2 if isinstance(activation, nn.GLU) else 4, 2, 1),
    )
    x = images(2, 17)
    x[0, 0, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    with exact(model.to(dtype), x.to(dtype)):
        pass


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(4, track_running_stats=False), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 15, 15]), nn.LayerNorm([15], bias=False), nn.RMSNorm([15])], ids=str)  # fmt: skip
@pytest.mark.parametrize("frozen", ["", "weight", "bias", "both"])
@pytest.mark.parametrize("training", [True, False])
def test_normalizations(norm: nn.Module, frozen: str, training: bool) -> None:
    norm = copy.deepcopy(norm)
    for name, p in norm.named_parameters():
        p.requires_grad_(frozen not in (name, "both"))
        nn.init.normal_(p)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 2, 1)).train(training)
    with exact(model, images(2, 17)):
        pass


def test_images_of_bytes_are_stored_as_bytes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    pixels = torch.randint(256, (2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    for scale in (1, 255):
        # The model gets the only reference, as from a data loader whose batch is moved.
        root = Sequence(lambda m, x, scale=scale: m.net(x.float() / scale), net=model)
        with exact(root, pixels) as act:
            assert stored(act.plan(pixels))["convolution", "input"] == {"u8", "keep"}
    by_product = Sequence(lambda m, x: m.net(x.float() * (torch.tensor(1.0) / 255)), net=model)
    assert not torch.equal(pixels.float() * (torch.tensor(1.0) / 255), pixels.float() / 255)
    with exact(by_product, pixels) as act:
        assert stored(act.plan(pixels))["convolution", "input"] == {"u8", "keep"}
    root = Sequence(lambda m, x: m.net(x.float() / 255 + 1e-7), net=model)
    with exact(root, pixels) as act:
        assert stored(act.plan(pixels))["convolution", "input"] == {"keep"}


def test_small_integers_are_narrow() -> None:
    model = Sequence(lambda m, t: m.net(t.clone()), net=nn.Embedding(300, 8))
    with exact(model, tokens()) as act:
        assert stored(act.plan(tokens()))["embedding", "indices"] == {"narrow"}


def test_bits_of_the_helper() -> None:
    assert not same(torch.tensor(0.0), torch.tensor(-0.0))
    assert same(torch.tensor(float("nan")), torch.tensor(float("nan")))
    assert bits(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.int16
    assert gradients(nn.Linear(2, 2), torch.ones(1, 2))[0] is not None
