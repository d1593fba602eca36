"""A network of one hidden layer, with six kinds of it: the butterfly paper's table 4.

  tuckfold study shl --params [--json]     the numbers of parameters, at once
  tuckfold study shl                       trains the six on grey CIFAR-10 and on Fashion-MNIST, batches of 50 and 256
  tuckfold study shl --epochs 3 --datasets fashion_mnist --methods baseline,butterfly --batches 50
  tuckfold study shl --device cuda --seeds 0,1,2 --together

CIFAR-10 is looked for in TUCKFOLD_DATA; Fashion-MNIST is Debian's package dataset-fashion-mnist. Each epoch is
kept in --work, so that the same command goes on where it was stopped. Results: bench/results/shl.json and its figure,
or shl_cuda.json; with --together shl_together_cuda.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

import tuckfold
from bench.chart import Chart, Line
from bench.experiments.shl import networks
from bench.experiments.shl.data import READERS, about_device, load
from bench.experiments.shl.train import Curve, kept, together, train, training
from bench.images import ImagesError
from bench.record import ROOT, Record, command_line, table
from tuckfold._study._params import METHODS

METHOD = (
    "SGD, rate 0.001, momentum 0.9, cross entropy, as table 3; 15 per cent of the training images choose the epoch "
    "whose test accuracy is given. Features less their mean over their deviation, of the training images. init=paper. "
    "epoch_seconds: the median epoch's training loop, wall clock, with whatever else ran on the machine; on a GPU its "
    "steps are replays of one CUDA graph. epoch_cpu_seconds: processor time of the thread in it. printed: accuracy and seconds of table 4, on an A30 with "
    "and without tensor cores and a GC200; it does not print its number of epochs."
)
FEATURES = {"cifar10": 1024, "fashion_mnist": 784}
# Enough for the validation accuracy of dense layers to stop rising, or nearly so.
EPOCHS = {"cifar10": 12, "fashion_mnist": 3}
COLOURS = ("#333333", "#d62728", "#2ca02c", "#1f77b4", "#9467bd", "#ff7f0e")


def rows_of(arguments: argparse.Namespace) -> list[dict[str, object]]:
    rows = []
    for dataset in arguments.datasets.split(","):
        data = None if arguments.kept else load(dataset, arguments.device)
        for batch in (int(word) for word in arguments.batches.split(",")):
            runs = [
                (m, int(s))
                for m in arguments.methods.split(",")
                for s in arguments.seeds.split(",")
            ]
            begun = []
            for method, seed in runs:
                name = f"{dataset}_{method}_{batch}_{seed}_{arguments.device}"
                file = arguments.work / f"{name}.pt"
                torch.manual_seed(seed)
                model = networks.network(method, FEATURES[dataset])
                about = (dataset, batch, method, seed, model)
                if data is None:
                    begun.append((about, kept(file)))
                    continue
                begin = training if arguments.together else train
                curve = begin(
                    model.to(arguments.device),
                    data,
                    arguments.epochs or EPOCHS[dataset],
                    batch,
                    file,
                    seed,
                    lambda text, name=name: print(f"{name}: {text}", flush=True),
                )
                begun.append((about, curve))
            if arguments.together and data is not None:
                curves = together([run for _, run in begun])
                begun = [(about, curve) for (about, _), curve in zip(begun, curves, strict=True)]
            rows += [
                row_of(*about, curve, arguments.together) for about, curve in begun if curve.test
            ]
    return rows


def row_of(
    dataset: str,
    batch: int,
    method: str,
    seed: int,
    model: networks.SHL,
    curve: Curve,
    together: bool,
) -> dict[str, object]:
    row = {
        "dataset": dataset,
        "batch": batch,
        "method": method,
        "seed": seed,
        "text": model.hidden.text,
        "params": model.count(),
    } | curve.summary()
    if together:
        del row["epoch_seconds"], row["epoch_cpu_seconds"]
    if dataset == "cifar10":
        row["printed_test"], row["printed_seconds"] = map(list, networks.PRINTED[method])
    row["test_by_epoch"] = curve.test
    return row


def figure(rows: list[dict[str, object]], path: Path) -> None:
    """Test accuracy over epochs, a panel for each data set and batch."""
    panels = list(dict.fromkeys((row["dataset"], row["batch"]) for row in rows))
    methods = list(METHODS)
    charts = []
    for dataset, batch in panels:
        lines = [
            Line(
                row["method"].replace("_", " "),
                [(n + 1, value) for n, value in enumerate(row["test_by_epoch"])],
                COLOURS[methods.index(row["method"])],
            )
            for row in rows
            if (row["dataset"], row["batch"]) == (dataset, batch)
            and row["seed"] == min(r["seed"] for r in rows)
        ]
        title = {"cifar10": "grey CIFAR-10", "fashion_mnist": "Fashion-MNIST"}[dataset]
        charts.append(Chart(f"{title}, batches of {batch}", "epoch", "test accuracy, %", lines))
    path.write_text(Chart.side_by_side(charts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, help=f"default: {EPOCHS}")
    parser.add_argument("--batches", default="50,256")
    parser.add_argument("--datasets", default=",".join(READERS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument(
        "--together", action="store_true", help="all networks side by side; gives no times"
    )
    parser.add_argument("--kept", action="store_true", help="write down kept epochs, train nothing")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--work", type=Path, default=ROOT / "build/studies/shl")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name = "shl_together" if arguments.together else "shl"
    if arguments.device != "cpu":
        name += f"_{arguments.device}"
    record = Record(
        experiment=name,
        quick=False,
        build=ROOT / "build/release",
        method=METHOD,
        commands=[command_line("tuckfold study shl")],
        extra={"torch": torch.__version__, "threads": arguments.threads}
        | about_device(arguments.device),
    )
    try:
        record.rows = rows_of(arguments)
    except ImagesError as error:
        sys.exit(f"shl: {error}")
    titles = ["dataset", "batch", "method", "seed", "params", "test", "best_epoch", "printed_test"]
    titles += ["epoch_cpu_seconds", "epoch_seconds"]
    print(table(titles, [[row.get(title) for title in titles] for row in record.rows]))
    print(record.write(arguments.out, tuckfold.version()))
    figure(record.rows, arguments.out / f"{record.experiment}.svg")


if __name__ == "__main__":
    main()
