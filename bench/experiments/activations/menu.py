"""The error that codecs of several rates make in gradients of trained networks, by bits per value.

  python -m bench.experiments.activations.menu --out X.json     minutes on a CPU; data: TUCKFOLD_DATA or ../shared/data

A convolutional network, a transformer and a perceptron are trained on CIFAR-10 for some steps. Then
everything that a codec may change is packed, and gradients are compared with exact ones over batches.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tuckfold
import tuckfold.torch as tt
from bench.images import cifar10_part, data_folder
from bench.record import ROOT, Record, table

METHOD = (
    "Networks trained by AdamW on CIFAR-10, 24 x 24, batches of 64. Gradients over batches with all that a codec "
    "may change packed, recompute=0, so that every tensor is packed for itself. bits: packed bits over the values of tensors that a codec packed, with the masks of ReLU. "
    "error: squared error of the gradient over its square. variance: added, over that between batches."
)
CODECS = [
    *(f"block_quant(bits={b}, group=64, round=stochastic)" for b in (2, 3, 4, 6, 8)),
    *(f"block_quant(bits={b}, group=64)" for b in (2, 3, 4)),
    *(f"dct_quant(rate={r})" for r in (2, 4)),
    "bounded(rel=0.01)",
    *(f"nonzero_quant(bits={b}, group=64)" for b in (2, 3)),
]


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2))
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.mlp(self.norms[1](x))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Conv2d(3, 64, 3, 3), nn.Sequential(Block(64), Block(64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x).flatten(2).transpose(1, 2)).mean(1))


def convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(3), nn.Flatten(), nn.Linear(32 * 64, 10))


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 24 * 24, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )  # fmt: skip


NETWORKS = {"convolutions": convolutions, "transformer": Patches, "perceptron": perceptron}


def pictures(folder: Path) -> tuple[Tensor, Tensor]:
    x = cifar10_part(sorted((folder / "cifar10").glob("train_*.webp"))[0])
    labels = (folder / "cifar10" / "train_labels.u8").read_bytes()[: len(x)]
    x = torch.from_numpy(x.copy()).float()[:, :, 4:28, 4:28] / 255 - 0.5
    return x.contiguous(), torch.tensor(list(labels))


def measure(name: str, model: nn.Module, batches: list, codec: str) -> dict[str, object]:
    first, *more = batches
    with tt.activations(model, codec=codec, recompute=0, least=1 << 12) as act:
        rows = act.plan(first[0]).rows
        result = tt.check(model, first, loss=F.cross_entropy, more=more)
    packed = {r.storage for r in rows if "(" in r.how and not r.how.startswith("pool")}
    lossy = [r for r in rows if r.storage in packed]
    values = sum(r.before for r in lossy) / 4
    q = result.quality
    return {
        "network": name,
        "codec": codec,
        "bits": 8 * sum(r.after for r in lossy) / values if values else 32.0,
        "error": q.relative_error**2,
        "variance": q.variance,
        "bias": q.bias,
        "cosine": q.cosine,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    folder = data_folder()
    if folder is None or not (folder / "cifar10").is_dir():
        sys.exit("menu: no CIFAR-10; set TUCKFOLD_DATA to a folder that has cifar10/")
    x, y = pictures(folder)
    known = {codec.name for codec in tuckfold.list_codecs()}
    record = Record("activations_menu", False, ROOT / "build/release", METHOD)
    record.commands.append("python -m bench.experiments.activations.menu")
    record.extra = {"torch": torch.__version__, "steps": options.steps}
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
        for _ in range(options.steps):
            picks = torch.randint(len(x), (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[picks]), y[picks]).backward()
            optimizer.step()
        batches = [
            (x[i : i + 64].clone(), y[i : i + 64]) for i in range(0, 64 * options.batches, 64)
        ]
        for codec in CODECS:
            if codec.partition("(")[0] in known:
                record.rows.append(measure(name, model, batches, codec))
                print(record.rows[-1], flush=True)
    titles = ("network", "codec", "bits", "error", "variance", "bias", "cosine")
    cells = [[row[t] for t in titles] for row in record.rows]
    print(table(titles, [[f"{c:.2g}" if isinstance(c, float) else c for c in r] for r in cells]))
    if options.out is not None:
        options.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
