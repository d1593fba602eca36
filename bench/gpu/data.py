"""Tensors to measure on, made on the device from fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import interpolate

CIFAR_REPEATS = 2  # 1.2 GB as f32


def seeded(device: torch.device, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def normal(device: torch.device, elems: int) -> torch.Tensor:
    return torch.randn(elems, device=device, generator=seeded(device, 1))


def act_iid(device: torch.device, count: int) -> torch.Tensor:
    """ReLU of independent normal values, count x 64 x 64: half of them zeros."""
    return torch.randn(count, 64, 64, device=device, generator=seeded(device, 2)).relu_()


def act_smooth(device: torch.device, count: int) -> torch.Tensor:
    """ReLU of smooth noise with a little rough noise, count x 64 x 64."""
    generator = seeded(device, 3)
    coarse = torch.randn(count, 1, 16, 16, device=device, generator=generator)
    smooth = interpolate(coarse, size=(64, 64), mode="bicubic", align_corners=False)[:, 0]
    rough = torch.randn(count, 64, 64, device=device, generator=generator)
    return smooth.add_(rough, alpha=0.3).relu_().contiguous()


def images(device: torch.device, count: int) -> torch.Tensor:
    """Octaves of noise, each half as strong as the one before, in 0 … 1, count x 256 x 256."""
    generator = seeded(device, 4)
    total = torch.full((count, 256, 256), 0.5, device=device)
    for side in (4, 8, 16, 32, 64, 128):
        octave = torch.randn(count, 1, side, side, device=device, generator=generator)
        octave = interpolate(octave, size=(256, 256), mode="bicubic", align_corners=False)
        total.add_(octave[:, 0], alpha=0.8 / side)
    grain = torch.randn(count, 256, 256, device=device, generator=generator)
    return total.add_(grain, alpha=0.004).clamp_(0, 1)


def cifar10(device: torch.device, folder: Path, parts: int) -> torch.Tensor:
    """CIFAR-10's training images in 0 … 1 from montages of 25 rows of 40; N x 3 x 32 x 32, repeated."""
    import numpy as np
    from PIL import Image

    paths = sorted(folder.glob("train_*.webp"))[:parts]
    if not paths:
        raise FileNotFoundError(f"no train_*.webp in {folder}")
    montages = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])
    tiles = torch.from_numpy(montages).to(device).view(len(paths), 25, 32, 40, 32, 3)
    values = tiles.permute(0, 1, 3, 5, 2, 4).reshape(-1, 3, 32, 32).float().div_(255)
    return values.repeat(CIFAR_REPEATS, 1, 1, 1)


class Data:
    """Tensors by name, each made when first asked for. Without a GPU they are small."""

    def __init__(self, device: torch.device, dry: bool, cifar: Path | None) -> None:
        count = 1000 if dry else 1
        self._makers: dict[str, Callable[[], torch.Tensor]] = {
            "normal": lambda: normal(device, 256 * 3 * 104**2 if dry else 1365 * 3 * 512**2),
            "normal_bf16": lambda: self("normal").bfloat16(),
            "act_iid": lambda: act_iid(device, 65536 // count // 4 * 4),
            "act_iid_bf16": lambda: self("act_iid").bfloat16(),
            "act_smooth": lambda: act_smooth(device, 65536 // count // 4 * 4),
            "images": lambda: images(device, 4096 // count),
        }
        self.fields = ("act_iid", "act_smooth", "images")  # of about 1.07 GB
        if cifar is not None:
            self._makers["cifar10"] = lambda: cifar10(device, cifar, 1 if dry else 50)
            self.fields += ("cifar10",)
        self._made: dict[str, torch.Tensor] = {}

    def clear(self) -> None:
        """Gives the memory back."""
        self._made.clear()

    def __call__(self, name: str) -> torch.Tensor:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]
