"""The command line tool that is installed with the package."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    """Runs it in place of this process."""
    if sys.argv[1:2] == ["activations"]:
        del sys.argv[1]
        activations()
    tool = Path(__file__).parent / "bin/tuckfold"
    if not tool.exists():
        sys.exit(
            "tuckfold: the package was built without the command line tool; install Debian's "
            "libcli11-dev, nlohmann-json3-dev, libpng-dev and zlib1g-dev, then tuckfold again"
        )
    os.execv(tool, ["tuckfold", *sys.argv[1:]])


def activations() -> None:
    """The verb `activations`, as a program beside the tool: it is Python, since models are."""
    if importlib.util.find_spec("torch") is None:
        sys.exit("tuckfold activations: needs PyTorch; install torch, then tuckfold again")
    command = [sys.executable, "-m", "tuckfold.torch._activations", *sys.argv[1:]]
    os.execv(sys.executable, command)
