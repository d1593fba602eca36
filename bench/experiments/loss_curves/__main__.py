"""Loss over steps with activations stored exactly, by codecs and within an amount of noise, beside the plain model.

  python -m bench.experiments.loss_curves                       a size for a CPU; data: TUCKFOLD_DATA or ../shared/data
  python -m bench.experiments.loss_curves --size gpu --device cuda --jobs 10 --minutes 9

Every training is written when it is done, and a further run goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import tuckfold.torch as tt
from bench.experiments.loss_curves.figure import figure
from bench.experiments.loss_curves.tasks import NETWORKS, SIZES, Setting, task
from bench.experiments.trainings import Trainings, deterministic
from bench.record import ROOT, Figure, table

METHOD = (
    "AdamW, the same initial weights, batches and random numbers for all ways with one seed. loss: the mean of the training loss over each of 40 equal spans of steps. "
    "test_loss: after the last step. ratio: bytes that autograd saves over bytes stored, in one pass. plain and exact must have the same curve, bit for bit."
)
LEAST = 1 << 12
WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "exact": {},
    "4 bits": {"codec": "block_quant(bits=4, group=64, round=stochastic)"},
    "2 bits": {"codec": "block_quant(bits=2, group=64, round=stochastic)"},
    "noise 1%": {"noise": "1%"},
}
SPANS = 40


def trained(name: str, setting: Setting, way: str, seed: int, device: torch.device) -> dict:
    of = task(name, setting, seed, device)
    options = WAYS[way]
    wrapped = nullcontext() if options is None else tt.activations(of.model, least=LEAST, **options)
    losses = []
    began = time.perf_counter()
    with wrapped as act:
        ratio = 1.0 if act is None else act.plan(of.batch(0)[0]).ratio
        for step in range(setting.steps):
            losses.append(of.step(step))
        problems = [] if act is None else act.problems
    seconds = time.perf_counter() - began
    assert not problems, problems
    values = torch.stack(losses).tolist()  # a GPU is waited for once
    cuts = [setting.steps * i // SPANS for i in range(SPANS + 1)]
    curve = [statistics.mean(values[a:b]) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]
    return {"test_loss": of.test_loss(), "ratio": ratio, "seconds": seconds, "loss": curve}


def figures(rows: list[dict]) -> list[Figure]:
    """How far the last tenth of a curve is above that of the plain model with the same seed."""
    plain = {(r["network"], r["seed"]): r for r in rows if r["way"] == "plain"}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for r in rows:
        other = plain.get((r["network"], r["seed"]))
        if r["way"] != "plain" and other is not None:
            tail = max(1, len(r["loss"]) // 10)
            ends = [statistics.mean(of["loss"][-tail:]) for of in (r, other)]
            tests = r["test_loss"] - other["test_loss"]
            found.setdefault((r["network"], r["way"]), []).append((ends[0] - ends[1], tests))
    return [
        Figure(
            {"network": network, "way": way},
            "loss_above_plain",
            statistics.mean(a for a, _ in of),
            more={
                "deviation": statistics.stdev(a for a, _ in of) if len(of) > 1 else None,
                "test_loss_above_plain": statistics.mean(b for _, b in of),
                "seeds": len(of),
            },
        )
        for (network, way), of in sorted(found.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), default="cpu")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train at the same time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, help="after which no further training begins")
    parser.add_argument("--out", type=Path, help="a JSON file; the figure lies beside it")
    arguments = parser.parse_args()
    settings = {name: asdict(of) for name, of in SIZES[arguments.size].items()}
    study = Trainings(
        arguments.out or ROOT / f"bench/results/loss_curves_{arguments.size}.json",
        "loss_curves",
        METHOD,
        {"size": arguments.size, "device": arguments.device, "settings": settings},
        figures,
        lambda rows: figure(rows, arguments.size),
        arguments.minutes,
    )
    missing = [
        {"network": name, "way": way, "seed": int(seed)}
        for seed in arguments.seeds.split(",")
        for name in arguments.networks.split(",")
        for way in arguments.ways.split(",")
        if not study.has(network=name, way=way, seed=int(seed))
    ]
    if arguments.jobs > 1:
        common = ["--size", arguments.size, "--device", arguments.device]
        parts = [
            [*common, "--networks", of["network"], "--ways", of["way"], "--seeds", str(of["seed"])]
            for of in missing
        ]
        study.in_parallel("bench.experiments.loss_curves", parts, arguments.jobs)
    else:
        for of in missing:
            if not study.is_late():
                setting = SIZES[arguments.size][of["network"]]
                device = torch.device(arguments.device)
                study.add(of | trained(of["network"], setting, of["way"], of["seed"], device))
    cells = [f.to_json() for f in figures(study.rows)]
    titles = ("network", "way", "value", "deviation", "test_loss_above_plain", "seeds")
    print("loss above that of the plain model")
    print(table(titles, [[cell[t] for t in titles] for cell in cells]))
    print(study.path)


if __name__ == "__main__":
    deterministic()
    main()
