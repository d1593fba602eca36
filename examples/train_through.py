"""docs/tasks/train_through.md with real images: a network learns to restore what dct_chop leaves of them.

python examples/train_through.py [--samples 500] [--keep 2] [--epochs 3]

TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's Fashion-MNIST is used.
"""

import argparse

import torch
from real_images import real_images
from torch import nn

import tuckfold.torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    name, pixels, _ = real_images(options.samples)
    images = torch.from_numpy(pixels) / 255
    channels = images.shape[1]
    codec = tuckfold.torch.Codec(f"dct_chop(keep={options.keep})")
    stored = codec.compress(images)  # kept in place of the images
    left = codec.decompress(stored, images.shape)
    model = nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, channels, 3, 1, 1))  # fmt: skip
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(options.epochs):
        for some, wanted in zip(stored.split(50), images.split(50), strict=True):
            x = codec.decompress(some, wanted.shape)
            loss = (x + model(x) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        before = (left - images).square().mean().sqrt()
        after = (left + model(left) - images).square().mean().sqrt()
    smaller = images.numel() / stored.numel()
    print(f"{name}: {smaller:.0f} times fewer values, error {float(before):.4f}, after the network {float(after):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
