#!/usr/bin/env python3
"""clang-tidy over the .cc files that differ from a commit.

tools/tidy_changed.py [--base COMMIT] [--build build/release] [--files 40] [--minutes 8]

Compares the working tree with COMMIT; without one, with where the branch left origin/main, else with
the commit before the last, else with nothing, so that every file counts. Stops at so many files or
minutes and names what was left out. Exit status 1 where clang-tidy found something.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIDY = "clang-tidy-19"
NO_COMMIT = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name of the empty tree


def git(root: Path, *args: str) -> str | None:
    """What git prints, or None where it fails."""
    run = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def base_of(root: Path, given: str | None) -> str:
    """The commit to compare with. Exits where a given one is none."""
    if given:
        if found := git(root, "rev-parse", "--verify", "--quiet", given + "^{commit}"):
            return found
        sys.exit(f"tidy: no commit '{given}'; name one, a branch or a tag")
    head = git(root, "rev-parse", "HEAD")
    left = git(root, "merge-base", "origin/main", "HEAD")
    if left and left != head:
        return left
    return git(root, "rev-parse", "--verify", "--quiet", "HEAD~1") or NO_COMMIT


def changed(root: Path, base: str) -> list[str]:
    """The .cc files that differ from base or are new, those of tests last."""
    differ = git(root, "diff", "--name-only", "--diff-filter=d", base, "--", "*.cc") or ""
    new = git(root, "ls-files", "--others", "--exclude-standard", "--", "*.cc") or ""
    files = set(differ.splitlines()) | set(new.splitlines())
    return sorted(files, key=lambda file: (file.endswith("_test.cc"), file))


def compiled(build: Path, root: Path) -> set[str]:
    """The files that build compiles, from root on."""
    commands = json.loads((build / "compile_commands.json").read_text())
    found = [Path(one["directory"], one["file"]).resolve() for one in commands]
    return {path.relative_to(root).as_posix() for path in found if path.is_relative_to(root)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="commit to compare with")
    parser.add_argument("--build", default="build/release", help="has compile_commands.json")
    parser.add_argument("--files", type=int, default=40, help="at most so many, default 40")
    parser.add_argument("--minutes", type=float, default=8, help="begin no file later, default 8")
    parser.add_argument("--tidy", default=TIDY, help="the program, default " + TIDY)
    args = parser.parse_args()
    root = Path.cwd().resolve()
    base = base_of(root, args.base)
    known = compiled(Path(args.build), root)
    wanted = [file for file in changed(root, base) if file in known]
    end = time.monotonic() + 60 * args.minutes
    command = [args.tidy, "-p", args.build, "--quiet", "--extra-arg=-Wno-unknown-warning-option"]

    def check(file: str) -> str | None:
        """What was found in a file, empty for nothing; None where there was no time for it."""
        if time.monotonic() > end:
            return None
        run = subprocess.run(
            [*command, file], cwd=root, capture_output=True, text=True, check=False
        )
        return (run.stdout or run.stderr) if run.returncode != 0 else ""

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = dict(zip(wanted, pool.map(check, wanted[: args.files]), strict=False))
    bad = [file for file in wanted if found.get(file)]
    left_out = [file for file in wanted if found.get(file) is None]
    for file in bad:
        print(found[file].rstrip())
    what = "nothing" if base == NO_COMMIT else base[:12]
    print(f"tidy: {len(wanted) - len(left_out)} of {len(wanted)} files that differ from {what}")
    if left_out:
        print(f"tidy: left out, see ./dev tidy --all: {' '.join(left_out)}")
    if bad:
        print(f"tidy: found something in {' '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
