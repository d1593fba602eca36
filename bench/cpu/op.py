"""What calling an operator costs: small tensors, beside torch.clone of the same, in one process.

  PYTHONPATH=python .venv/bin/python -m bench.cpu.op [--quick]

Prints a line of JSON about the libraries, then one for each operator, codec and size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

from bench.cpu.run import BenchError, Runner
from bench.record import ROOT, Figure, Record, geometric_mean

SPECS = ("raw", "block_quant(bits=8)", "dct_chop(keep=4)", "dct_quant(rate=4)")
SIDES = (16, 32, 64)  # 1, 4 and 16 KB of f32
FLOOR_SIDE = 32
FLOOR = 1 / 3  # a call may take as long as three clones
METHOD = (
    "f32 tensors of side x side on one thread, turn by turn with torch.clone of the tensor, "
    "medians of the rounds; clone_of_call = clone's time / the call's; the work of packing is in it; values "
    "that come back are compared with those of the numpy side"
)


# ---- the experiment, as ./dev bench runs it


def op(runner: Runner) -> Record:
    library = ROOT / "build/release/python/libtuckfold_torch.so"
    if not library.exists():
        raise BenchError(f"no {library}; run ./dev bench op, which builds it")
    record = runner.record("op_cpu", METHOD)
    command = [ROOT / ".venv/bin/python", "-m", "bench.cpu.op"]
    for line in runner.lines(record, [*command, *(["--quick"] if runner.quick else [])]):
        row = json.loads(line)
        if "torch" in row:
            record.extra = row
        else:
            record.rows.append(row)
    for call in dict.fromkeys(row["call"] for row in record.rows):
        for side in SIDES:
            rows = [r for r in record.rows if r["call"] == call and r["side"] == side]
            ratios = [r["clone_s"] / r["call_s"] for r in rows]
            of = {"call": call, "bytes": side * side * 4}
            floor = FLOOR if side == FLOOR_SIDE else None
            more = {"min": min(ratios), "max": max(ratios)}
            value = geometric_mean(ratios)
            record.figures.append(Figure(of, "clone_of_call", value, floor, more))
    return record


# ---- the measurement itself


def seconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def measure(quick: bool) -> None:
    os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
    import torch

    import tuckfold
    import tuckfold.torch as tft

    torch.set_num_threads(1)
    times, rounds = (200, 2) if quick else (500, 200)  # pieces of a millisecond or two
    about = {"torch": torch.__version__, "python": sys.version.split()[0]}
    print(json.dumps(about | {"cpu_target": tuckfold.cpu_target()}), flush=True)
    pack, unpack = torch.ops.tuckfold.pack.default, torch.ops.tuckfold.unpack.default
    into = torch.ops.tuckfold.unpack_into.default
    for side in SIDES:
        for spec in SPECS:
            x = torch.rand(side, side)
            packed, shape, out = pack(x, spec), [side, side], torch.empty(side, side)
            expected = tuckfold.unpack(tuckfold.pack(x.numpy(), spec), spec, shape, "f32")
            if not torch.equal(
                unpack(packed, spec, shape, torch.float32), torch.from_numpy(expected)
            ):
                raise SystemExit(f"{spec}: the operators and the numpy side differ")
            calls = {
                "ops.pack": lambda x=x, s=spec: pack(x, s, 0),
                "ops.unpack": lambda p=packed, s=spec, n=shape: unpack(p, s, n, torch.float32),
                "ops.unpack_into": lambda p=packed, s=spec, o=out: into(p, s, o),
                "tuckfold.torch.pack": lambda x=x, s=spec: tft.pack(x, s),
                "tuckfold.torch.unpack": lambda p=packed, s=spec, n=shape: tft.unpack(
                    p, s, n, torch.float32
                ),
            }
            calls["clone"] = lambda x=x: torch.clone(x)
            took = {name: [] for name in calls}
            for _ in range(rounds):
                for name, call in calls.items():
                    took[name].append(seconds(call, times))
            medians = {name: statistics.median(values) for name, values in took.items()}
            clone = medians.pop("clone")
            for name, value in medians.items():
                row = {"call": name, "codec": spec, "side": side, "call_s": value, "clone_s": clone}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    measure(parser.parse_args().quick)
