#!/usr/bin/env python3
"""Runs the command line against written-down expectations.

tests/cli/run.py TUCKFOLD [--rebase] [NAME...]

A case is cases/NAME.sh, run by bash in an empty folder; TUCKFOLD, MAKE_NPY and
MAKE_MANIFEST name the programs.
NAME.stdout and NAME.stderr hold what it must print (no file: nothing), NAME.exit its exit status
(no file: 0). In NAME.stdout.glob and NAME.stderr.glob an asterisk matches any text in a line.
A case that cannot run here says why and exits with 77: it is skipped, and counted as such.
--rebase writes what was seen, but never over a .glob.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = HERE / "cases"


def run_case(script: Path, program: Path) -> dict[str, str]:
    """What the script printed, and its exit status, as texts."""
    # Settings of the caller must not reach the cases; locale decides what strerror says.
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("TUCKFOLD", "LC_", "LANG", "COLUMNS"))
    }
    env |= {"TUCKFOLD": str(program), "LC_ALL": "C"}
    env |= {name.upper(): str(HERE / f"{name}.py") for name in ("make_npy", "make_manifest")}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["bash", "-eu", str(script)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
    return {"stdout": done.stdout, "stderr": done.stderr, "exit": f"{done.returncode}\n"}


def expected(script: Path, kind: str) -> tuple[str, bool]:
    """The text that must come, and whether asterisks in it are wild."""
    glob = script.with_suffix(f".{kind}.glob")
    if glob.exists():
        return glob.read_text(), True
    exact = script.with_suffix(f".{kind}")
    return (exact.read_text() if exact.exists() else "0\n" if kind == "exit" else ""), False


def matches(want: str, got: str, wild: bool) -> bool:
    if not wild:
        return want == got
    pattern = ".*".join(re.escape(part) for part in want.split("*"))
    return re.fullmatch(pattern, got) is not None


def rebase(script: Path, kind: str, got: str) -> None:
    path = script.with_suffix(f".{kind}")
    if got == ("0\n" if kind == "exit" else ""):
        path.unlink(missing_ok=True)
    else:
        path.write_text(got)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rebase", action="store_true")
    options = parser.parse_args()
    scripts = sorted(CASES.glob("*.sh"))
    if options.names:
        scripts = [script for script in scripts if script.stem in options.names]
    failed = skipped = 0
    for script in scripts:
        seen = run_case(script, options.program.resolve())
        if seen["exit"] == "77\n":
            skipped += 1
            print(f"skipped {script.stem}: {seen['stdout'].strip()}")
            continue
        wrong = []
        for kind, got in seen.items():
            want, wild = expected(script, kind)
            if matches(want, got, wild):
                continue
            if options.rebase and not wild:
                rebase(script, kind, got)
                print(f"rebased {script.stem}.{kind}")
                continue
            lines = difflib.unified_diff(
                want.splitlines(keepends=True),
                got.splitlines(keepends=True),
                f"{script.stem}.{kind}, expected",
                f"{script.stem}.{kind}, seen",
            )
            wrong.append("".join(lines))
        if wrong:
            failed += 1
            print(f"FAILED {script.stem}", *wrong, sep="\n")
    counts = f"{len(scripts) - failed - skipped} passed, {failed} failed"
    print(counts + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not scripts else 0


if __name__ == "__main__":
    sys.exit(main())
