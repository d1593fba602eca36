"""Measures, compares with what the project wants to reach, and writes one JSON per experiment.

  ./dev bench                    dct_chop, block_quant and peers
  ./dev bench dct_chop           speed beside a plain copy, one thread and two
  ./dev bench block_quant        the same
  ./dev bench dct_quant          quality against zfp on real data, and speed; trains a small network
                                 for its activations the first time (installs torch)
  ./dev bench bounded            against SZ3, SZx and PFPL on real data: TUCKFOLD_SZ3 and TUCKFOLD_SZX
                                 name their libraries, TUCKFOLD_PFPL the folder of its programs
  ./dev bench torch              against PyTorch's ways to the same values (installs torch)
  ./dev bench op                 what calling an operator of torch costs (installs torch)
  ./dev bench peers              against zfp on real data; SZ3 and SZx where TUCKFOLD_SZ3 and
                                 TUCKFOLD_SZX name their libraries
  ./dev bench files              dataset files: speed beside the codec, memory, kills, and sizes beside
                                 zstd, zfp and JPEG (ten minutes; 8 GB of disk)
  ./dev bench real               tensors as networks save them: channels_last, f16 and bf16, sides
                                 that are no multiples of 8, views (fifteen minutes)
  ./dev bench gpu                the CUDA kernels, every codec and way, beside a plain copy on the
                                 device, torch, and cuSZp, zfp and nvCOMP where TUCKFOLD_CUSZP,
                                 TUCKFOLD_ZFP_CUDA and TUCKFOLD_NVCOMP name their libraries. Needs
                                 nvcc and a GPU; takes options of its own, see ./dev bench gpu --help
  ./dev bench --quick …          small arrays and few rounds, into a folder of its own

Results go to bench/results/. A machine that does other things meanwhile gives no figures.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.cpu.files import files
from bench.cpu.op import op
from bench.cpu.quality import bounded, dct_quant
from bench.cpu.real import real
from bench.cpu.run import (
    COPY_METHOD,
    THREADS,
    BenchError,
    Runner,
    beside_copy,
    codec_options,
    over_shapes,
    rows_of,
    threads_text,
)
from bench.images import ImagesError
from bench.record import ROOT, Figure, Record, figure_table, first_line, geometric_mean

KEEPS = range(2, 8)
SZ_BOUNDS = "3e-2,1e-2,3e-3,1e-3,3e-4,1e-4"


# ---- dct_chop and block_quant beside a copy


def dct_chop_floor(name: str, threads: int, keep: int) -> float:
    if threads > 1:
        return 0.80 if keep == 7 else 0.95
    if name == "pack_of_copy":
        return 0.85 if keep == 7 else 1.0
    return 0.95 if keep == 7 else 1.15


def dct_chop(runner: Runner) -> Record:
    record = runner.record("dct_chop_cpu", COPY_METHOD)
    beside_copy(runner, record, [f"dct_chop(keep={keep})" for keep in KEEPS])
    for threads in THREADS:
        for keep in KEEPS:
            rows = rows_of(record, f"dct_chop(keep={keep})", threads)
            for name in ("pack_of_copy", "unpack_of_copy"):
                floor = dct_chop_floor(name, threads, keep)
                value, more = over_shapes(rows, name)
                of = {"threads": threads, "keep": keep}
                record.figures.append(Figure(of, name, value, floor, more))
    return record


def block_quant(runner: Runner) -> Record:
    # As the library prints them, which is how its rows name them.
    specs = [f"block_quant(bits={bits})" for bits in (2, 4, 8)]
    variants = ("group=64", "round=stochastic", "zero=exact")
    specs += [f"block_quant(bits=4, {variant})" for variant in variants]
    record = runner.record("block_quant_cpu", COPY_METHOD)
    beside_copy(runner, record, specs)
    for threads in THREADS:
        for spec in specs:
            rows = rows_of(record, spec, threads)
            for name in ("pack_of_copy", "unpack_of_copy"):
                value, more = over_shapes(rows, name)
                of = {"threads": threads, "codec": spec}
                floor = 0.7 if "," not in spec else None  # asked of the plain ones
                record.figures.append(Figure(of, name, value, floor, more))
    return record


# ---- torch

TORCH_METHOD = (
    "torch tensors in one process, turn by turn, the median of at least 6 rounds, with rests between "
    "contenders so that idle threads of one do not take the other's cores; factor = torch's time / "
    "ours with as many threads; paper: matmul(LHS, matmul(A, RHS)) with matrices made beforehand, "
    "paper_out: the same with out=, blocked: 8x8 bmm and mm with out=, conv2d: stride-8 filters, "
    "and 1x1 filters with pixel_shuffle back; every output is compared with ours"
)
TORCH_FLOORS = {
    ("paper", "pack"): 17.0,
    ("paper", "unpack"): 20.0,
    ("best_torch", "pack"): 5.0,
    ("best_torch", "unpack"): 6.5,
}


def torch(runner: Runner) -> Record:
    if not runner.torch_peer.exists():
        raise BenchError(f"no {runner.torch_peer}; run ./dev bench torch, which builds it")
    record = runner.record("torch_cpu", TORCH_METHOD, runner.torch_peer)
    command = [runner.torch_peer, *(["--quick"] if runner.quick else [])]
    for line in runner.lines(record, command):
        row = json.loads(line)
        if "torch" in row:  # the first, about the libraries
            record.extra = row
            continue
        record.rows.append(row)
        shape = "x".join(map(str, row["shape"]))
        runner.say(
            f"torch_cpu {len(record.rows)}: {shape}, keep {row['keep']}, "
            f"{threads_text(row['threads'])}: {row['pack_factor']['best_torch']:.1f} and "
            f"{row['unpack_factor']['best_torch']:.1f} times the best of torch"
        )
    runner.say("")
    for form in ("paper", "paper_out", "blocked", "conv2d", "best_torch"):
        for way in ("pack", "unpack"):
            factors = [row[f"{way}_factor"][form] for row in record.rows]
            more = {"min": min(factors), "max": max(factors)}
            for threads in THREADS:
                some = [r[f"{way}_factor"][form] for r in record.rows if r["threads"] == threads]
                more[f"threads_{threads}"] = geometric_mean(some)
            floor = TORCH_FLOORS.get((form, way))
            figure = Figure(
                {"against": form}, f"{way}_factor", geometric_mean(factors), floor, more
            )
            record.figures.append(figure)
    for way in ("pack", "unpack"):
        least = min(record.rows, key=lambda row: row[f"{way}_factor"]["paper"])
        more = {key: least[key] for key in ("shape", "keep", "threads")}
        value = least[f"{way}_factor"]["paper"]
        record.figures.append(
            Figure({"against": "paper, least"}, f"{way}_factor", value, 4.0, more)
        )
    return record


# ---- other compressors

PEERS_METHOD = (
    "as dct_chop_cpu, on real arrays repeated to at least 32 MiB; zfp of fixed rate in 2-D at the "
    "rate of each codec, SZ at the bound whose ratio comes nearest; one band of the array for each "
    "thread; ratio_stored is against the stored type, which for images is u8"
)


def nearest(peer_rows: Sequence[dict], row: dict) -> dict:
    return min(peer_rows, key=lambda peer: abs(math.log(peer["ratio"] / row["ratio"])))


def peers(runner: Runner) -> Record:
    from bench.cpu.data import write_arrays  # needs numpy and Pillow, the other experiments do not

    specs = [f"dct_chop(keep={keep})" for keep in KEEPS]
    specs += [f"dct_chop(keep={keep}, coef=f16)" for keep in (4, 6)]
    specs += [f"block_quant(bits={bits})" for bits in (2, 4, 8)]
    options = codec_options(specs) + ["--peer", "zfp"]
    for name in ("sz3", "szx"):
        if path := os.environ.get(f"TUCKFOLD_{name.upper()}"):
            options += ["--peer", f"{name}={path}@{SZ_BOUNDS}"]
    record = runner.record("peers_cpu", PEERS_METHOD)
    sources: list[dict] = []
    record.extra["arrays"] = sources
    with runner.scratch() as folder:
        for path, about in write_arrays(folder, runner.quick):
            sources.append(about)
            for threads in THREADS:
                runner.say(f"peers_cpu: {about['name']}, {threads_text(threads)}")
                arguments = (path, *options, "--threads", threads)
                rows = runner.tuckfold_rows(record, *arguments, seconds=0.5)
                for row in rows:
                    row["file"] = about["name"]
                add_peer_figures(record, rows)
            path.unlink()
    runner.say("")
    return record


def psnr(row: dict) -> float | None:
    return math.inf if row["max_error"] == 0 else row["psnr_db"]


def add_peer_figures(record: Record, rows: Sequence[dict]) -> None:
    for row in (r for r in rows if not r["peer"]):
        for library in ("zfp", "sz3", "szx"):
            named = [r for r in rows if r["peer"] and r["codec"].startswith(library)]
            if not named:
                continue
            peer = nearest(named, row)
            of = {key: row[key] for key in ("file", "threads", "codec")}
            of |= {"peer": peer["codec"], "ratio": row["ratio"], "peer_ratio": peer["ratio"]}
            of |= {"psnr_db": psnr(row), "peer_psnr_db": psnr(peer)}
            for way in ("pack", "unpack"):
                factor = row[f"{way}_gbps"] / peer[f"{way}_gbps"]
                record.figures.append(Figure(of, f"{way}_factor", factor))


# ---- all


EXPERIMENTS = {
    "dct_chop": dct_chop,
    "block_quant": block_quant,
    "dct_quant": dct_quant,
    "bounded": bounded,
    "torch": torch,
    "op": op,
    "peers": peers,
    "files": files,
    "real": real,
}
DEFAULT = ["dct_chop", "block_quant", "peers"]


def summary(figures: Sequence[Figure]) -> str:
    judged = [figure for figure in figures if figure.limit is not None]
    if not judged:
        return "no floors"
    passed = sum(figure.verdict == "PASS" for figure in judged)
    return f"{passed} of {len(judged)} figures reach their floor"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("experiment", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="a smoke run, no figures to quote")
    parser.add_argument("--json-dir", type=Path, help="instead of bench/results")
    parser.add_argument("--tuckfold", type=Path, default=ROOT / "build/release/tuckfold")
    parser.add_argument("--torch-peer", type=Path, default=ROOT / "build/torch/torch_peer")
    options = parser.parse_args()
    for name in options.experiment:
        if name not in EXPERIMENTS:
            parser.error(f"no experiment '{name}'; there are {', '.join(EXPERIMENTS)}")
    folder = options.json_dir or ROOT / "bench/results"
    if options.quick and options.json_dir is None:
        folder = Path(tempfile.mkdtemp(prefix="tuckfold-bench-"))
    try:
        runner = Runner(options)
        version = first_line(str(options.tuckfold), "--version")
        for name in options.experiment or DEFAULT:
            record = EXPERIMENTS[name](runner)
            path = record.write(folder, version)
            note = "; a smoke run, on arrays that the floors are not for" if options.quick else ""
            print(f"{record.experiment}: {summary(record.figures)}{note}")
            print(figure_table(record.figures))
            print(f"{path}\n")
    except (BenchError, ImagesError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
