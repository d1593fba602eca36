"""Tests use bench, demo and the package of this tree, and by default the libraries of the release build."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
sys.path[:0] = [str(ROOT), str(ROOT / "python")]
os.environ["PYTHONPATH"] = str(ROOT / "python")  # for the programs that tests start
