"""docs/tasks/dataset.md with real images: CIFAR-10 packed, and a small network trained from the file.

python examples/dataset.py [--samples 5000] [--epochs 2] [--folder .]

TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's Fashion-MNIST is used.
"""

import argparse
from pathlib import Path

import torch
from real_images import real_images
from torch import nn

import tuckfold
import tuckfold.torch


def train(path: Path, channels: int, epochs: int) -> tuple[float, float]:
    """The mean loss of the first and of the last epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    images = tuckfold.torch.Images(mean=120, std=64, pad=2, crop=28, flip=True)
    loader = tuckfold.torch.DataLoader(
        path, 100, arrays=("image", "label"), shuffle=True, images={"image": images}
    )
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        losses.append(total)
    return losses[0], losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    name, images, labels = real_images(options.samples)
    for codec in ("raw", "dct_quant(rate=4)"):
        path = options.folder / "images.tuck"
        tuckfold.save(path, image=images, label=labels, codec=codec, force=True)
        with tuckfold.open(path) as f:
            some = f["image"][:500]
            quality = tuckfold.psnr(images[:500], some)
            ratio = f["image"].ratio
        first, last = train(path, images.shape[1], options.epochs)
        print(f"{name}, {codec}: {ratio:.1f} times smaller, {quality:.0f} dB, loss {first:.2f} to {last:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
