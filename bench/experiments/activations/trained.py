"""What a codec does to gradients of networks that were trained for a short while on real data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tuckfold.torch as tt
from bench.experiments.adaptive_activations.data import images
from bench.experiments.loss_curves import tasks
from bench.gpu.networks import Encoder

BATCHES = 8
IMAGES = 3000
SETTINGS = {
    "resnet18_trained": tasks.Setting("cifar10", 64, 2, IMAGES, 128, 150, 1e-3),
    "vit_trained": tasks.Setting("cifar10", 192, 6, IMAGES, 128, 300, 5e-4),
    "gpt_trained": tasks.Setting("docs", 384, 6, 1 << 20, 64, 400, 5e-4),
}
TINY = {"gpt_trained": tasks.SIZES["test"]["gpt"]}  # needs no data


class Patches(nn.Module):
    """A ViT for images of 32 x 32."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.zeros(64, width))
        self.blocks = nn.Sequential(*(Encoder(width, width // 32) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Pictures(tasks.Task):
    """Without a test."""

    def __init__(self, model: nn.Module, setting: tasks.Setting, device: torch.device) -> None:
        super().__init__(model.to(memory_format=torch.channels_last), setting, 0, device)
        x, y = images(setting.data, setting.train, 1)[0]
        self.x = x.to(device).to(memory_format=torch.channels_last)
        self.y = y.to(device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        picks = self._draw(step, len(self.x)).to(self.device)
        return self.x[picks].to(memory_format=torch.channels_last), self.y[picks]


def _task(name: str, setting: tasks.Setting, device: torch.device) -> tasks.Task:
    torch.manual_seed(0)
    if name.startswith("gpt"):
        return tasks.Text(setting, 0, device)
    make = Patches if name.startswith("vit") else tasks.resnet
    return Pictures(make(setting.width, setting.blocks), setting, device)


def _loss(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, -2).float(), y.flatten())


def rows(codecs: dict[str, str], device: str, tiny: bool) -> list[dict]:
    """One for each network and codec."""
    found = []
    for name, setting in (TINY if tiny else SETTINGS).items():
        task = _task(name, setting, torch.device(device))
        cast = torch.autocast(device, torch.bfloat16, enabled=not tiny)
        with cast:
            losses = [float(task.step(i)) for i in range(setting.steps)]
            batches = [task.batch(setting.steps + i) for i in range(BATCHES)]
            for variant, codec in codecs.items():
                least = {"least": 4096} if tiny else {}
                result = tt.check(
                    task.model, batches[0], loss=_loss, more=batches[1:], codec=codec, **least
                )
                quality = result.quality
                found.append(
                    {
                        "work": name,
                        "variant": variant,
                        "steps": setting.steps,
                        "first_loss": losses[0],
                        "last_loss": losses[-1],
                        "saved": result.saved,
                        "stored": result.stored,
                        "cosine": quality.cosine,
                        "parameter": quality.parameter,
                        "relative_error": quality.relative_error,
                        "bias": quality.bias,
                        "variance": quality.variance,
                        "batches": quality.batches,
                        "is_good": quality.is_good,
                    }
                )
    return found
