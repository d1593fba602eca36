"""Examples in docstrings are true."""

import doctest
import importlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tuckfold

ROOT = Path(__file__).parents[3]
MODULES = [
    "tuckfold",
    "tuckfold._choose",
    "tuckfold._codec",
    "tuckfold._dataset",
    "tuckfold._file",
    "tuckfold._hdf5",
    "tuckfold._packed",
    "tuckfold._save",
    "tuckfold._writer",
    "tuckfold._spec",
    "tuckfold._library",
    "tuckfold.torch",
    "tuckfold.torch._dataset",
    "tuckfold.torch._functions",
    "tuckfold.torch._images",
    "tuckfold.torch._module",
    "tuckfold.torch._structured._factorize",
    "tuckfold.torch._structured._project",
    "tuckfold.torch._structured._replace",
    "tuckfold.torch.nn",
    "tuckfold.torch.nn._layers",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = np.linspace(0, 1, 100 * 8 * 8, dtype=np.float32).reshape(100, 8, 8)
    codecs = {"image": "dct_quant(rate=2)", "label": "bits(width=4)"}
    tuckfold.save(
        "doc.tuck",
        image=image,
        label=np.arange(100) % 10,
        codec=codecs,
        metadata={"source": "synthetic"},
    )
    names = {"np": np, "tuckfold": tuckfold}
    if name.startswith("tuckfold.torch"):
        names["torch"] = pytest.importorskip("torch")
    result = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert result.failed == 0


def test_training_in_cpp_keeps_every_bit() -> None:
    program = ROOT / "build/release/tuckfold_example_train"
    if not program.exists():
        pytest.skip(f"no {program}; ./dev build makes it where torch is")
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "equal in every bit" in done.stdout, done.stdout + done.stderr
