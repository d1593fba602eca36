#!/usr/bin/env python3
"""Fails on an include that points the wrong way; the tables below are the rules.

tools/check_layers.py [ROOT]
"""

import re
import sys
from pathlib import Path

# A module includes itself and modules of earlier rows, never its neighbours in a row.
LAYERS = [
    ["base"],
    ["codec", "structured"],
    ["container", "inputs", "portable", "activations", "compiler/ir"],
    ["choose", "compiler", "planner"],
    ["capi"],
    ["runtime", "torch", "cli"],
]
# The module that implements each public header.
PUBLIC = {
    "base": "error export fill_value tensor version",
    "codec": "codec portable unpack_images unpack_then",
    "structured": "structured",
    "container": "container",
    "compiler": "model program",
    "planner": "devices planner",
    "capi": "c",
}
# Third-party headers, and the only files of src/ that may include them.
THIRD_PARTY = {
    r"hwy/": r"_cpu(\.cc|-inl\.h)$",
    r"cuda|cub/|cooperative_groups": r"\.cuh?$",
    r"CLI/": r"^src/cli/",
    r"png\.h": r"^src/(cli/pictures/|inputs/image_png)",
    r"jpeglib|jerror": r"^src/inputs/image_jpeg",
    r"hdf5\.h": r"^src/inputs/hdf5",
    r"tiffio": r"^src/inputs/image_tiff",
    r"zstd": r"^src/codec/zstd/",
    r"zlib\.h": r"^src/inputs/(inflate|zip_fixture)",
    r"nlohmann/": r"^src/cli/",  # to print; base/json.h is what reads
    r"torch/|ATen/|c10/": r"^src/(torch|runtime)/",
    r"gtest/|gmock/": r"(_test\.cc|_ref\.h|_fixture\.h)$",
    r"benchmark/": r"_bench\.cc$",
    r"fmt/": r"^src/",
    r"sanitizer/": r"^src/(base/cuda/emulate\.h|inputs/hdf5_test\.cc)$",
}
SYSTEM = re.compile(r"(sys/|linux/)?\w+(\.h)?$")  # the C++ library, C and POSIX
STANDARD = re.compile(r"\w+$|std(def|int)\.h$")  # what public headers may use
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')

LEVEL = {module: level for level, row in enumerate(LAYERS) for module in row}
OWNER = {f"tuckfold/{h}.h": module for module, names in PUBLIC.items() for h in names.split()}


def module_of(path: str) -> str | None:
    """The longest module name that contains path: compiler/ir/graph.h is not in compiler."""
    return max((m for m in LEVEL if path.startswith(m + "/")), key=len, default=None)


def problem(file: str, quote: str, header: str) -> str | None:
    """Why `file` may not include `header`, or None."""
    if file.startswith("include/"):
        allowed = header in OWNER if quote == '"' else STANDARD.match(header)
        return None if allowed else "public headers include the standard library and each other"
    for pattern, where in THIRD_PARTY.items():
        if quote == "<" and re.match(pattern, header):
            return None if re.search(where, file) else f"allowed only in {where}"
    if quote == "<":
        return None if SYSTEM.match(header) else "not in the table of third-party headers"
    user = module_of(file.removeprefix("src/"))
    used = OWNER.get(header) or module_of(header)
    if user is None:
        return "its own folder is not in the table of modules"
    if used is None:
        return 'write "module/file.h" from src/, or "tuckfold/file.h" named in the table'
    for_tests = ("_ref.h", "_fixture.h")
    if header.endswith(for_tests) and not file.endswith(("_test.cc", *for_tests)):
        return "references and fixtures serve tests only"
    if used != user and LEVEL[used] >= LEVEL[user]:
        below = [m for m in LEVEL if LEVEL[m] < LEVEL[user]]
        return f"{user} may include {', '.join([user, *below])}"
    return None


def check(root: Path) -> list[str]:
    """One line per wrong include under root/include and root/src."""
    found = []
    for path in sorted(p for top in ("include", "src") for p in (root / top).rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh", ".def"}:
            continue
        file = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (match := INCLUDE.match(line)) and (why := problem(file, *match.groups())):
                found.append(f"{file}:{number}: includes {match[2]}: {why}")
    return found


if __name__ == "__main__":
    wrong = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
    print("\n".join(wrong) or "layers: every include points the right way")
    sys.exit(bool(wrong))
