"""Kernels of the butterfly on a GPU side by side, at the sizes that have floors: which should be the default?

python -m bench.experiments.layers.variants --out FOLDER
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import nn

import tuckfold
from bench.experiments.layers.timing import check, graph_seconds, inputs_of, measure_cuda, step_of
from bench.record import ROOT, Record, table
from tuckfold.torch import nn as tnn

METHOD = (
    "As layers_cuda. blocks: the kernels that read all matrices for every tile of samples. warps 4: clusters, so many warps of a "
    "block, four samples of each at a time; negative: eight samples. share: of reading x and writing y, by copy_."
)
WARPS = (4, 8, 2, 6, -2, -4)


def choose(variant: str) -> None:
    for name in ("TUCKFOLD_BUTTERFLY_BLOCKS", "TUCKFOLD_BUTTERFLY_WARPS"):
        os.environ.pop(name, None)
    if variant == "blocks":
        os.environ["TUCKFOLD_BUTTERFLY_BLOCKS"] = "1"
    else:
        os.environ["TUCKFOLD_BUTTERFLY_WARPS"] = variant.removeprefix("warps ")


def rows_of(n: int, batch: int, dtype: torch.dtype) -> list[dict[str, object]]:
    about = {"features": n, "batch": batch, "dtype": str(dtype).removeprefix("torch.")}
    xs, g = inputs_of(batch, n, dtype), torch.randn(batch, n, device="cuda", dtype=dtype)
    ys = [torch.empty_like(x) for x in xs]
    pairs = list(zip(xs, ys, strict=True))
    with torch.no_grad():
        copy = graph_seconds([lambda x=x, y=y: y.copy_(x) for x, y in pairs]) * 1e3
    torch.backends.cuda.matmul.allow_tf32 = True
    linear = measure_cuda(nn.Linear(n, n, device="cuda", dtype=dtype), xs, g)
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = [about | {"kernel": "copy", "forward_ms": copy}, about | {"kernel": "linear"} | linear]
    layer = tnn.Structured("butterfly", n, n, device="cuda", dtype=dtype)
    for variant in ("blocks", *(f"warps {w}" for w in WARPS)):
        choose(variant)
        try:
            check(layer, dtype)
            with torch.no_grad():
                forward = graph_seconds([lambda x=x: layer(x) for x in xs]) * 1e3
            row = about | {"kernel": variant, "forward_ms": forward, "share": copy / forward}
            row["forward_of_linear"] = linear["forward_ms"] / forward
            if variant in ("blocks", "warps 4"):
                row["step_ms"] = graph_seconds([step_of(layer, x, g) for x in xs[:4]]) * 1e3
                row["step_of_linear"] = linear["step_ms"] / row["step_ms"]
        except RuntimeError as error:  # one that does not fit a processor
            torch.cuda.synchronize()
            row = about | {"kernel": variant, "error": str(error)[:200]}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    record = Record(
        experiment="butterfly_variants",
        quick=False,
        build=ROOT / "build/release",
        method=METHOD,
        commands=["python -m bench.experiments.layers.variants"],
        extra={"torch": torch.__version__, "gpu": torch.cuda.get_device_name()},
    )
    for batch in (4096, 256):
        for n in (4096, 512, 1024, 2048):
            for dtype in (torch.float32, torch.bfloat16):
                record.rows += rows_of(n, batch, dtype)
                record.write(arguments.out, tuckfold.version())
    titles = list(dict.fromkeys(key for row in record.rows for key in row))
    print(table(titles, [[row.get(title) for title in titles] for row in record.rows]))


if __name__ == "__main__":
    main()
