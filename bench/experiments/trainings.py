"""Many trainings, each a row that is written when it is done, so that a further run goes on from there."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tuckfold
from bench.record import ROOT, Figure, Record, command_line

Rows = list[dict[str, Any]]


def deterministic() -> None:
    """The same training has the same bits, on a GPU with products in TF32, too."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


class Trainings:
    """The rows so far, in a file; a figure lies beside it.

    Args:
        path: of the JSON.
        about: what goes into the file: size, device, settings. Rows of other settings are refused.
        figures: numbers derived from the rows.
        picture: of the rows, as SVG.
        minutes: after which no further training should begin.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        method: str,
        about: dict[str, Any],
        figures: Callable[[Rows], list[Figure]],
        picture: Callable[[Rows], str],
        minutes: float | None,
    ) -> None:
        self.path, self._figures, self._picture = path, figures, picture
        self._limit = math.inf if minutes is None else time.monotonic() + 60 * minutes
        command = command_line(f"python -m bench.experiments.{name}")
        about = {"torch": torch.__version__} | about
        if about["device"] == "cuda":
            about["gpu"] = torch.cuda.get_device_name()
        quick = about["size"] == "test"
        self.record = Record(name, quick, ROOT / "build/release", method, [command], extra=about)
        if path.exists():
            before = json.loads(path.read_text())
            if before["settings"] != about["settings"]:
                sys.exit(f"{name}: {path} has other settings; give another --out or remove it")
            self.record.rows = before["rows"]
            self.record.commands = list(dict.fromkeys([*before["commands"], command]))

    @property
    def rows(self) -> Rows:
        return self.record.rows

    def is_late(self) -> bool:
        return time.monotonic() > self._limit

    def has(self, **of: object) -> bool:
        return any(all(row[k] == v for k, v in of.items()) for row in self.rows)

    def in_parallel(self, module: str, parts: list[list[str]], jobs: int) -> None:
        """Runs the study once for each part, `jobs` processes at a time, and adds what is missing here.

        Args:
            parts: the arguments of each; where the rows go is added to them.
        """
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        with tempfile.TemporaryDirectory() as folder:
            left = [(part, Path(folder) / f"{i}.json") for i, part in enumerate(parts)]
            running: list[tuple[subprocess.Popen, Path]] = []
            while left or running:
                while left and len(running) < jobs and not self.is_late():
                    part, out = left.pop(0)
                    if self.path.exists():
                        shutil.copy(self.path, out)  # whose rows are not trained again
                    command = [sys.executable, "-m", module, *part, "--out", str(out)]
                    minutes = (self._limit - time.monotonic()) / 60
                    if math.isfinite(minutes):
                        command += ["--minutes", f"{minutes:.3f}"]
                    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=env)
                    running.append((child, out))
                if self.is_late():
                    left = []
                time.sleep(0.2)
                for process, out in [each for each in running if each[0].poll() is not None]:
                    running.remove((process, out))
                    if process.returncode != 0:
                        print(f"{' '.join(process.args[2:])}: status {process.returncode}")
                    for row in json.loads(out.read_text())["rows"] if out.exists() else []:
                        if row not in self.rows:
                            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.record.figures = self._figures(self.rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(self.record.text(tuckfold.__version__))
        part.replace(self.path)
        self.path.with_suffix(".svg").write_text(self._picture(self.rows))
        print({k: v for k, v in row.items() if not isinstance(v, (dict, list))}, flush=True)
