"""The command line tool that is installed with the package."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    """Runs it in place of this process."""
    verbs = {"activations": activations, "factorize": factorize, "study": study}
    verb = verbs.get("".join(sys.argv[1:2]))
    if sys.argv[1:2] == ["pack"] and any(word.split("=")[0] == "--dask" for word in sys.argv):
        verb = pack_dask
    if verb is not None:
        del sys.argv[1]
        verb()
    tool = Path(__file__).parent / "bin/tuckfold"
    if not tool.exists():
        sys.exit(
            "tuckfold: the package was built without the command line tool; install Debian's "
            "libcli11-dev, nlohmann-json3-dev, libpng-dev and zlib1g-dev, then tuckfold again"
        )
    os.environ["TUCKFOLD_PYTHON"] = sys.executable  # doctor looks at this one
    os.execv(tool, ["tuckfold", *sys.argv[1:]])


def activations() -> None:
    """The verb `activations`, as a program beside the tool: it is Python, since models are."""
    _run("activations", "tuckfold.torch._activations")


def factorize() -> None:
    """The verb `factorize`."""
    _run("factorize", "tuckfold.torch._structured")


def study() -> None:
    """The verb `study`, which counts without torch."""
    from tuckfold._study.__main__ import main

    sys.exit(main())


def pack_dask() -> None:
    """The verb `pack` with `--dask`."""
    from tuckfold._pack_dask import main

    sys.exit(main(sys.argv[1:]))


def _run(verb: str, module: str) -> None:
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"tuckfold {verb}: needs PyTorch; install torch, then tuckfold again")
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
