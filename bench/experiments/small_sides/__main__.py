"""Packs activations of 7 x 7 folded with their channels, and padded to 8 x 8, in equal bytes.

python -m bench.experiments.small_sides [--epochs 3] [--out bench/results/small_sides.json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import tuckfold
from bench.images import cifar10_part, data_folder
from bench.record import Figure, Record

METHOD = (
    "A residual network of 3 stages trained on 2,000 CIFAR-10 images cropped to 28 x 28 by SGD, batch 100, "
    "seed 0; the activations of 7 x 7 of 64 images. folded: dct_quant(rate) of the tensor as it is, planes of "
    "128 x 49. padded: each plane padded to 8 x 8 by its last row and column, rate * 56 / 64, so that both "
    "take the same bytes. snr_db: 10 log10(sum of squares / sum of squared errors) over the 7 x 7 values"
)
RATES = (2, 4, 8)


class Residual(nn.Module):
    """Two convolutions; `saved` collects what its backward would read."""

    def __init__(self, saved: list[tuple[str, Tensor]], before: int, after: int, stride: int):
        super().__init__()
        self.saved = saved
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        same = stride == 1 and before == after
        self.skip = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(x)))
        conv = self.second(inner)
        out = functional.relu(self.norms[1](conv) + self.skip(x))
        self.saved += [("relu", inner), ("conv", conv), ("out", out)]
        return out


def activations(epochs: int) -> list[tuple[str, np.ndarray]]:
    torch.manual_seed(0)
    data = data_folder()
    if data is None:
        sys.exit("small_sides: no CIFAR-10; let TUCKFOLD_DATA name the folder that holds cifar10/")
    folder = data / "cifar10"
    images = np.concatenate([cifar10_part(folder / f"train_{i:02d}.webp") for i in range(2)])
    x = (torch.from_numpy(images[:, :, 2:30, 2:30].astype(np.float32)) / 255 - 0.47) / 0.25
    labels = np.fromfile(folder / "train_labels.u8", np.uint8, len(images)).astype(np.int64)
    y = torch.from_numpy(labels)
    saved: list[tuple[str, Tensor]] = []
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Residual(saved, 16, 32, 2), Residual(saved, 32, 128, 2), Residual(saved, 128, 128, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    for epoch in range(epochs):
        losses = []
        for batch in torch.randperm(len(x)).split(100):
            saved.clear()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {statistics.fmean(losses):.2f}", flush=True)
    saved.clear()
    with torch.no_grad():
        model(x[:64])
    return [(kind, tensor.numpy()) for kind, tensor in saved if tensor.shape[-1] == 7]


def snr_db(values: np.ndarray, spec: str, padded: bool) -> tuple[int, float]:
    """Packed bytes, and how well the values come back."""
    given = np.pad(values, ((0, 0), (0, 0), (0, 1), (0, 1)), mode="edge") if padded else values
    packed = tuckfold.pack(given, spec)
    back = tuckfold.unpack(packed, spec, shape=given.shape)[:, :, :7, :7]
    error = np.sum((back.astype(np.float64) - values) ** 2)
    return packed.nbytes, float(10 * np.log10(np.sum(values.astype(np.float64) ** 2) / error))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    command = f"python -m bench.experiments.small_sides --epochs {options.epochs}"
    record = Record("small_sides", False, Path(__file__).parent, METHOD, [command])
    for number, (kind, values) in enumerate(activations(options.epochs)):
        for rate in RATES:
            ways = {"folded": (rate, False), "padded": (rate * 56 / 64, True)}
            for way, (own, pads) in ways.items():
                spec = f"dct_quant(rate={own:g})"
                size, snr = snr_db(values, spec, pads)
                row = {"tensor": f"{kind} {number}", "way": way, "rate": rate, "codec": spec}
                record.rows.append(row | {"packed_bytes": size, "snr_db": snr})
    for rate in RATES:
        gains = [
            padded["snr_db"] - folded["snr_db"]
            for folded, padded in zip(record.rows[::2], record.rows[1::2], strict=True)
            if folded["rate"] == rate
        ]
        more = {"least": min(gains), "most": max(gains)}
        record.figures.append(
            Figure({"rate": rate}, "padded_gain_db", statistics.fmean(gains), more=more)
        )
        print(f"rate {rate}: padded {statistics.fmean(gains):+.1f} dB, {gains}")
    if options.out is not None:
        options.out.write_text(record.text(tuckfold.version()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
