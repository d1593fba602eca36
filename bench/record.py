"""What a measurement is written down with: the machine, the commit, the figures and their floors."""

import datetime
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What in the environment changes speed: recorded where set.
TELLING = re.compile(r"(OMP_|GOMP_|MKL_|KMP_|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD|TUCKFOLD_CPU)")
PATHS = ("--out", "--work", "--tool", "--data", "--cifar")  # options of benchmarks


def command_line(program: str) -> str:
    """The command that runs, as it reads on any machine: options that are paths keep their last name."""
    words: list[str] = []
    for word in sys.argv[1:]:
        option, is_given, path = word.partition("=")
        if is_given and option in PATHS:
            words.append(f"{option}={Path(path).name}")
        else:
            words.append(Path(word).name if words and words[-1] in PATHS else word)
    return " ".join([program, *map(shlex.quote, words)])


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    if not logs:
        raise ValueError("the geometric mean of nothing")
    return math.exp(math.fsum(logs) / len(logs))


@dataclass(frozen=True)
class Figure:
    """One number derived from the rows, and the least, or the most, that it should be."""

    of: dict[str, object]  # what it was measured on: {"threads": 1, "keep": 4}
    name: str  # "pack_of_copy"
    value: float
    floor: float | None = None
    more: dict[str, object] = field(default_factory=dict)  # not printed
    ceiling: float | None = None

    @property
    def limit(self) -> float | None:
        return self.floor if self.ceiling is None else self.ceiling

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        if self.ceiling is not None:
            return "PASS" if self.value <= self.ceiling else "ABOVE"
        return "PASS" if self.value >= self.floor else "BELOW"

    def to_json(self) -> dict[str, object]:
        entry = self.of | {"figure": self.name, "value": self.value} | self.more
        if self.limit is not None:
            kind = "floor" if self.ceiling is None else "ceiling"
            entry |= {kind: self.limit, "pass": self.verdict == "PASS"}
        return entry


