"""Sentences of the documents and of --help that promise something."""

import re
import subprocess
from pathlib import Path

from program import PROGRAM, ROOT

WORDS = re.compile(
    r"every value within|nothing (is |was )?lost|\bwhole\b(?! number| sample| tile| plane| chunk| "
    r"element| grid| matri| model| array| step)|\bexact(ly)?\b|the same bytes|\bnever\b|byte for byte|every bit",
    re.IGNORECASE,
)
SKIPPED = ("docs/decisions/", "docs/generate/", "docs/benchmarks.md", "docs/devices.md")


def sentences(text: str) -> list[str]:
    """Sentences, items of lists and rows of tables, with single spaces."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    parts = re.split(r"(?<=[.:;!?*])\s+|\n\s*\n|\n\s*\||\n- |\n#+ ", text)
    return [re.sub(r"\s+", " ", part).strip() for part in parts]


def promising(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if WORDS.search(sentence)]


def in_documents() -> dict[str, list[str]]:
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = {str(file.relative_to(ROOT)): file for file in files}
    return {
        name: promising(file.read_text("utf-8"))
        for name, file in names.items()
        if not name.startswith(SKIPPED)
    }


def help_of(*verb: str) -> str:
    done = subprocess.run(
        [str(PROGRAM), *verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "10000"},
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def in_help() -> dict[str, list[str]]:
    verbs = re.findall(r"^  (\w+) {3,}\S", help_of().split("Verbs:")[1], re.MULTILINE)
    pages = {f"{verb} --help": help_of(verb) for verb in verbs} | {"--help": help_of()}
    # Each option, and each verb, is a sentence.
    return {
        page: promising(re.sub(r"\n  +(-|\w+ {2,})", r"\n\n\1", text))
        for page, text in pages.items()
    }


def has_test(name: str, root: Path = ROOT) -> bool:
    """`tests/x.py::test_y`, `src/x_test.cc::Suite.Name`, or a case of the command line."""
    path, _, test = name.partition("::")
    file = root / path
    if not file.is_file():
        return False
    if not test:
        return path.startswith("tests/cli/cases/")
    text = file.read_text("utf-8")
    if path.endswith(".py"):
        return re.search(rf"^def {re.escape(test)}\(", text, re.MULTILINE) is not None
    suite, _, case = test.partition(".")
    return re.search(rf"\b(TEST|TEST_F|TEST_P)\({suite},\s*{case}\)", text) is not None
