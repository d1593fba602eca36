#!/usr/bin/env python3
"""Writes docs/api.md from the docstrings of the Python package; --check only compares.

docs/generate/api.py [--check]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/api.md"
MODULES = ("tuckfold", "tuckfold.torch", "tuckfold.torch.nn")
HEAD = """# What is in the Python package?

Every public name, from its docstring; `docs/generate/api.py` writes this page and a test runs its examples,
with `numpy` as `np`, and `torch`, imported. `doc.tuck` is a file with 100 samples of two arrays, `image` and
`label`. [Quick start](python.md).
"""


def signature(thing: object) -> str:
    """As it is called: annotations without the quotes that deferred evaluation leaves."""
    return str(inspect.signature(thing)).replace("'", "").replace(" -> None", "")


def fields(kind: type) -> Iterator[str]:
    """The fields of a dataclass, each with the comment `#:` beside it."""
    source = inspect.getsource(kind)
    for field in dataclasses.fields(kind):
        found = re.search(rf"^    {field.name}:.*?#: (.*)$", source, re.MULTILINE)
        yield f"- `{field.name}`: {field.type}" + (f" – {found[1]}" if found else "")


def body(docstring: str) -> str:
    """Docstring to Markdown: sections as lists, examples as code."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", inspect.cleandoc(docstring)).replace("``", "`")
    lines: list[str] = []
    section, code = "", False
    for line in text.splitlines():
        starts = line.startswith(">>> ")
        if starts and not code:
            lines.append("```pycon")
            code = True
        elif code and not line:
            lines.append("```")
            code = False
        if not code and re.fullmatch(r"(Args|Returns|Raises):", line):
            lines += [f"**{line.removesuffix(':')}**", ""]
            section = line
        elif section == "Returns:" and line.startswith("    "):
            lines.append(line.strip())
        elif section and re.match(r"    \S", line):
            name = re.match(r"    ([\w.]+): (.*)", line)
            lines.append(f"- `{name[1]}`: {name[2]}" if name else f"- {line.strip()}")
        elif section and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            section = "" if line.strip() else section
            lines.append(line)
    return "\n".join(lines + ["```"] * code)


def entries(module: str) -> Iterator[str]:
    package = importlib.import_module(module)
    yield f"## {module}"
    yield body(package.__doc__ or "")
    for name in package.__all__:
        thing = getattr(package, name)
        error = inspect.isclass(thing) and issubclass(thing, Exception)
        yield f"### `{module}.{name}{'' if error else signature(thing)}`"
        yield body(thing.__doc__ or "")
        if dataclasses.is_dataclass(thing):
            yield "\n".join(fields(thing))
        if not inspect.isclass(thing) or dataclasses.is_dataclass(thing) or error:
            continue
        for key, member in vars(thing).items():
            documented = None if key.startswith("_") else getattr(member, "__doc__", None)
            function = getattr(member, "__func__", member)
            if documented and isinstance(member, property):
                yield f"**`{key}`** {body(documented)}"
            elif documented and inspect.isfunction(function):
                call = re.sub(r"^\((self|cls)(, )?", "(", signature(function))
                yield f"**`{key}{call}`** {body(documented)}"


def page() -> str:
    parts = [HEAD.rstrip()]
    for module in MODULES:
        parts += entries(module)
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where the page is out of date")
    check = parser.parse_args().check
    os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
    sys.path.insert(0, str(ROOT / "python"))
    text = page()
    if check and text != PAGE.read_text():
        print(f"{PAGE.relative_to(ROOT)} is out of date; run docs/generate/api.py")
        return 1
    if not check:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
