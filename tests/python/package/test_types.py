"""Every public name has a type that type checkers know."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_types_are_complete(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    torch = pytest.importorskip("torch")
    shutil.copytree(ROOT / "python/tuckfold", tmp_path / "tuckfold")
    path = os.pathsep.join([str(tmp_path), str(Path(torch.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--verifytypes", "tuckfold", "--ignoreexternal", "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert json.loads(done.stdout)["typeCompleteness"]["completenessScore"] == 1
