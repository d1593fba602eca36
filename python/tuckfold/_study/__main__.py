"""tuckfold study: the measurements and the counts of the butterfly paper, with this library."""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path

from tuckfold._study import _params

STUDIES = {
    "shl": "a network of one hidden layer, six structures: parameters, accuracy, time (tables 3 and 4)",
    "pixelfly": "the same with pixelfly layers of other sizes: parameters, accuracy, time (table 5)",
    "layers": "times of layers over the number of features and the batch, beside torch.nn.Linear (figure 6)",
    "matmul": "dense, sparse and skewed products of matrices, in per cent of the peak (table 2, figure 4)",
    "memory": "memory of a training step of each layer, predicted and measured; tiles of an IPU (figures 5 and 7)",
}
_COUNTED = {
    "shl": (_params.shl, _params.lines_of_shl),
    "pixelfly": (_params.pixelfly, _params.lines_of_pixelfly),
}
_HELP = """usage: tuckfold study NAME [options]

The studies of "Reducing Memory Requirements for the IPU using Butterfly Factorizations" (2023), with this library:

{studies}

  tuckfold study shl --params --json        numbers of parameters, at once; also of pixelfly
  tuckfold study shl --help                 what a study measures, and its options

Numbers of parameters need this package alone. What measures is in the sources, bench/experiments, since a result
names the commit and the machine that it is of: run it in a clone.

Exit status: 2 invalid argument."""


def _fail(text: str) -> int:
    print(f"tuckfold: [study] {text}", file=sys.stderr)
    return 2


def _sources(study: str) -> Path | None:
    """The nearest folder from here up that has the study."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "bench/experiments" / study / "__main__.py").is_file():
            return folder
    return None


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help"):
        print(_HELP.format(studies="\n".join(f"  {k:9} {v}" for k, v in STUDIES.items())))
        return 0
    study, *options = words
    if study not in STUDIES:
        near = difflib.get_close_matches(study, STUDIES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return _fail(f"NAME must be one of {', '.join(STUDIES)}, got '{study}'{hint}")
    if "--params" in options:
        if study not in _COUNTED:
            return _fail(f"--params counts {' and '.join(_COUNTED)}, not {study}; leave it out")
        more = [word for word in options if word not in ("--params", "--json")]
        if more:
            return _fail(f"--params takes --json alone, got '{more[0]}'; leave it out")
        data, lines = _COUNTED[study]
        print(json.dumps(data(), indent=1) if "--json" in options else lines())
        return 0
    root = _sources(study)
    if root is None:
        return _fail(
            f"{study} measures, and no bench/experiments/{study} is here or above; run it in a clone of "
            "Tuckfold's sources"
            + (", or give --params for its counts" if study in _COUNTED else "")
        )
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", f"bench.experiments.{study}", *options]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": path})


if __name__ == "__main__":
    sys.exit(main())
