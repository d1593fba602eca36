"""Reads bench/results, for docs/generate/benchmarks.py, and writes tables of them."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Results:
    """The figures of one file of bench/results."""

    def __init__(self, name: str) -> None:
        self.name = name
        record = json.loads((ROOT / f"bench/results/{name}.json").read_text())
        self.figures, self.machine = record["figures"], record["machine"]
        self.rows: list[dict] = record["rows"]
        self.link = f"[{name}.json](../bench/results/{name}.json)"

    def values(self, figure: str, key: str = "value", **where: object) -> list[float]:
        """A field of all figures of that name whose other fields are as given."""
        found = [
            row[key]
            for row in self.figures
            if row["figure"] == figure and all(row.get(k) == v for k, v in where.items())
        ]
        if not found:
            sys.exit(f"benchmarks: {self.name}.json has no {figure} with {where}")
        return found

    def one(self, figure: str, key: str = "value", **where: object) -> float:
        return self.values(figure, key, **where)[0]


SETTING = re.compile(r"(?:rate|rel)=([^,)]+)")


def median_factor(results: Results, way: str, codec: str, peer: str, rate: int = 0) -> float:
    """Our median speed over the peer's at equal settings, a geometric mean over arrays and settings.

    A rate picks one setting.
    """
    ours, theirs = {}, {}
    for row in results.rows:
        setting = SETTING.search(row["codec"])
        if not row["file"].endswith(", repeated") or (rate and setting[1] != str(rate)):
            continue
        key = row["file"], setting[1]
        speed = row[f"{way}_gbps_median"]
        if row["peer"] and row["codec"].startswith(f"{peer}("):
            theirs[key] = speed
        elif not row["peer"] and re.sub(r"\(.*?\)", "", row["codec"]) == codec:
            ours[key] = speed
    if not ours or ours.keys() != theirs.keys():
        sys.exit(f"benchmarks: {results.name}.json has not the same rows of {codec} and {peer}")
    return math.exp(sum(math.log(ours[key] / theirs[key]) for key in ours) / len(ours))


def span(values: list[float], form: str = ".2f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low}–{high}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def median_rows(results: Results, key: str, picks: list, **where: object) -> list[list[str]]:
    """pack and unpack over a copy, by medians, one column for each pick."""
    return [
        [
            f"{way}",
            *(
                f"{results.one(f'{way}_of_copy', 'median', **{key: pick}, **where):.2f}"
                for pick in picks
            ),
        ]
        for way in ("pack", "unpack")
    ]
