"""Tests use bench, demo and the package of this tree, and by default the libraries of the release build."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
sys.path[:0] = [str(ROOT), str(ROOT / "python")]
os.environ["PYTHONPATH"] = str(ROOT / "python")  # for the programs that tests start
# Graphs that an earlier run has compiled would come from torch's cache, and no test see them made.
_cache = tempfile.mkdtemp(prefix="tuckfold-tests-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
