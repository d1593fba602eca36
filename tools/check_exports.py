#!/usr/bin/env python3
"""Fails where a library exports anything but the functions that a C header declares.

tools/check_exports.py libtuckfold_c.so --header include/tuckfold/tuckfold.h
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path


def exported(library: Path) -> set[str]:
    """Names that others can link, as nm lists them."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[0].partition("@")[0] for line in text.splitlines()}


def declared(header: str) -> set[str]:
    """Functions that follow TUCKFOLD_C_API in a header."""
    return set(re.findall(r"^TUCKFOLD_C_API [^;(]*?\b(\w+)\(", header, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--header", type=Path, required=True)
    arguments = parser.parse_args()
    have, want = exported(arguments.library), declared(arguments.header.read_text())
    for name in sorted(have - want):
        print(f"{arguments.library.name} exports {name}, which the header does not declare")
    for name in sorted(want - have):
        print(f"{arguments.library.name} lacks {name}, which the header declares")
    print(f"exports: {len(have & want)} functions")
    return int(have != want)


if __name__ == "__main__":
    sys.exit(main())
