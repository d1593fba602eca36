"""Tests use the package of this tree and the libraries of the release build, unless told otherwise."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = str(ROOT / "python")  # for the programs that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fails where the package is tested without its library, rather than passing with nothing done."""
    library = Path(os.environ["TUCKFOLD_LIBRARIES"]) / "libtuckfold_c.so"
    if not library.exists() and any("package" in str(item.path) for item in items):
        raise pytest.UsageError(f"no {library}; run ./dev build")
