"""Measures the CUDA kernels on this machine's GPU beside a plain copy and beside other libraries.

  ./dev bench gpu                         all groups, into bench/results/gpu.json; some five minutes
  ./dev bench gpu --only dct_chop,bounded
  ./dev bench gpu --quick                 each kernel at one size, no other libraries: for tuning
  ./dev bench gpu --dry-run               the same calls on small tensors of the CPU: no GPU, no figures
  PYTHONPATH=FOLDER python3 -m bench.gpu --out X.json    where FOLDER holds tuckfold/ and bench/

Groups: raw, dct_chop, bf16, fused (dct_chop | block_quant), small (calls in a graph), many (tensors
in one launch), dct_quant, block_quant, nonzero_quant, bounded. On tensors that networks save, through
torch's operators: real (codecs of groups), real_planes, real_bounded, real_then (unpack with what
follows), real_exact, real_many (gradients in one call), real_step (a step of training with hooks).
Needs torch. TUCKFOLD_CUSZP, TUCKFOLD_ZFP_CUDA and
TUCKFOLD_NVCOMP name libraries to compare with, see bench/gpu/peers.py.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from pathlib import Path

from bench.record import ROOT, Record, command_line

METHOD = (
    "CUDA events, 3 warm-ups (a graph: 20 ms of them), median of 25 calls (7 of those that take over 5 ms), each after reads of "
    "256 MB that fill the cache with something else; arrays below 150 MB: one CUDA graph of 32 calls or more over distinct "
    "buffers, 500 MB or more in total, time / calls. of_copy = (bytes read + bytes written) / time over those of "
    "torch's copy_ of 4 GB in the same run, whatever the size of the array, which is what floors are "
    "for; of_same_copy: over a copy that reads and writes as many bytes, timed as the codec is. "
    "factor = the other's time / ours on the same tensor. A figure is the least of its cells; a cell "
    "that fails is below any floor. Outputs are poisoned first; every byte and value is looked at for "
    "poison, both ends of each tensor are compared with the CPU's bit by bit, and errors of all values "
    "are computed. torch: two matmuls into memory made beforehand, matrices too; cuSZp: its kernels "
    "with memory made beforehand in the mode of the best ratio, zeroing of the output included; zfp: "
    "two dimensions, fixed rate; nvCOMP bitcomp: the faster of its algorithms"
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, help="the JSON; else bench/results/gpu.json of a full run"
    )
    parser.add_argument("--only", default="", help="groups, with commas between")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--cifar", type=Path, help="a folder of CIFAR-10 as montages train_*.webp")
    parser.add_argument("--seconds", type=float, default=540, help="start nothing new after these")
    return parser.parse_args()


def about_gpu(clock) -> dict[str, object]:
    import torch

    about: dict[str, object] = {"python": platform.python_version(), "torch": torch.__version__}
    if not clock.dry:
        properties = torch.cuda.get_device_properties(0)
        about |= {"gpu": properties.name, "multiprocessors": properties.multi_processor_count}
        about |= {"gpu_memory_gib": round(properties.total_memory / 2**30, 1)}
        about |= {"l2_mb": round(properties.L2_cache_size / 1e6, 1), "cuda": torch.version.cuda}
        query = "driver_version,clocks.sm,clocks.mem,power.limit,temperature.gpu"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            about[query] = done.stdout.strip()
        except OSError:
            pass
    return about


def main() -> int:
    options = arguments()
    try:
        import torch

        import tuckfold
        from bench.gpu.bench import Bench, below_table
        from bench.gpu.clock import Clock
        from bench.gpu.data import Data
        from bench.gpu.groups import GROUPS
        from bench.gpu.peers import library
    except ImportError as error:
        print(f"gpu: {error}; PYTHONPATH must name the folder of tuckfold/", file=sys.stderr)
        return 1
    groups = options.only.split(",") if options.only else list(GROUPS)
    unknown = [name for name in groups if name not in GROUPS]
    if unknown:
        print(f"gpu: no group {unknown[0]}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 1
    if not options.dry_run and not torch.cuda.is_available():
        print("gpu: torch finds no GPU; --dry-run does without", file=sys.stderr)
        return 1
    start = time.monotonic()
    clock = Clock(options.dry_run)
    record = Record(
        "gpu",
        options.quick or options.dry_run,
        Path(__file__).parent,
        METHOD,
        [command_line("python3 -m bench.gpu")],
    )
    variables = ("TUCKFOLD_CUSZP", "TUCKFOLD_ZFP_CUDA", "TUCKFOLD_NVCOMP")
    record.extra = about_gpu(clock) | {"dry_run": options.dry_run}
    record.extra["peers"] = [name for name in variables if library(name)]
    record.extra["copy_gbps"] = clock.measure_roofline() / 1e9
    print(f"copy of 4 GB: {record.extra['copy_gbps']:.0f} GB/s, counting both ways", flush=True)
    bench = Bench(
        clock,
        record,
        quick=options.quick,
        peers=not (options.no_peers or options.quick),
        deadline=start + options.seconds,
        data=Data(clock.device, options.dry_run, options.cifar),
    )
    try:
        for name in groups:
            began = time.monotonic()
            GROUPS[name](bench)
            print(f"-- {name}: {time.monotonic() - began:.1f} s", flush=True)
        record.extra["copy_gbps_after"] = clock.large_copy() / 1e9
    finally:  # what was measured before something broke is worth keeping
        record.extra["failures"] = bench.failures
        record.extra["seconds"] = round(time.monotonic() - start, 1)
        out = options.out
        if out is None and not record.quick and groups == list(GROUPS):
            out = ROOT / "bench/results/gpu.json"
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(record.text(tuckfold.version()))
            print(out)
    if options.dry_run:
        print(f"a dry run of {len(record.rows)} rows and {len(record.figures)} figures: no numbers")
    below = [figure for figure in record.figures if figure.verdict == "BELOW"]
    judged = [figure for figure in record.figures if figure.floor is not None]
    print(f"{len(judged) - len(below)} of {len(judged)} figures reach their floor")
    if below:
        print(below_table(below))
    for text in bench.failures:
        print(f"FAILED {text}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
