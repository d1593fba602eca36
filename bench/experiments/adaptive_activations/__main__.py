"""Accuracy of networks whose activations are stored with a given score on average, beside exact storage.

  python -m bench.experiments.adaptive_activations                    a size for a CPU; data: TUCKFOLD_DATA or ../shared/data
  python -m bench.experiments.adaptive_activations --size gpu --device cuda --jobs 12 --minutes 9

Every training is written when it is done, and a further run goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import torch

from bench.experiments.adaptive_activations import scores
from bench.experiments.adaptive_activations.figure import figure
from bench.experiments.adaptive_activations.tasks import NETWORKS, SIZES, Setting, Task, task
from bench.experiments.trainings import Trainings, deterministic
from bench.record import ROOT, Figure, table

METHOD = (
    "The first `warm` steps store exactly. Then every codec is tried on every tensor alone: the square of the change of the gradient "
    "over the variance between batches is the tensor's noise n, and its score 1 / (1 + n L / 0.1) with L tensors. Each tensor takes its smallest codec "
    "with a least score, which is such that the average is the target; adaptive chooses among all codecs, bounded, block_quant and dct_quant among their own. "
    "accuracy: per cent of the test set after the last step. ratio: bytes that autograd saves over bytes stored, in one pass, without the batch itself, which the training loop holds. score_end: the average measured again after the last step."
)
TARGETS = (0.7, 0.5, 0.9, 0.6, 0.8)


def lost_at(rows: list[dict], target: float) -> list[Figure]:
    """Points of accuracy that each family loses against exact storage with the same seed."""
    exact = {(r["network"], r["seed"]): r["accuracy"] for r in rows if r["family"] == "exact"}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for r in rows:
        if r["target"] == target and (r["network"], r["seed"]) in exact:
            lost = exact[r["network"], r["seed"]] - r["accuracy"]
            found.setdefault((r["network"], r["family"]), []).append((lost, r["ratio"]))
    return [
        Figure(
            {"network": network, "family": family},
            f"points_lost_at_{target:g}",
            statistics.mean(lost for lost, _ in of),
            more={
                "deviation": statistics.stdev(lost for lost, _ in of) if len(of) > 1 else None,
                "ratio": statistics.mean(ratio for _, ratio in of),
                "seeds": len(of),
            },
        )
        for (network, family), of in sorted(found.items())
    ]


def trained(of: Task, setting: Setting, family: str, target: float, first: scores.Table) -> dict:
    """The rest of a training, from where exact storage ended."""
    codecs = scores.FAMILIES.get(family, ())
    groups = list(first)
    table_now, average, ratio = first, 1.0, 1.0
    choice: dict[scores.Group, str] = {}
    began = time.perf_counter()
    while of.done < setting.steps:
        if family == "exact":
            choice = dict.fromkeys(groups, scores.EXACT)
        else:
            if of.done > setting.warm:
                table_now = scores.Scorer(of, groups).table(codecs)
            choice, average = scores.chosen(table_now, codecs, target)
        until = min(setting.steps, of.done + setting.again)
        with scores.stored(of, choice) as act:
            ratio = scores.ratio(act, of)
            while of.done < until:
                of.step()
    seconds = time.perf_counter() - began
    end = 1.0
    if family != "exact":
        end = statistics.mean(scores.Scorer(of, groups).scores(choice))
    return {
        "accuracy": of.accuracy(),
        "score": average,
        "score_end": end,
        "ratio": ratio,
        "seconds": seconds,
        "choice": {" ".join(group[0]): codec for group, codec in choice.items()},
    }


def run(study: Trainings, name: str, seed: int, families: list[str], targets: list[float]) -> None:
    """All trainings of one network from one seed that are missing."""
    wanted = [(f, t) for t in targets for f in families if f != "exact"]
    if "exact" in families:
        wanted.insert(0, ("exact", 1.0))
    of_this = {"network": name, "seed": seed}
    wanted = [(f, t) for f, t in wanted if not study.has(**of_this, family=f, target=t)]
    if not wanted:
        return
    setting = SIZES[str(study.record.extra["size"])][name]
    of = task(name, setting, seed, torch.device(str(study.record.extra["device"])))
    while of.done < setting.warm:
        of.step()
    start = of.state()
    groups = scores.groups_of(of)
    needed = dict.fromkeys(c for f, _ in wanted for c in scores.FAMILIES.get(f, ()))
    first = scores.Scorer(of, groups).table(tuple(needed))
    for family, target in wanted:
        if study.is_late():
            return
        of.load(start)
        row = trained(of, setting, family, target, first)
        study.add({"network": name, "family": family, "target": target, "seed": seed} | row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), default="cpu")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--families", default=",".join(["exact", *scores.FAMILIES]))
    parser.add_argument("--targets", default=",".join(map(str, TARGETS)), help="average scores")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train at the same time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, help="after which no further training begins")
    parser.add_argument("--out", type=Path, help="a JSON file; the figure lies beside it")
    arguments = parser.parse_args()
    out = arguments.out or ROOT / f"bench/results/adaptive_activations_{arguments.size}.json"
    settings = {name: asdict(of) for name, of in SIZES[arguments.size].items()}
    study = Trainings(
        out,
        "adaptive_activations",
        METHOD,
        {"size": arguments.size, "device": arguments.device, "settings": settings},
        lambda rows: lost_at(rows, 0.7),
        lambda rows: figure(rows, arguments.size),
        arguments.minutes,
    )
    families = arguments.families.split(",")
    targets = [float(t) for t in arguments.targets.split(",")]
    networks = arguments.networks.split(",")
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if arguments.jobs > 1:
        common = ["--size", arguments.size, "--device", arguments.device]
        common += ["--targets", arguments.targets]
        parts = [
            [*common, "--networks", name, "--seeds", str(seed), "--families", family]
            for seed in seeds
            for name in networks
            for family in families
        ]
        study.in_parallel("bench.experiments.adaptive_activations", parts, arguments.jobs)
    else:
        for seed in seeds:
            for name in networks:
                run(study, name, seed, families, targets)
    cells = [f.to_json() for f in lost_at(study.rows, 0.7)]
    titles = ("network", "family", "value", "deviation", "ratio", "seeds")
    print("points lost at a score of 0.7, and saved over stored")
    print(table(titles, [[cell[t] for t in titles] for cell in cells]))
    print(study.path)


if __name__ == "__main__":
    deterministic()
    main()
