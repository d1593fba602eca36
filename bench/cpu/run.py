"""How the experiments run programs and turn rows into figures."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.record import ROOT, Record, geometric_mean

SHAPES = ["100x3x256x256", "100x3x512x512", "1000x3x64x64", "5000x3x64x64"]
QUICK_SHAPES = ["4x3x256x256", "20x3x64x64"]
THREADS = (1, 2)
COPY_METHOD = (
    "f32 arrays on huge pages; rounds of copy, pack, unpack in one process, best of the rounds; "
    "copy is a plain non-temporal copy of the same array with as many threads (rows also have one with "
    "software prefetch, copy_prefetched_gbps); value is the "
    "geometric mean over the shapes of speed / copy, median the same of the medians over the "
    "rounds of copy's time / ours; the output of every codec is compared with its input (psnr_db)"
)


class BenchError(Exception):
    """What stops a measurement; the text says what to do."""


class Runner:
    """Runs programs, says how far it is, and keeps the commands for the record."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tuckfold = options.tuckfold
        self.torch_peer = options.torch_peer
        self.quick = options.quick
        peers = ("TUCKFOLD_SZ3", "TUCKFOLD_SZX", "TUCKFOLD_PFPL")
        named = {f"${name}": os.environ.get(name) for name in peers}
        self.variables = {path: name for name, path in named.items() if path}
        if not self.tuckfold.exists():
            raise BenchError(f"no {self.tuckfold}; run ./dev build")

    def say(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)

    def record(self, experiment: str, method: str, program: Path | None = None) -> Record:
        build = (program or self.tuckfold).resolve().parent
        return Record(experiment=experiment, quick=self.quick, build=build, method=method)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for arrays, which recorded commands call $TMPDIR."""
        with tempfile.TemporaryDirectory(prefix="tuckfold-") as folder:
            self.variables[folder] = "$TMPDIR"
            yield Path(folder)

    def as_recorded(self, word: object) -> str:
        """A word of a command as it reads on any machine."""
        if isinstance(word, Path) and word.is_relative_to(ROOT):
            return shlex.quote(str(word.relative_to(ROOT)))
        text = str(word)
        for path, variable in self.variables.items():
            if path in text:
                return f'"{text.replace(path, variable)}"'
        return shlex.quote(text)

    def lines(self, record: Record, command: Sequence[object]) -> Iterator[str]:
        record.commands.append(" ".join(map(self.as_recorded, command)))
        command = [str(word) for word in command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            yield from process.stdout
        if process.returncode != 0:
            raise BenchError(f"{record.commands[-1]} failed with status {process.returncode}")

    def info(self, path: Path) -> dict:
        """Of a .tuck file."""
        command = [self.tuckfold, "info", path, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[0]

    def tuckfold_rows(self, record: Record, *arguments: object, seconds: float = 2) -> list[dict]:
        limits = ("--min-time", 0.02, "--repeat", 2) if self.quick else ("--min-time", seconds)
        command = [self.tuckfold, "bench", *arguments, "--json", *limits]
        rows = json.loads("".join(self.lines(record, command)))
        record.rows += rows
        return rows


def threads_text(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def codec_options(specs: Sequence[str]) -> list[str]:
    return [word for spec in specs for word in ("--codec", spec)]


def over_shapes(rows: Sequence[dict], name: str) -> tuple[float, dict[str, object]]:
    """The geometric mean of a quotient over the rows, best against best; and by medians."""
    value = geometric_mean(row[name] for row in rows)
    handicap = geometric_mean(max(1.0, r["copy_prefetched_gbps"] / r["copy_gbps"]) for r in rows)
    return value, {
        "median": geometric_mean(row[f"{name}_median"] for row in rows),
        "of_fastest_copy": value / handicap,
    }


def beside_copy(
    runner: Runner, record: Record, specs: Sequence[str], all_threads: Sequence[int] = THREADS
) -> None:
    """Rows of every spec, shape and thread count."""
    shapes = QUICK_SHAPES if runner.quick else SHAPES
    for number, (threads, shape) in enumerate((t, s) for t in all_threads for s in shapes):
        total = len(all_threads) * len(shapes)
        runner.say(f"{record.experiment} {number + 1}/{total}: {shape}, {threads_text(threads)}")
        runner.tuckfold_rows(
            record, "--synthetic", shape, *codec_options(specs), "--threads", threads
        )
    runner.say("")


def rows_of(record: Record, spec: str, threads: int) -> list[dict]:
    return [r for r in record.rows if r["codec"] == spec and r["threads"] == threads]
