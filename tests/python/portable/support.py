"""What the tests of exported codecs share: the tool, and the library's own bytes to compare with."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np

import tuckfold

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "build/release/tuckfold"
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def export(
    spec: str, shape: Sequence[int], target: str, out: Path, *more: str, dtype: str = "f32"
) -> dict:
    """What the tool says of the files that it wrote."""
    done = run("export", "codec", spec, "--shape", ",".join(map(str, shape)), "--dtype", dtype,
               "--target", target, "-o", out, "--force", "--json", *more)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def load(path: Path) -> ModuleType:
    """An exported Python file as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


# ---- the library


def pack(x: np.ndarray, spec: str) -> np.ndarray:
    """The packed tensor, in the type and shape that the library's layout has."""
    fit = tuckfold.layout(spec, x.dtype, x.shape)
    packed = np.asarray(tuckfold.pack(x, spec)).view(np.uint8)
    return packed.view(NUMPY[fit.dtype]).reshape(fit.shape)


def unpack(packed: np.ndarray, spec: str, dtype: str, shape: Sequence[int]) -> np.ndarray:
    out = np.empty(shape, NUMPY[dtype])
    tuckfold.unpack(np.ascontiguousarray(packed).view(np.uint8).reshape(-1), spec, out=out)
    return out


# ---- values


def images(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Smooth fields with some noise, of no plane like another."""
    rng = np.random.default_rng(seed)
    planes = int(np.prod(shape[:-2]))
    y, x = np.mgrid[0 : shape[-2], 0 : shape[-1]] / 16
    a, b, c = rng.normal(size=(3, planes, 1, 1))
    field = 0.5 + np.sin(a * y + b * x + c) + 0.1 * rng.normal(size=(planes, *shape[-2:]))
    return field.reshape(shape).astype(np.float32)


def ulps_of_largest(difference: np.ndarray, coefs: np.ndarray) -> float:
    """The largest difference in ulps of the largest coefficient c: 2^-23 |c|."""
    largest = np.abs(coefs.astype(np.float64)).max()
    return float(np.abs(difference.astype(np.float64)).max() / (2.0**-23 * largest))
