"""The codecs on tensors as networks save them, beside a copy and beside f32 rows.

Speeds come from real_bench (bench/cpu/real_bench.cc), in one process for each number of threads.
"""

import json

from bench.cpu.run import THREADS, BenchError, Runner, threads_text
from bench.record import Figure, Record, geometric_mean

METHOD = (
    "tensors of 32 MiB, half zeros; rounds of copy, pack, unpack in one process, with one thread by "
    "its processor's time, with more by the clock; medians over the rounds of copy's time / ours "
    "(pack_of_copy, unpack_of_copy of a row); copy is a plain "
    "non-temporal copy of as many bytes with as many threads; a figure is a row's quotient over "
    "that of the reference, the codec on f32 (i64 for bits and pool_index) rows of 64 x 64 planes: "
    "the smallest of the tensors, and mean, the geometric mean; packed bytes and values are "
    "compared with those of rows"
)
# Of what f32 rows reach: tensors whose sides are multiples of 8, and others.
FLOORS = {"whole": 0.7, "odd": 0.6}
ROUNDS, MEBIBYTES = 9, 32


def real(runner: Runner) -> Record:
    program = runner.tuckfold.parent / "real_bench"
    if not program.exists():
        raise BenchError(f"no {program}; run ./dev bench real, which builds it")
    record = runner.record("real_cpu", METHOD, program)
    for threads in THREADS:
        limits = (2, 4) if runner.quick else (ROUNDS, MEBIBYTES)
        for line in runner.lines(record, [program, threads, *limits]):
            record.rows.append(json.loads(line))
            row = record.rows[-1]
            names = ("tensor", "memory", "dtype", "codec")
            runner.say(f"real_cpu, {threads_text(threads)}: {', '.join(row[n] for n in names)}")
    runner.say("")
    add_figures(record)
    return record


def sides_of(row: dict) -> str:
    return "odd" if row["sides"] == "odd" else "whole"


def add_figures(record: Record) -> None:
    references = {
        (row["codec"], row["threads"]): row
        for row in record.rows
        if row["sides"] == "reference"
        and row["memory"] == "rows"
        and row["dtype"] in ("f32", "i64")
    }
    cells: dict[tuple, list[dict]] = {}
    for row in record.rows:
        if row is references[row["codec"], row["threads"]]:
            continue
        key = (row["threads"], row["codec"], row["memory"], row["dtype"], sides_of(row))
        cells.setdefault(key, []).append(row)
    for (threads, codec, memory, dtype, sides), rows in cells.items():
        of = {"threads": threads, "codec": codec, "memory": memory, "dtype": dtype, "sides": sides}
        reference = references[codec, threads]
        for way in ("pack", "unpack"):
            name = f"{way}_of_copy"
            quotients = {row["tensor"]: row[name] / reference[name] for row in rows}
            worst = min(quotients, key=quotients.get)
            more = {"mean": geometric_mean(quotients.values()), "tensor": worst}
            # The floor is for the worst cell, not for the mean.
            figure = Figure(of, f"{way}_of_f32_rows", quotients[worst], FLOORS[sides], more)
            record.figures.append(figure)
