"""Calls of exported codecs from the host: what `tuckfold time` predicts for a GPU is fitted to this.

python -m bench.gpu.host_call --export build/host_call           the files, on a machine with the tool
python -m bench.gpu.host_call --files build/host_call --out FILE times, on one with a GPU; torch alone is needed
python -m bench.gpu.host_call --fit FILE                         the parameters of devices/*.json

A call copies a tensor from pageable memory to the GPU, packs or unpacks it, and copies the result back, as the
paper's measurements on the A100 do. Every result is compared with the CPU's first, plain and compiled in one graph.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.record import ROOT, Record

SIDES = (32, 64, 128, 256, 512)
KEEPS = (4,)
CHECKED = (  # besides dct_chop: all that is written in another way
    ("triangle", "dct_chop(keep=5, shape=triangle)"),
    ("tiles", "dct_chop(keep=5, serialize=2)"),
    ("codes", "dct_chop(keep=4) | block_quant(bits=8)"),
    ("halves", "dct_chop(keep=4, coef=f16)"),
)
CHECKED_SHAPE = (4, 3, 64, 96)


def export(folder: Path, tool: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        (f"chop_{keep}_{n}", f"dct_chop(keep={keep})", (100, 3, n, n))
        for keep in KEEPS
        for n in SIDES
    ]
    wanted += [(name, spec, CHECKED_SHAPE) for name, spec in CHECKED]
    for name, spec, shape in wanted:
        command = [
            tool,
            "export",
            "codec",
            spec,
            "--shape",
            ",".join(map(str, shape)),
            "--target",
            "torch",
        ]
        subprocess.run([*map(str, command), "-o", str(folder / f"{name}.py"), "--force"], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tuple_of(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def difference(ours, want) -> float:
    """The largest one, over the largest value; codes in codes."""
    worst = 0.0
    for a, b in zip(tuple_of(ours), tuple_of(want), strict=True):
        scale = 1 if b.element_size() == 1 else float(b.abs().max())
        worst = max(worst, float((a.cpu().double() - b.double()).abs().max()) / scale)
    return worst


def check(path: Path) -> list[dict]:
    """Each module on the GPU beside the CPU: as it is, and by torch.compile(fullgraph=True)."""
    import torch

    file, rows = load(path), []
    for name, module in file.MODULES.items():
        torch.manual_seed(1)
        inputs = file.example(module)
        want = module()(**inputs)
        there = {key: value.cuda() for key, value in inputs.items()}
        plain = module().cuda()
        torch.compiler.reset()
        compiled = torch.compile(plain, fullgraph=True)
        with torch.no_grad():
            rows.append({
                "spec": file.SPEC, "shape": list(file.SHAPE), "module": name,
                "difference": difference(plain(**there), want),
                "compiled_difference": difference(compiled(**there), want),
            })  # fmt: skip
    return rows


def measure(path: Path, repeats: int = 15) -> list[dict]:
    import torch

    file, rows = load(path), []
    for name, module in file.MODULES.items():
        model = module().cuda()
        (x,) = file.example(module).values()
        seconds = []
        with torch.no_grad():
            for _ in range(repeats + 3):
                torch.cuda.synchronize()
                start = time.perf_counter()
                out = model(x.cuda()).cpu()
                seconds.append(time.perf_counter() - start)
        plane = sum(2 * a * b * c - a * c for a, b, c in products(file.SHAPE[-1], file.SPEC, name))
        rows.append({"spec": file.SPEC, "shape": list(file.SHAPE), "module": name, "in_bytes": x.nbytes,
                     "out_bytes": out.nbytes, "flops": plane * file.SHAPE[0] * file.SHAPE[1],
                     "median_s": float(np.median(seconds[3:])), "best_s": min(seconds[3:])})  # fmt: skip
    return rows


def products(n: int, spec: str, name: str) -> list[tuple[int, int, int]]:
    """Sides of the two products of a plane: eq. 5 and 7."""
    kept = n // 8 * int(spec.partition("keep=")[2].rstrip(")"))
    return [(n, n, kept), (kept, n, kept)] if name == "Pack" else [(kept, kept, n), (n, kept, n)]


def fit(rows: list[dict]) -> dict[str, float]:
    """t0 + in/B_in + out/B_out + flops/F, least squares of relative errors; what would be negative is left out."""
    t = np.array([row["median_s"] for row in rows])
    columns = {"t0_ms": np.ones(len(rows)) * 1e-3,
               "in_gbps": np.array([row["in_bytes"] for row in rows]) / 1e9,
               "out_gbps": np.array([row["out_bytes"] for row in rows]) / 1e9,
               "tflops": np.array([row["flops"] for row in rows]) / 1e12}  # fmt: skip
    best = None
    for count in range(1, 5):
        for names in itertools.combinations(columns, count):
            matrix = np.stack([columns[name] for name in names], axis=1)
            values = np.linalg.lstsq(matrix / t[:, None], np.ones(len(t)), rcond=None)[0]
            error = np.abs(matrix @ values / t - 1)
            if (values > 0).all() and (best is None or (error**2).sum() < best[0]):
                best = ((error**2).sum(), dict(zip(names, values, strict=True)), error)
    _, found, error = best
    result = {name: value if name == "t0_ms" else 1 / value for name, value in found.items()}
    return result | {"worst_error": float(error.max()), "median_error": float(np.median(error))}


def run(folder: Path, out: Path, commit: str) -> int:
    import torch

    record = Record(
        "host_call", False, ROOT / "build/release", " ".join(__doc__.split("\n\n")[2].split())
    )
    if commit:
        record.start |= {"commit": commit, "dirty": False}
    record.commands.append(f"python -m bench.gpu.host_call --files {folder} --out {out.name}")
    record.extra = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                    "checks": [row for name, _ in CHECKED for row in check(folder / f"{name}.py")]
                              + check(folder / "chop_4_64.py")}  # fmt: skip
    for keep in KEEPS:
        for n in SIDES:
            record.rows += measure(folder / f"chop_{keep}_{n}.py")
    record.extra["fit"] = fit(record.rows)
    out.write_text(record.text(""))
    print(json.dumps(record.extra, indent=1))
    bad = [row for row in record.extra["checks"]
           if max(row["difference"], row["compiled_difference"]) > (1 if "quant" in row["spec"] else 2e-3)]  # fmt: skip
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export", type=Path, metavar="FOLDER")
    parser.add_argument("--files", type=Path, metavar="FOLDER")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    parser.add_argument("--tool", type=Path, default=ROOT / "build/release/tuckfold")
    parser.add_argument("--out", type=Path, default=Path("host_call_gpu.json"))
    parser.add_argument("--commit", default="", help="of the tree, where there is no git")
    options = parser.parse_args()
    if options.export:
        export(options.export, options.tool)
    if options.fit:
        print(json.dumps(fit(json.loads(options.fit.read_text())["rows"]), indent=1))
    return run(options.files, options.out, options.commit) if options.files else 0


if __name__ == "__main__":
    sys.exit(main())
