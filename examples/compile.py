"""docs/tasks/compile.md with real images: packing inside of a compiled function, and of an exported program.

python examples/compile.py [--samples 500] [--backend aot_eager]

TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's Fashion-MNIST is used.
"""

import argparse

import torch
from real_images import real_images

import tuckfold.torch


def store(x: torch.Tensor) -> torch.Tensor:
    packed = tuckfold.torch.pack(x * 2 - 1, "dct_quant(rate=4)")
    return (tuckfold.torch.unpack(packed, "dct_quant(rate=4)", x.shape) + 1) / 2


class Store(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return store(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--backend", default="aot_eager")
    options = parser.parse_args()
    name, pixels, _ = real_images(options.samples)
    images = torch.from_numpy(pixels) / 255
    plain = store(images)
    compiled = torch.compile(store, fullgraph=True, backend=options.backend)(images)
    program = torch.export.export(Store(), (images,))
    same = torch.equal(compiled, plain) and torch.equal(program.module()(images), plain)
    error = (plain - images).square().mean().sqrt()
    print(f"{name}: compiled and exported give what Python gives: {same}, error {float(error):.4f}")


if __name__ == "__main__":
    main()
