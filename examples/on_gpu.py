"""docs/tasks/cuda.md with real images: batches that a GPU unpacks, and a step that a graph records.

python examples/on_gpu.py [--samples 2000] [--folder .]

Where there is no GPU, the CPU takes its part. TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's
Fashion-MNIST is used.
"""

import argparse
from pathlib import Path

import torch
from real_images import real_images

import tuckfold
import tuckfold.torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name, pixels, labels = real_images(options.samples)
    path = options.folder / "images.tuck"
    tuckfold.save(path, image=pixels, label=labels, codec="dct_quant(rate=4)", force=True)
    side = pixels.shape[-1]
    prepare = tuckfold.torch.Images(120, 64, crop=side, pad=4, flip=True, dtype=torch.bfloat16, channels_last=True)  # fmt: skip

    def loader(where: str) -> tuckfold.torch.DataLoader:
        return tuckfold.torch.DataLoader(
            path, 100, arrays=("image", "label"), shuffle=True, images={"image": prepare}, device=where
        )  # fmt: skip

    same, count = True, 0
    for (there, _), (here, _) in zip(loader(device), loader("cpu"), strict=True):
        same, count = same and torch.equal(there.cpu(), here), count + len(here)
    print(f"{name}: {count} images on {device}, those of the CPU: {same}")

    spec = "dct_quant(rate=4)"
    x = torch.from_numpy(pixels[:100]).to(device) / 255
    wanted = tuckfold.torch.pack(x, spec)
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            packed = tuckfold.torch.pack(x, spec)
        graph.replay()
    else:
        packed = tuckfold.torch.pack(x, spec)
    print(f"packed bytes are those of the CPU: {torch.equal(packed, wanted) and torch.equal(wanted.cpu(), tuckfold.torch.pack(x.cpu(), spec))}")  # fmt: skip


if __name__ == "__main__":
    main()
