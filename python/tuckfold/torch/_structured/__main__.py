"""tuckfold factorize: the matrices of a checkpoint as structured layers, within a budget of weights."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tuckfold._errors import CorruptDataError
from tuckfold.torch._structured._checkpoint import factorize_file
from tuckfold.torch._structured._factorize import FAMILIES

_EPILOG = """examples:
  tuckfold factorize model.safetensors --budget 25% -o small.safetensors
  tuckfold factorize model.safetensors --budget 50% --families low_rank,monarch --json
  tuckfold factorize model.safetensors --skip head --skip 'encoder.*'

tuckfold.torch.load_factorized(model, "small.safetensors") loads the result. Errors are those of the matrices;
tuckfold.torch.factorize weighs them by the outputs on calibration data.

Exit status: 2 invalid argument, 3 corrupt data, 5 input or output."""


class _Names:
    """Which layers are skipped; on a terminal, which one is being looked at."""

    def __init__(self, patterns: list[str]) -> None:
        self._patterns, self._used = patterns, set()
        self._seen = 0

    def skipped(self, name: str) -> bool:
        matching = {p for p in self._patterns if fnmatchcase(name, p)}
        self._used |= matching
        return bool(matching)

    def show(self, name: str) -> None:
        unused = [p for p in self._patterns if p not in self._used]
        if unused:
            raise ValueError(
                f"[factorize] --skip {unused[0]} names no matrix that would be factorized"
            )
        self._seen += 1
        if sys.stderr.isatty():
            print(f"\r\x1b[Klayer {self._seen}: {name}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> _Names:
        return self

    def __exit__(self, *_: object) -> None:
        if self._seen and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tuckfold factorize",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="a safetensors file")
    parser.add_argument("--budget", default="25%", help="25%%, or a number of weights")
    parser.add_argument(
        "-o", "--out", type=Path, help="the file to write; FILE.factorized.safetensors"
    )
    parser.add_argument("--families", default=",".join(FAMILIES), help="those to try")
    parser.add_argument("--least", type=int, default=4096, help="smaller matrices are kept")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAMES",
        help="layers to keep, as in a shell: 'encoder.*'; may be given again",
    )  # fmt: skip
    parser.add_argument("-f", "--force", action="store_true", help="replace a file that exists")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    arguments = parser.parse_args(words)
    to = arguments.out or arguments.file.with_suffix(".factorized.safetensors")
    try:
        if to.exists() and arguments.file.exists() and to.samefile(arguments.file):
            raise ValueError(f"[factorize] '{to}' is the input; write to another file")
        if to.exists() and not arguments.force:
            raise ValueError(
                f"[factorize] '{to}' exists; add --force to write over it, or name another with -o"
            )
        with _Names(arguments.skip) as names:
            report = factorize_file(
                arguments.file,
                to,
                arguments.budget,
                arguments.families.split(","),
                arguments.least,
                names.skipped,
                names.show,
            )
    except CorruptDataError as error:
        print(f"tuckfold: {error}", file=sys.stderr)
        return 3
    except ValueError as error:
        print(f"tuckfold: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tuckfold: {error}", file=sys.stderr)
        return 5
    print(report.to_json() if arguments.json else report)
    if not arguments.json:
        print(
            "outputs were not measured; tuckfold.torch.factorize(model, calibration=...) does that"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
