"""Modules for packages that are not installed say what to install."""

import _ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["lightning", "transformers", "torch"])
def test_what_is_missing_is_named(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import tuckfold.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: tuckfold.{name} needs ") and "install" in last


def error_of(code: str, libraries: Path | None = None) -> str:
    """The last line of a program that fails."""
    env = dict(os.environ, **({"TUCKFOLD_LIBRARIES": str(libraries)} if libraries else {}))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_a_library_of_another_version_is_named(tmp_path: Path) -> None:
    shutil.copy(_ctypes.__file__, tmp_path / "libtuckfold_c.so")  # has no such functions
    last = error_of("import tuckfold", tmp_path)
    assert last.startswith("ImportError: ") and "another version than the Python files" in last
    pytest.importorskip("torch")
    last = error_of("import torch; torch.ops.load_library = bool; import tuckfold.torch")
    assert (
        last.startswith("ImportError: ") and "no operator tuckfold::pack: it is of another" in last
    )


def test_every_operator_that_is_used_is_looked_for() -> None:
    torch = pytest.importorskip("torch")
    import tuckfold.torch as tt

    folder = Path(tt.__file__).parent
    text = "\n".join(file.read_text() for file in folder.rglob("*.py"))
    used = set(re.findall(r"torch\.ops\.tuckfold\.(\w+)", text)) | set(
        re.findall(r'register_fake\("tuckfold::(\w+)"', text)
    )
    made_here = {"mask_to_bits", "bits_to_mask", "seeds", "settle_"}
    assert used - made_here <= set(tt._library._OPERATORS)
    assert all(hasattr(torch.ops.tuckfold, name) for name in tt._library._OPERATORS)
