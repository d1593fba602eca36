"""Modules for packages that are not installed say what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["lightning", "transformers", "torch"])
def test_what_is_missing_is_named(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import tuckfold.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: tuckfold.{name} needs ") and "install" in last
