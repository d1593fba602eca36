"""A hidden layer of pixelfly with one option changing at a time: the butterfly paper's table 5.

  tuckfold study pixelfly --params [--json]      the numbers of parameters, at once
  tuckfold study pixelfly                        trains each of the 21 networks for one epoch on grey CIFAR-10
  tuckfold study pixelfly --device cuda --epochs 15

Needs CIFAR-10 in TUCKFOLD_DATA. The same command goes on where it was stopped. Results: bench/results/pixelfly.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch

import tuckfold
from bench.chart import Chart, Line
from bench.experiments.shl.data import Data, about_device, load
from bench.experiments.shl.networks import SHL
from bench.experiments.shl.train import train
from bench.images import ImagesError
from bench.record import ROOT, Figure, Record, command_line, table
from tuckfold._study._params import SWEEPS, Sweep

METHOD = (
    "Grey CIFAR-10 and training as in the study shl, batches of 50, one epoch unless said: enough to rank options, not to reach "
    "the paper's accuracies. Two biases, as table 5 counts. seconds: of all epochs; on a CPU processor time of the thread, "
    "on a GPU wall clock, its steps replays of one CUDA graph. "
    "deviation: of a sample. first: what table 5 prints as mean, for numbers of parameters."
)
# Table 5, on a GC200: mean and deviation of seconds and of accuracy.
PRINTED = {
    "butterfly": {"seconds": (372, 107), "test": (43.8, 2.2)},
    "block": {"seconds": (465, 192), "test": (38.9, 1.4)},
    "rank": {"seconds": (465, 18), "test": (37.8, 2.7)},
}


def rows_of(sweep: Sweep, data: Data, arguments: argparse.Namespace) -> list[dict[str, object]]:
    rows = []
    for value, text in zip(sweep.values, sweep.texts(), strict=True):
        torch.manual_seed(0)
        model = SHL(text, data.features, biases=2).to(arguments.device)
        name = f"{sweep.changes}_{value}_{arguments.device}"
        curve = train(
            model,
            data,
            arguments.epochs,
            50,
            arguments.work / f"{name}.pt",
            say=lambda said, name=name: print(f"{name}: {said}", flush=True),
        )
        rows.append(
            {
                "changes": sweep.changes,
                "value": value,
                "text": text,
                "params": model.count(),
                "epochs": arguments.epochs,
                "test": curve.test[-1],
                "seconds": sum(curve.cpu_seconds if arguments.device == "cpu" else curve.seconds),
            }
        )
    return rows


def figures_of(sweep: Sweep, rows: list[dict[str, object]]) -> list[Figure]:
    figures = []
    for what in ("params", "test", "seconds"):
        values = [row[what] for row in rows]
        printed = PRINTED[sweep.changes].get(what, (sweep.printed_mean, sweep.printed_deviation))
        more = {
            "first": values[0],
            "deviation": statistics.stdev(values),
            "printed_mean": printed[0],
            "printed_deviation": printed[1],
        }
        mean = statistics.mean(values)
        figures.append(Figure({"changes": sweep.changes}, f"{what}_mean", mean, more=more))
    return figures


def picture(rows: list[dict[str, object]]) -> str:
    """Accuracy and time over parameters, a line for each option."""
    colours = {"butterfly": "#d62728", "block": "#1f77b4", "rank": "#2ca02c"}
    charts = []
    for what, title in (("test", "test accuracy, %"), ("seconds", "seconds of training")):
        lines = []
        for changes, colour in colours.items():
            points = [(row["params"], row[what]) for row in rows if row["changes"] == changes]
            if points:
                lines.append(Line(f"{changes} changes", sorted(points), colour))
        charts.append(Chart(title, "parameters", title, lines, log=(True, False)))
    return Chart.side_by_side(charts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "build/studies/pixelfly")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        data = load("cifar10", arguments.device)
    except ImagesError as error:
        sys.exit(f"pixelfly: {error}")
    record = Record(
        experiment="pixelfly" if arguments.device == "cpu" else f"pixelfly_{arguments.device}",
        quick=False,
        build=ROOT / "build/release",
        method=METHOD,
        commands=[command_line("tuckfold study pixelfly")],
        extra={"torch": torch.__version__, "threads": arguments.threads}
        | about_device(arguments.device),
    )
    for sweep in SWEEPS:
        rows = rows_of(sweep, data, arguments)
        record.rows += rows
        record.figures += figures_of(sweep, rows)
    titles = ["changes", "value", "params", "test", "seconds"]
    print(table(titles, [[row[title] for title in titles] for row in record.rows]), "\n")
    titles = ["changes", "figure", "value", "first", "deviation"]
    titles += ["printed_mean", "printed_deviation"]
    entries = [figure.to_json() for figure in record.figures]
    print(table(titles, [[entry[title] for title in titles] for entry in entries]))
    print(record.write(arguments.out, tuckfold.version()))
    (arguments.out / f"{record.experiment}.svg").write_text(picture(record.rows))


if __name__ == "__main__":
    main()
