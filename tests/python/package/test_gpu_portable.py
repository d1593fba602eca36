"""Exported PyTorch files on a GPU: what they give on the CPU, as they are and compiled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch

import gpu

pytestmark = gpu.marks
SPECS = {
    "square": "dct_chop(keep=4)",
    "serialized": "dct_chop(keep=4, serialize=2)",
    "triangle": "dct_chop(keep=3, shape=triangle)",
    "quantized": "dct_chop(keep=4) | block_quant(bits=8)",
}
HERE = Path(__file__).parent
TOOL = HERE.parents[2] / "build/release/tuckfold"


def export(tool: Path, folder: Path) -> None:
    """Writes a file for each spec; a bundle has them beside the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in SPECS.items():
        command = [tool, "export", "codec", spec, "--shape", "2,3,32,48", "--target", "torch"]
        subprocess.run([*command, "-o", folder / f"{name}.py"], check=True, capture_output=True)


def load(name: str) -> ModuleType:
    bundled = HERE / "exported"
    with tempfile.TemporaryDirectory() as made:
        if not bundled.is_dir():
            if not TOOL.exists():
                gpu.skip("the tool is not built")
            export(TOOL, Path(made))
        path = (bundled if bundled.is_dir() else Path(made)) / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"exported_{name}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module


@gpu.each(*[(name,) for name in SPECS])
def test_files_give_what_they_give_on_the_cpu(name: str) -> None:
    file = load(name)
    for module in file.MODULES.values():
        inputs = file.example(module)
        with torch.no_grad():
            want = module()(**inputs)
            there = module().to(gpu.DEVICE)
            moved = {key: value.to(gpu.DEVICE) for key, value in inputs.items()}
            torch.compiler.reset()
            compiled = torch.compile(there, fullgraph=True, backend="aot_eager")
            for got in (there(**moved), compiled(**moved)):
                pairs = zip(*((v if isinstance(v, tuple) else (v,)) for v in (want, got)), strict=True)  # fmt: skip
                for a, b in pairs:
                    assert b.device.type == gpu.DEVICE and a.dtype == b.dtype
                    if a.dtype == torch.uint8:  # sums in another order: a code may be the next
                        assert (a.int() - b.cpu().int()).abs().max() <= 1
                    else:
                        limit = 1e-5 * float(a.abs().max())
                        assert (a - b.cpu()).abs().max() <= limit
