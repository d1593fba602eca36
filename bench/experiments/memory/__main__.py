"""Memory of a training step with each layer, predicted and measured; and its program on the tiles of an IPU.

  tuckfold study memory                    the CPU, and the model of a GC200: a minute
  tuckfold study memory --device cuda      what torch's allocator counts, beside the prediction without workspace

The paper's figures 5 and 7 show how edges, vertices, compute sets and memory grow with the size of the problem, without
numbers; `tuckfold fits` has a model of them. Results: bench/results/memory.json and its figure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

import tuckfold
from bench.chart import Chart, Line
from bench.record import ROOT, Figure, Record, command_line, table
from tuckfold.torch import nn as tnn

METHOD = (
    "A layer, SGD with momentum, one thread, f32. predicted: Structured.step_memory. measured: on a CPU the peak of the "
    "process's resident memory over three steps, less what it had before the layer was made; on a GPU torch's allocator. "
    "The output is not held, its gradient comes in backward, as inside of a network. tiles: what `tuckfold fits` "
    "estimates for a training step in plain operators on a GC200, as many samples as features; nothing was run on one."
)


def families(n: int) -> list[str]:
    return [
        "dense",
        "butterfly",
        "butterfly(tied=true)",
        "butterfly(form=orthogonal)",
        "pixelfly(block=32, butterfly=16, rank=16)",
        "monarch(blocks=8)",
        "block_diagonal(blocks=4)",
        f"low_rank(rank={n // 8})",
        "circulant",
        "fastfood",
    ]


def measured(texts: list[str], features: int, samples: int, device: str) -> dict[str, int]:
    command = [sys.executable, "-m", "bench.experiments.memory.measure"]
    command += [f"--features={features}", f"--samples={samples}", f"--device={device}", *texts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"memory: {done.stderr}")
    return json.loads(done.stdout)


def step_rows(features: int, samples: int, device: str) -> list[dict[str, object]]:
    rows = []
    peaks = measured([*families(features), "linear"], features, samples, device)
    for text, peak in peaks.items():
        row: dict[str, object] = {"kind": "step", "features": features, "samples": samples}
        row["layer"] = text
        if text != "linear":
            memory = tnn.Structured(text, features, features).step_memory(samples, threads=1)
            row |= vars(memory)
            row["predicted"] = memory.peak - (0 if device == "cpu" else memory.workspace)
        row["measured"] = peak
        rows.append(row)
    return rows


def tile_rows(tool: Path, sizes: list[int]) -> list[dict[str, object]]:
    rows = []
    for text in families(sizes[0]):
        for n in sizes:
            words = [text, "--shape", f"{n},{n}", "--device", "ipu-gc200", "--json"]
            done = subprocess.run([tool, "fits", *words], capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"memory: {done.stderr}")
            (said,) = json.loads(done.stdout)
            keep = ("fits", "compute_sets", "vertices", "edges", "bytes", "largest_features")
            row = {"kind": "tiles", "layer": text, "features": n, "samples": n}
            rows.append(row | {key: said[key] for key in keep})
    return rows


COLOURS = {
    "dense": "#333333",
    "butterfly": "#d62728",
    "pixelfly": "#ff7f0e",
    "monarch": "#2ca02c",
    "low_rank": "#9467bd",
    "fastfood": "#1f77b4",
}


def picture(rows: list[dict[str, object]]) -> str:
    charts = []
    shown = {row["layer"].partition("(")[0]: row["layer"] for row in reversed(rows)}
    for key, title in (
        ("compute_sets", "compute sets"),
        ("vertices", "vertices"),
        ("edges", "edges"),
        ("bytes", "bytes of a tile"),
    ):
        lines = [
            Line(
                name.replace("_", " "),
                [(row["features"], row[key]) for row in rows if row["layer"] == shown[name]],
                colour,
            )
            for name, colour in COLOURS.items()
        ]
        if key == "bytes":
            ends = [row["features"] for row in rows]
            limit = [(min(ends), 611000), (max(ends), 611000)]
            lines.append(Line("a tile's 611 kB", limit, "#999999", dashed=True))
        charts.append(Chart(f"{title} of a training step", "features", title, lines, (True, True)))
    return Chart.side_by_side(charts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--samples", default="256,4096")
    parser.add_argument("--tool", type=Path, default=ROOT / "build/release/tuckfold")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    name = "memory" if arguments.device == "cpu" else f"memory_{arguments.device}"
    record = Record(
        experiment=name,
        quick=False,
        build=ROOT / "build/release",
        method=METHOD,
        commands=[command_line("tuckfold study memory")],
        extra={"torch": torch.__version__},
    )
    for samples in (int(word) for word in arguments.samples.split(",")):
        record.rows += step_rows(arguments.features, samples, arguments.device)
    for row in record.rows:
        if "predicted" in row:
            of = {key: row[key] for key in ("layer", "features", "samples")}
            ratio = row["predicted"] / row["measured"]
            record.figures.append(Figure(of, "predicted_of_measured", ratio))
    titles = ["layer", "samples", "weights", "gradients", "optimizer", "saved", "passing"]
    titles += ["workspace", "predicted", "measured"]
    print(table(titles, [[row.get(title) for title in titles] for row in record.rows]), "\n")
    if arguments.device == "cpu":
        tiles = tile_rows(arguments.tool, [2**k for k in range(7, 14)])
        record.rows += tiles
        titles = ["layer", "features", "fits", "compute_sets", "vertices", "edges", "bytes"]
        titles.append("largest_features")
        print(table(titles, [[row[title] for title in titles] for row in tiles]))
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{name}.svg").write_text(picture(tiles))
    print(record.write(arguments.out, tuckfold.version()))


if __name__ == "__main__":
    main()
