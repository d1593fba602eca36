"""A network of one hidden layer on grey CIFAR-10, with six kinds of hidden layer: the butterfly paper's tables 4 and 5.

  python -m bench.experiments.shl --params               the numbers of parameters, at once
  python -m bench.experiments.shl --params --json
  python -m bench.experiments.shl --epochs 5             trains the six of table 4; data: TUCKFOLD_DATA or ../shared/data

Training follows table 3: SGD of rate 0.001 and momentum 0.9, batches of 50, cross entropy, 15 per cent for validation.
The paper does not print its number of epochs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import tuckfold
from bench.experiments.shl import networks
from bench.images import cifar10_part, data_folder
from bench.record import ROOT, Record, table

METHOD = (
    "Grey CIFAR-10, features less their mean over their deviation. SGD, rate 0.001, momentum 0.9, batches of 50, cross "
    "entropy; 15 per cent of the training images are left out for validation. seconds: of the training loop, wall clock."
)
VALIDATION = 0.15


def params() -> dict[str, object]:
    """Every number of parameters of tables 4 and 5 beside the printed one."""
    methods = [
        {"method": name, "text": text, "params": networks.network(name).count(), "printed": printed}
        for name, (text, printed) in networks.METHODS.items()
    ]
    once = networks.SHL("butterfly(tied=true)").count()
    return {
        "table_4": methods,
        "butterfly_without_second_bias": once,
        "table_5": [sweep.to_json() for sweep in networks.sweeps()],
    }


def print_params() -> None:
    said = params()
    rows = [[row["method"], row["text"], row["params"], row["printed"]] for row in said["table_4"]]
    rows.append(["butterfly", "one bias", said["butterfly_without_second_bias"], None])
    print(table(["method", "hidden layer", "params", "printed"], rows), "\n")
    rows = [
        [
            s["changes"],
            s["first"],
            s["printed_mean"],
            s["mean"],
            s["deviation"],
            s["printed_deviation"],
        ]
        for s in said["table_5"]
    ]
    print(
        table(["changes", "first", "printed mean", "mean", "deviation", "printed deviation"], rows)
    )


def grey(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Means over the colours, in rows of 1024, and labels."""
    parts = [cifar10_part(path) for path in sorted(folder.glob(f"{part}_*.webp"))]
    labels = np.fromfile(folder / f"{part}_labels.u8", np.uint8)
    images = np.concatenate(parts).mean(1, dtype=np.float32).reshape(-1, networks.FEATURES)
    return torch.from_numpy(images), torch.from_numpy(labels[: len(images)].astype(np.int64))


@torch.no_grad()
def accuracy(model: torch.nn.Module, x: Tensor, labels: Tensor) -> float:
    right = sum(
        int((model(some).argmax(1) == of).sum())
        for some, of in zip(x.split(1000), labels.split(1000), strict=True)
    )
    return 100 * right / len(labels)


def train(model: torch.nn.Module, x: Tensor, labels: Tensor, epochs: int, batch: int) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    start = time.perf_counter()
    for _ in range(epochs):
        for some in torch.randperm(len(x), device=x.device).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[some]), labels[some]).backward()
            optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", action="store_true", help="only the numbers of parameters")
    parser.add_argument("--json", action="store_true", help="with --params, as JSON")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--methods", default=",".join(networks.METHODS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    if arguments.params:
        print(json.dumps(params(), indent=1)) if arguments.json else print_params()
        return
    folder = data_folder()
    if folder is None or not (folder / "cifar10").is_dir():
        sys.exit("shl: no CIFAR-10; set TUCKFOLD_DATA to a folder that has cifar10/")
    x, labels = grey(folder / "cifar10", "train")
    test_x, test_labels = grey(folder / "cifar10", "test")
    mean, deviation = x.mean(0), x.std(0)
    x, test_x = ((t - mean) / deviation for t in (x, test_x))
    tensors = [t.to(arguments.device) for t in (x, labels, test_x, test_labels)]
    held_out = int(len(x) * VALIDATION)
    record = Record(
        experiment="shl",
        quick=False,
        build=ROOT / "build/release",
        method=METHOD,
        commands=["python -m bench.experiments.shl " + " ".join(sys.argv[1:])],
        extra={"torch": torch.__version__, "epochs": arguments.epochs, "batch": arguments.batch},
    )
    for method in arguments.methods.split(","):
        torch.manual_seed(0)
        model = networks.network(method).to(arguments.device)
        seconds = train(
            model, tensors[0][held_out:], tensors[1][held_out:], arguments.epochs, arguments.batch
        )
        row = {
            "method": method,
            "params": model.count(),
            "validation": accuracy(model, tensors[0][:held_out], tensors[1][:held_out]),
            "test": accuracy(model, *tensors[2:]),
            "printed": max(networks.PRINTED[method]),
            "seconds": seconds,
        }
        record.rows.append(row)
        print(table(list(row), [list(row.values())]).splitlines()[-1], flush=True)
    print(table(list(record.rows[0]), [list(row.values()) for row in record.rows]))
    print(record.write(arguments.out, tuckfold.version()))


if __name__ == "__main__":
    main()