def worst_first(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """Every floor and ceiling: what was measured, whether it was reached, and the margin, a ratio that is below 1
    where it was not. What was not measured comes first."""
    found = []
    for figure in figures:
        if figure.limit is None:
            continue
        margin = figure.value / figure.limit
        if figure.ceiling is not None:
            margin = figure.limit / figure.value
        found.append(figure.to_json() | {"margin": margin})
    return sorted(found, key=lambda f: (f["pass"], -1 if math.isnan(f["margin"]) else f["margin"]))


def floor_table(floors: Sequence[dict]) -> str:
    """Lines of worst_first."""
    rows = []
    for floor in floors:
        of = [str(value) for key, value in floor.items() if key not in _OF_FLOORS]
        limit = f">= {floor['floor']:.3f}" if "floor" in floor else f"<= {floor['ceiling']:.3f}"
        value = "not measured" if math.isnan(floor["value"]) else f"{floor['value']:.3f}"
        rows.append(["reached" if floor["pass"] else "MISSED", "; ".join(of), str(floor["figure"]), value, limit])  # fmt: skip
    reached = sum(bool(floor["pass"]) for floor in floors)
    text = table(("", "of", "figure", "measured", "floor"), rows)
    return f"{text}\n{reached} of {len(floors)} floors are reached"


_OF_FLOORS = {"figure", "value", "floor", "ceiling", "pass", "margin"}


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns; text to the left, numbers to the right."""

    def text(cell: object) -> str:
        return f"{cell:.2f}" if isinstance(cell, float) else "" if cell is None else str(cell)

    rows = [list(row) for row in rows]
    columns = list(zip(titles, *(map(text, row) for row in rows), strict=True))
    lines = [[] for _ in range(len(rows) + 1)]
    for number, column in enumerate(columns):
        width = max(map(len, column))
        left = any(isinstance(row[number], str) for row in rows)
        for line, cell in zip(lines, column, strict=True):
            line.append(cell.ljust(width) if left else cell.rjust(width))
    return "\n".join("  ".join(line).rstrip() for line in lines)


def figure_table(figures: Sequence[Figure]) -> str:
    """A line for each thing measured; its figures side by side, each with its floor and verdict."""
    names = list(dict.fromkeys(figure.name for figure in figures))
    keys = list(dict.fromkeys(key for figure in figures for key in figure.of))
    lines: dict[tuple, dict[str, Figure]] = {}
    for figure in figures:
        lines.setdefault(tuple(figure.of.get(key) for key in keys), {})[figure.name] = figure
    titles = [key.replace("_", " ") for key in keys]
    limited = {name: any(f.limit is not None for f in figures if f.name == name) for name in names}
    for name in names:
        most = any(f.ceiling is not None for f in figures if f.name == name)
        title = "ceiling" if most else "floor"
        titles += [name.replace("_", " ")] + ([title, ""] if limited[name] else [])
    rows = []
    for line, by_name in lines.items():
        row = list(line)
        for name in names:
            figure = by_name.get(name)
            row.append(figure.value if figure else None)
            if limited[name]:
                row += [figure.limit, figure.verdict] if figure else [None, ""]
        rows.append(row)
    return table(titles, rows)


def first_line(*command: str) -> str:
    """Of what a program prints; empty where there is no such program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip()


def field_of(path: str, name: str) -> str:
    """The value of the first `name : value` in a file of /proc, or "unknown"."""
    try:
        found = re.search(rf"^{name}\s*:\s*(.+)$", Path(path).read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "unknown"


def machine() -> dict[str, object]:
    thp = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    memory = field_of("/proc/meminfo", "MemTotal").split()[0]
    return {
        "cpu": field_of("/proc/cpuinfo", "model name"),
        "cpu_family": field_of("/proc/cpuinfo", "cpu family"),
        "cpu_model": field_of("/proc/cpuinfo", "model"),
        "cache": field_of("/proc/cpuinfo", "cache size"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory) / 2**20, 1) if memory.isdigit() else None,
        "kernel": platform.release(),
        "transparent_huge_pages": thp.read_text().strip() if thp.exists() else "unknown",
        "load_average": os.getloadavg()[0],  # of the minute before
    }


def commit() -> dict[str, object]:
    bundled = ROOT / "COMMIT"  # a bundle may be inside of a repository of another state
    if bundled.exists():
        head = bundled.read_text().strip()
        return {"commit": head.rstrip("+"), "dirty": head.endswith("+")}
    # Results are no reason to call the sources that they are of changed.
    changes = ("git", "status", "--porcelain", "-uno", "--", ".", ":!bench/results")
    return {"commit": first_line("git", "rev-parse", "HEAD"), "dirty": bool(first_line(*changes))}


def compiler(build: Path) -> dict[str, str]:
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""

    def entry(name: str) -> str:
        found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
        return found[1] if found else ""

    path = entry("CMAKE_CXX_COMPILER")
    return {
        "version": first_line(path, "--version") if path else "unknown",
        "build_type": entry("CMAKE_BUILD_TYPE"),
    }


@dataclass
class Record:
    """One experiment while it runs, and the file that it ends in."""

    experiment: str
    quick: bool
    build: Path
    method: str
    commands: list[str] = field(default_factory=list)
    rows: list[dict] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    floors: list[dict] = field(default_factory=list)  # of worst_first
    extra: dict[str, object] = field(default_factory=dict)
    start: dict[str, object] = field(default_factory=lambda: {"machine": machine()} | commit())

    def text(self, version: str) -> str:
        """The file, as JSON."""
        targets = {row["cpu_target"] for row in self.rows if "cpu_target" in row}
        about = {
            "experiment": self.experiment,
            "quick": self.quick,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **self.start,
            "environment": {k: v for k, v in sorted(os.environ.items()) if TELLING.match(k)},
            "compiler": compiler(self.build),
            "tuckfold": version,
            "cpu_target": ", ".join(sorted(targets)),
            **self.extra,
            "method": self.method,
            "commands": self.commands,
        }
        # One object to a line where there are many, so that a changed figure is a changed line.
        lines = [
            f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in about.items()
        ]
        lists = {"floors": self.floors} if self.floors else {}
        lists |= {"figures": [f.to_json() for f in self.figures], "rows": self.rows}
        for key, values in lists.items():
            objects = ",\n".join("  " + json.dumps(rounded(value)) for value in values)
            lines.append(f'"{key}": [\n{objects}\n]')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def write(self, folder: Path, version: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.experiment}.json"
        path.write_text(self.text(version))
        return path


def rounded(value: object) -> object:
    """Six digits of every number, more is noise; JSON has no infinity: null replaces it."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value
