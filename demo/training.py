"""The demo's first page: one network trained plain and wrapped, each run in a process of its own."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.images import FASHION_MNIST
from demo import DemoError

ROOT = Path(__file__).parents[1]


@dataclass
class Trained:
    """The result of one run."""

    # Saved for the backward pass of a step, and stored instead, as the plan of a wrapped model has
    # them; 0 for the plain one.
    saved_bytes: int
    stored_bytes: int
    correct: float  # fraction of the test images
    seconds: float
    weights: str  # a digest
    parameters: int
    images: int
    batch: int
    threads: int


@dataclass
class Comparison:
    plain: Trained
    wrapped: Trained
    plain_peak: int  # bytes that a step adds to those of the process
    wrapped_peak: int

    def rows(self) -> list[tuple[str, str, str, str]]:
        """What is compared, plain, wrapped, and how they differ."""
        a, b = self.plain, self.wrapped

        def mebibytes(size: int) -> str:
            return f"{size / 2**20:.1f} MiB"

        slower = b.seconds / a.seconds - 1
        return [
            (
                "stored for backward",
                mebibytes(b.saved_bytes),
                mebibytes(b.stored_bytes),
                f"{b.saved_bytes / b.stored_bytes:.2f} times less",
            ),
            (
                "peak of a step",
                mebibytes(self.plain_peak),
                mebibytes(self.wrapped_peak),
                f"{self.plain_peak / self.wrapped_peak:.2f} times less",
            ),
            ("accuracy", f"{a.correct:.1%}", f"{b.correct:.1%}", "every weight is equal"),
            ("time", f"{a.seconds:.1f} s", f"{b.seconds:.1f} s", f"{slower:+.0%}"),
        ]


def run(libraries: Path, *arguments: str) -> Any:
    """What a process of its own prints."""
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    # Without the threshold the C library keeps freed memory, and the peak would be its, not ours.
    extra = {"MALLOC_MMAP_THRESHOLD_": "65536"} if "--peak" in arguments else {}
    environment = (
        os.environ
        | extra
        | {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "TUCKFOLD_LIBRARIES": str(libraries.absolute()),
        }
    )
    command = [sys.executable, "-m", "demo.train", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DemoError(f"{shlex.join(command)}\n  failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(libraries: Path, quick: bool, report: Path) -> Comparison:
    """Both runs, whose weights must be equal."""
    size = ["--quick"] if quick else []
    plain = Trained(**run(libraries, *size))
    wrapped = Trained(**run(libraries, *size, "--wrapped", "--report", str(report.absolute())))
    if plain.weights != wrapped.weights:
        raise DemoError("training plain and wrapped gave different weights; please report it")
    peaks = [run(libraries, *size, "--peak", *way) for way in ((), ("--wrapped",))]
    return Comparison(plain, wrapped, *peaks)


def missing(libraries: Path) -> str:
    """Why nothing can be trained, or an empty text."""
    if find_spec("torch") is None:
        return "torch is missing"
    if not (libraries / "libtuckfold_torch.so").exists():
        return f"{libraries} has no libtuckfold_torch.so; build the target tuckfold_python"
    if not FASHION_MNIST.exists():
        return "Debian's package dataset-fashion-mnist is missing"
    return ""


def print_table(found: Comparison) -> None:
    run = found.plain
    print(
        f"A CNN of {run.parameters:,} parameters, {run.images:,} images of Fashion-MNIST, batches of {run.batch}, "
        f"{run.threads} threads"
    )
    print(f"{'':22}{'plain':>12}{'wrapped':>12}")
    for name, plain, wrapped, difference in found.rows():
        print(f"{name:22}{plain:>12}{wrapped:>12}   {difference}")


def complete(page: Path, found: Comparison, codecs: str) -> None:
    """Adds the comparison, and a link to the page of codecs, to the report of a handle."""
    text = page.read_text(encoding="utf-8")
    head, mark, rest = text.partition("</h1>")
    if not mark:
        raise DemoError(f"{page} has no heading; act.report() writes one")
    cells = "".join(
        f"<tr><td>{escape(row[0])}</td>{''.join(f'<td class=n>{escape(x)}</td>' for x in row[1:])}</tr>"
        for row in found.rows()
    )
    run = found.plain
    table = (
        f"<p>A network of {run.parameters:,} parameters was trained twice on {run.images:,} images of Fashion-MNIST, "
        f"in batches of {run.batch} on {run.threads} CPU threads: plain, and wrapped by <code>tuckfold.torch.wrap(model)</code>. "
        f'The <a href="{codecs}">second page</a> shows what the lossy codecs do to images.</p>'
        "<div class=scroll><table id=training><thead><tr><th><th class=n>plain<th class=n>wrapped<th class=n>"
        f"</tr></thead><tbody>{cells}</tbody></table></div>"
    )
    page.write_text(head + mark + table + rest, encoding="utf-8")
