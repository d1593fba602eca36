"""docs/tasks/activations.md with real images: a network is trained plainly, exactly packed, and with a codec.

python examples/activations.py [--samples 2000]

TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's Fashion-MNIST is used.
"""

import argparse
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
import torch.nn.functional as F
from real_images import real_images
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import tuckfold.torch as tt


class PackActivations:
    """Packs large saved tensors; `before` and `after` count their bytes."""

    def __init__(self, spec):
        self.spec, self.seed, self.before, self.after = spec, 0, 0, 0

    def pack(self, x):
        floats = x.dtype in (torch.float32, torch.float16, torch.bfloat16)
        statistics = x.dim() < 2 or x.shape[-1] == 1
        if not floats or statistics or x.numel() < 4096 or isinstance(x, torch.nn.Parameter):
            return x
        self.seed += 1  # each tensor has its own noise
        values = tt.Packed.pack(x, self.spec, seed=self.seed)
        above = tt.Packed.pack((x > 0).to(torch.uint8), "bits(width=1)")
        self.before += x.nbytes
        self.after += values.nbytes + above.nbytes
        return values, above

    def unpack(self, saved):
        if isinstance(saved, torch.Tensor):
            return saved
        values, above = saved
        x = values.unpack()
        tiny = torch.finfo(x.dtype).tiny
        return torch.where(above.unpack() > 0, x.clamp(min=tiny), x.clamp(max=0))

    @contextmanager
    def on(self):
        def exactly(function):
            def call(*arguments, **more):
                with saved_tensors_hooks(lambda x: x, lambda x: x):
                    return function(*arguments, **more)

            return call

        attention, group_norm = F.scaled_dot_product_attention, F.group_norm
        with (
            mock.patch.object(F, "scaled_dot_product_attention", exactly(attention)),
            mock.patch.object(F, "group_norm", exactly(group_norm)),
            saved_tensors_hooks(self.pack, self.unpack),
        ):
            yield self


def network(channels: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)),
    )


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, hooks=nullcontext) -> list:
    """Losses of an epoch."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for x, y in zip(images.split(100), labels.split(100), strict=True):
        with hooks():
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    name, pixels, numbers = real_images(parser.parse_args().samples)
    images, labels = torch.from_numpy(pixels) / 255, torch.from_numpy(numbers)
    channels = images.shape[1]
    plain = train(network(channels), images, labels)
    wrapped = network(channels)
    act = tt.wrap(wrapped)
    same = train(wrapped, images, labels) == plain
    ratio = act.plan(images[:100]).ratio
    print(f"{name}, wrap: {ratio:.1f} times less, the same losses: {same}")
    packed = PackActivations("block_quant(bits=4, group=64)")
    lossy = train(network(channels), images, labels, packed.on)
    ratio = packed.before / packed.after
    print(
        f"{name}, {packed.spec}: {ratio:.1f} times less, loss {plain[-1]:.2f} and {lossy[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
