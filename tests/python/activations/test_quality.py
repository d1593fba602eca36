"""Gradients of trained networks on real data, with everything packed: cosine, bias, added variance."""

import copy
import functools
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from bench import images as sets  # noqa: E402
from nets import Block  # noqa: E402
from tuckfold.torch._activations._quality import Measure  # noqa: E402

NEAREST = "block_quant(bits=4, group=64)"
STOCHASTIC = "block_quant(bits=4, group=64, round=stochastic)"
BATCH, BATCHES = 64, 8


@functools.cache
def pictures() -> tuple[Tensor, Tensor]:
    """CIFAR-10 in 24 x 24, and its labels."""
    folder = sets.data_folder()
    if folder is None or not (folder / "cifar10").is_dir():
        pytest.skip("needs CIFAR-10 in the folder that TUCKFOLD_DATA names")
    x = sets.cifar10_part(sorted((folder / "cifar10").glob("train_*.webp"))[0])
    labels = (folder / "cifar10" / "train_labels.u8").read_bytes()[: len(x)]
    x = torch.from_numpy(x.copy()).float()[:, :, 4:28, 4:28] / 255 - 0.5
    return x.contiguous(), torch.tensor(list(labels))


def convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(3), nn.Flatten(), nn.Linear(32 * 64, 10))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Conv2d(3, 64, 3, 3), nn.Parameter(torch.zeros(64, 64))
        self.blocks = nn.Sequential(Block(64, 4, 0.0), Block(64, 4, 0.0))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


@functools.cache
def trained(make) -> nn.Module:
    x, y = pictures()
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(60):
        picks = torch.randint(len(x), (BATCH,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[picks]), y[picks]).backward()
        optimizer.step()
    return model


def batches() -> list[tuple[Tensor, Tensor]]:
    x, y = pictures()
    return [(x[i : i + BATCH].clone(), y[i : i + BATCH]) for i in range(0, BATCH * BATCHES, BATCH)]


@pytest.mark.parametrize("codec", [NEAREST, STOCHASTIC])
@pytest.mark.parametrize("make", [convolutions, Patches])
def test_four_bits_are_near_enough(make, codec: str) -> None:
    model = copy.deepcopy(trained(make))
    first, *more = batches()
    result = tt.check(model, first, loss=F.cross_entropy, more=more, codec=codec)
    assert result.saved > 7 * result.stored
    quality = result.quality
    assert quality.batches == BATCHES and quality.cosine >= 0.98, quality
    assert 0 < quality.variance <= 0.10 and quality.bias <= 0.02, quality
    assert result.is_good and not result.ok and str(quality) in str(result)
    assert "by less than what is safe" in str(result)


def test_two_bits_are_not() -> None:
    """The check can fail."""
    model = copy.deepcopy(trained(convolutions))
    first, *more = batches()
    result = tt.check(
        model, first, loss=F.cross_entropy, more=more, codec="block_quant(bits=1, group=256)"
    )
    assert not result.is_good and result.quality.cosine < 0.9
    assert "by more than what is safe" in str(result)


def test_the_measure_knows_bias_from_noise() -> None:
    torch.manual_seed(0)
    mean = torch.randn(4096)
    exact = [mean + torch.randn(4096) for _ in range(8)]
    noise = Measure(["w"])
    for g in exact:
        noise.add([g], [g + 0.3 * torch.randn(4096)])
    found = noise.result(False)
    assert found.bias < 0.03 and abs(found.variance - 0.09) < 0.02
    assert abs(found.relative_error - 0.3 / math.sqrt(2)) < 0.01
    bias = Measure(["w"])
    for g in exact:
        bias.add([g], [g + 0.1 * mean])
    found = bias.result(False)
    assert abs(found.bias - 0.1) < 0.01 and found.variance < 1e-6
    assert not found.is_good


def test_the_least_cosine_is_of_parameters_that_matter() -> None:
    measure = Measure(["large", "small", "none"])
    large, small = torch.ones(100), torch.tensor([1e-3, 0.0])
    measure.add([large, small, None], [large * 1.01, small.flip(0), None])
    found = measure.result(True)
    assert found.cosine > 0.9999 and found.variance is None
    measure.add([large, small * 1e6, None], [large, small.flip(0), None])
    assert measure.result(True).parameter == "small"


def test_gradients_that_are_not_numbers_are_not_good() -> None:
    measure = Measure(["w"])
    for _ in range(2):
        measure.add([torch.ones(4)], [torch.tensor([1.0, float("nan"), 1.0, 1.0])])
    assert not measure.result(True).is_good


def test_one_batch_is_repeated_with_other_seeds() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    result = tt.check(model, torch.randn(64, 64), codec=STOCHASTIC, least=1024)
    assert result.quality.batches == 8 and result.quality.variance is None
    assert 0 < result.quality.relative_error < 0.1 and result.quality.bias is None
    assert tt.check(model, torch.randn(64, 64), least=1024).quality is None
