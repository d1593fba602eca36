"""Codecs judged by what they lose as well as by their speed, on real data, against zfp, SZx, SZ3 and PFPL."""

import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.cpu.run import (
    COPY_METHOD,
    BenchError,
    Runner,
    beside_copy,
    codec_options,
    over_shapes,
    rows_of,
)
from bench.record import Figure, Record, geometric_mean

RATES = (2, 3, 4, 6, 8)
BOUNDS = ("1e-2", "1e-3", "1e-4")
MIN_BYTES = 32 << 20  # of an array whose speed is measured, so that it is that of memory


def write_set(folder: Path, values: object, repeat: bool) -> Path:
    """One array as a .npy file, repeated along its first axis to a size that no cache holds."""
    import numpy as np

    planes = values.reshape(-1, *values.shape[-2:])
    times = -(-MIN_BYTES // planes.nbytes) if repeat else 1
    path = folder / "array.npy"
    np.save(path, np.concatenate([planes] * times))
    return path


# ---- dct_quant

DCT_QUANT_METHOD = (
    "quality: gain_db is the PSNR of dct_quant at its default dc less that of zfp 2-D of the same "
    "fixed rate, peak = range of the data, on real arrays of f32 (see arrays; none has been through "
    "JPEG or zfp); mean and least over the arrays. Speed: "
    + COPY_METHOD
    + "; zfp_factor is the median speed "
    "over zfp's at the same rate, on the photographs of the arrays, one thread"
)


def dct_quant(runner: Runner) -> Record:
    from bench.cpu.sets import sets  # needs numpy, torch and others, which other experiments do not

    record = runner.record("dct_quant_cpu", DCT_QUANT_METHOD)
    specs = [f"dct_quant(rate={rate})" for rate in RATES]
    peer = "zfp@" + ",".join(map(str, RATES))
    sources: list[dict] = []
    record.extra["arrays"] = sources
    gains: dict[int, dict[str, float]] = {rate: {} for rate in RATES}
    with runner.scratch() as folder:
        for real in sets():
            runner.say(f"dct_quant_cpu: quality on {real.name}")
            sources.append({"name": real.name, "kind": real.kind, "source": real.source})
            path = write_set(folder, real.values, repeat=False)
            options = (*codec_options(specs), "--peer", peer, "--threads", 1)
            rows = runner.tuckfold_rows(record, path, *options, seconds=0)
            for row in rows:
                row["file"] = real.name
            ours = [row for row in rows if not row["peer"]]
            theirs = [row for row in rows if row["peer"]]
            for rate, row, zfp in zip(RATES, ours, theirs, strict=True):
                gains[rate][real.name] = row["psnr_db"] - zfp["psnr_db"]
            if real.name == "astronaut":
                add_zfp_speed(runner, record, write_set(folder, real.values, repeat=True))
    for rate, by_set in gains.items():
        mean = sum(by_set.values()) / len(by_set)
        record.figures.append(Figure({"rate": rate}, "gain_db_mean", mean, 6.5, {"sets": by_set}))
        worst = min(by_set, key=by_set.get)
        record.figures.append(
            Figure({"rate": rate}, "gain_db_least", by_set[worst], 4.5, {"set": worst})
        )
    beside_copy(runner, record, specs, (1,))
    for rate, spec in zip(RATES, specs, strict=True):
        rows = [row for row in rows_of(record, spec, 1) if row["file"].startswith("synthetic")]
        for name, floor in (("pack_of_copy", 0.35), ("unpack_of_copy", 0.45)):
            value, more = over_shapes(rows, name)
            record.figures.append(Figure({"rate": rate}, name, value, floor, more))
    runner.say("")
    return record


def add_zfp_speed(runner: Runner, record: Record, path: Path) -> None:
    for rate in RATES:
        runner.say(f"dct_quant_cpu: speed beside zfp at rate {rate}")
        spec = f"dct_quant(rate={rate})"
        options = ("--codec", spec, "--peer", f"zfp@{rate}", "--threads", 1)
        ours, zfp = runner.tuckfold_rows(record, path, *options, seconds=0.5)
        for row in (ours, zfp):
            row["file"] = "astronaut, repeated"
        for way in ("pack", "unpack"):
            factor = ours[f"{way}_gbps_median"] / zfp[f"{way}_gbps_median"]
            record.figures.append(Figure({"rate": rate}, f"{way}_zfp_factor", factor, 10.0))


# ---- bounded

BOUNDED_METHOD = (
    "real arrays of f32 (see arrays); bounds relative to the range; speeds on the array repeated to at "
    "least 32 MiB, rounds of all in one process, medians of the rounds, one thread; factor = our speed / the peer's at the same "
    "bound, ratio_of = our ratio / the peer's on the array itself; mean factors are geometric, over arrays and bounds; "
    "pfpl: its serial programs, which time nine runs, with bounds relative to the range (NOA)"
)
ZSTD_LEVEL = -4


PEERS = {
    "szx": "the shared library",
    "sz3": "the shared library",
    "pfpl": "the folder with noa_compress_ser and noa_decompress_ser",
}


def named_peers() -> dict[str, str]:
    found = {name: os.environ.get(f"TUCKFOLD_{name.upper()}") for name in PEERS}
    if missing := [name for name, path in found.items() if not path]:
        raise BenchError(
            "bounded is measured against others; name "
            + ", and ".join(f"{PEERS[name]} in TUCKFOLD_{name.upper()}" for name in missing)
        )
    return found


def pfpl_row(runner: Runner, record: Record, programs: Path, array: Path, bound: str) -> dict:
    """What PFPL says of itself: sizes, and the times of its nine runs. Its output is checked."""
    import numpy as np

    values = np.load(array)
    raw, packed, back = (array.with_suffix(end) for end in (".f32", ".pfpl", ".back"))
    values.tofile(raw)
    ways = {
        "pack": ("noa_compress_ser", raw, packed, bound),
        "unpack": ("noa_decompress_ser", packed, back),
    }
    row = {"codec": f"pfpl(rel={float(bound):g})", "peer": True, "threads": 1}
    for way, (program, *arguments) in ways.items():
        text = "".join(runner.lines(record, [programs / program, *arguments]))
        seconds = [float(found) for found in re.findall(r"ecltime,\s*([0-9.]+)", text)]
        row[f"{way}_gbps"] = values.nbytes / min(seconds) / 1e9
        row[f"{way}_gbps_median"] = values.nbytes / statistics.median(seconds) / 1e9
    row["ratio"] = values.nbytes / packed.stat().st_size
    errors = np.abs(np.fromfile(back, np.float32).reshape(values.shape) - values.astype(np.float64))
    row["max_error"] = float(errors.max())
    for path in (raw, packed, back):
        path.unlink()
    record.rows.append(row)
    return row


def bounded(runner: Runner) -> Record:
    from bench.cpu.sets import sets

    paths = named_peers()
    programs = Path(paths.pop("pfpl"))
    record = runner.record("bounded_cpu", BOUNDED_METHOD)
    sources: list[dict] = []
    record.extra["arrays"] = sources
    pairs = {"szx": [], "sz3": []}
    beside_pfpl = []
    with runner.scratch() as folder:
        for real in sets():
            sources.append({"name": real.name, "kind": real.kind, "source": real.source})
            for bound in BOUNDS:
                runner.say(f"bounded_cpu: {real.name}, bound {bound}")
                specs = [
                    f"bounded(rel={bound})",
                    f"bounded(rel={bound}) | zstd(level={ZSTD_LEVEL})",
                ]
                options = [*codec_options(specs), "--threads", 1]
                for name, library in paths.items():
                    options += ["--peer", f"{name}={library}@{bound}"]
                # Ratios of the array itself: in one that repeats, SZ3 finds its repetitions.
                path = write_set(folder, real.values, repeat=False)
                sizes = runner.tuckfold_rows(record, path, *options, seconds=0)
                sizes.append(pfpl_row(runner, record, programs, path, bound))
                for row in sizes:
                    row["file"] = real.name
                path = write_set(folder, real.values, repeat=True)
                options += [] if runner.quick else ["--repeat", 3]  # SZ3 takes its time
                speeds = runner.tuckfold_rows(record, path, *options, seconds=0.25)
                speeds.append(pfpl_row(runner, record, programs, path, bound))
                for row in speeds:
                    row["file"] = f"{real.name}, repeated"
                for index, name in enumerate(pairs):
                    of_sizes, of_speeds = sizes[index:4:2], speeds[index:4:2]
                    pairs[name].append(compare(real.name, bound, of_sizes, of_speeds))
                ours_and_pfpl = [sizes[0], sizes[-1]], [speeds[0], speeds[-1]]
                beside_pfpl.append(compare(real.name, bound, *ours_and_pfpl))
    pairs["pfpl"] = beside_pfpl
    for name, codec, speed_floor, ratio_floor in (
        ("szx", "bounded", 8.0, 1.0),
        ("pfpl", "bounded", 8.0, 1.0),
        ("sz3", "bounded | zstd", 10.0, 0.8),
    ):
        add_bounded_figures(
            record, {"codec": codec, "peer": name}, pairs[name], speed_floor, ratio_floor
        )
    runner.say("")
    return record


def compare(
    name: str, bound: str, sizes: Sequence[dict], speeds: Sequence[dict]
) -> dict[str, object]:
    """Ours and the peer's, in this order."""
    return {
        "set": name,
        "bound": bound,
        "ratio": sizes[0]["ratio"],
        "peer_ratio": sizes[1]["ratio"],
        "ratio_of": sizes[0]["ratio"] / sizes[1]["ratio"],
        "pack": speeds[0]["pack_gbps_median"] / speeds[1]["pack_gbps_median"],
        "unpack": speeds[0]["unpack_gbps_median"] / speeds[1]["unpack_gbps_median"],
    }


def add_bounded_figures(
    record: Record, of: dict, cells: Sequence[dict], speed_floor: float, ratio_floor: float
) -> None:
    for way in ("pack", "unpack"):
        worst = min(cells, key=lambda cell: cell[way])
        more = {"least": worst[way], "least_at": f"{worst['set']} {worst['bound']}"}
        mean = geometric_mean(cell[way] for cell in cells)
        record.figures.append(Figure(of, f"{way}_factor", mean, speed_floor, more))
    worst = min(cells, key=lambda cell: cell["ratio_of"])
    more = {"at": f"{worst['set']} {worst['bound']}", "cells": list(cells)}
    record.figures.append(Figure(of, "ratio_of_least", worst["ratio_of"], ratio_floor, more))
    mean = geometric_mean(cell["ratio_of"] for cell in cells)
    record.figures.append(Figure(of, "ratio_of_mean", mean, ratio_floor))
