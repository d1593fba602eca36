"""What layers of a trained network hold between forward and backward, for measuring codecs on.

A small residual network is trained on CIFAR-10 for a few hundred steps; the tensors that its
layers give for unseen images are kept beside the builds, since training takes minutes.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.record import ROOT

CACHE = ROOT / "build/bench/activations.npz"
STEPS, BATCH, TEST = 600, 64, 64


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: torch.Tensor, seen: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        first = seen[f"{name}_conv1"] = self.conv1(x)
        second = seen[f"{name}_conv2"] = self.conv2(F.relu(self.bn1(first)))
        skip = x if self.short is None else self.short(x)
        out = seen[f"{name}_relu"] = F.relu(self.bn2(second) + skip)
        return out


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.ModuleList([Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)])
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        seen: dict[str, torch.Tensor] = {}
        seen["stem"] = self.stem(x)
        x = F.relu(self.norm(seen["stem"]))
        for i, block in enumerate(self.blocks, start=1):
            x = block(x, seen, f"block{i}")
        return self.head(x.mean((2, 3))), seen


def train(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Activations of the last TEST images, after training on the others. NCHW, u8 images."""
    torch.manual_seed(1)
    x = torch.from_numpy(images).float() / 255
    y = torch.from_numpy(labels.astype(np.int64))
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, STEPS)
    many = len(x) - TEST
    for step in range(STEPS):
        index = torch.randint(many, (BATCH,))
        loss = F.cross_entropy(network(x[index])[0], y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"activations: step {step} of {STEPS}, loss {loss.item():.2f}", file=sys.stderr)
    with torch.no_grad():  # batch statistics, as while training
        guess, seen = network(x[many:])
    right = (guess.argmax(1) == y[many:]).float().mean().item()
    print(f"activations: {right:.0%} of {TEST} unseen images right", file=sys.stderr)
    return {name: value.numpy() for name, value in seen.items()}


def activations(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        values = train(images, labels)
        partial = CACHE.with_suffix(".partial.npz")
        np.savez(partial, **values)
        partial.rename(CACHE)
    with np.load(CACHE) as file:
        return {name: file[name] for name in file.files}
