"""Trains a network plain and wrapped, then packs real images: tables here, a report in a folder.

python -m demo --build build/release --out build/demo [--quick]
"""

import argparse
import base64
import io
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from bench.images import ZOOM, ImagesError, ImageSet, astronaut, load_sets
from demo import DemoError, training
from demo.rates import curves, has_sz3
from demo.report.check import find_browser, problems, screenshot
from demo.report.html import (
    KEEPS,
    Picture,
    Report,
    Row,
    SetReport,
    decibels,
    largest_error,
    peer_score,
    render,
)

SHOWN_KEEPS = (6, 4, 2)
PEER_KEEPS = (2, 3, 4)  # zfp gets the sizes of these
MARGIN, TILE = 12, 256  # of the picture that `tuckfold eval --png` draws


class Tool:
    """The command line tool; remembers what it was asked, for the report."""

    def __init__(self, path: Path) -> None:
        if not path.is_file() or not os.access(path, os.X_OK):
            raise DemoError(f"{path} is no program; build it with ./dev build, or name another")
        self.path = path
        self.commands: list[list[str]] = []

    def run(self, *args: str) -> str:
        program = self.path if self.path.is_absolute() else Path.cwd() / self.path
        done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit status {done.returncode}"
            raise DemoError(f"{shlex.join([str(self.path), *args])}\n  failed: {said}")
        return done.stdout

    def rows(self, *args: str) -> list[Row]:
        self.commands.append([str(self.path), *args])
        return json.loads(self.run(*args))

    def has_zfp(self) -> bool:
        try:
            self.run("bench", "--synthetic", "8x8", "--peer", "zfp@8", "--min-time", "0", "--json")
        except DemoError:
            return False
        return True


def square(keep: int) -> str:
    return f"dct_chop(keep={keep})"


def blocks_per_value(images: ImageSet) -> float:
    """How many 8x8 blocks there are for each value; above 1/64 where edges are padded."""
    height, width = images.images.shape[-2:]
    return -(-height // 8) * -(-width // 8) / (height * width)


def codecs(images: ImageSet, quick: bool) -> list[str]:
    """Every keep that does not grow the set; triangles and f16 coefficients for some."""
    some = (4,) if quick else (2, 4, 6)
    texts = [square(keep) for keep in KEEPS if blocks_per_value(images) * keep**2 <= 1]
    texts += [f"dct_chop(keep={keep}, shape=triangle)" for keep in (*some, 8)]
    return texts + [f"dct_chop(keep={keep}, coef=f16)" for keep in some]


def zfp_rates(images: ImageSet) -> str:
    """Bits per value at which zfp is as large as PEER_KEEPS."""
    return ",".join(f"{32 * blocks_per_value(images) * keep**2:.4g}" for keep in PEER_KEEPS)


# ---- pictures


def data_uri(picture: np.ndarray) -> str:
    png = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(png, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()


def upright(image: np.ndarray) -> np.ndarray:
    """H x W, or 3 x H x W as H x W x 3."""
    return image if image.ndim == 2 else image.transpose(1, 2, 0)


def tiles(path: Path, original: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Result and error out of eval's picture, which shows original, result, error in a row."""
    with Image.open(path) as picture:
        whole = np.asarray(picture.convert("RGB"))
    height, width = original.shape[:2]
    scale = max(1, TILE // max(height, width))
    step = (whole.shape[1] - MARGIN) // 3
    top = whole.shape[0] - MARGIN - height * scale
    lefts = [MARGIN + step * column for column in range(3)]
    first, result, error = (
        whole[top : top + height * scale : scale, x : x + width * scale : scale] for x in lefts
    )
    grey = original.ndim == 2
    if not np.array_equal(first[..., 0] if grey else first, original):
        raise DemoError("`tuckfold eval --png` does not draw original, result, error in a row")
    return (result[..., 0], error[..., 0]) if grey else (result, error)


def montage(pictures: list[np.ndarray]) -> np.ndarray:
    """One picture as it is; nine as three rows with a thin line between."""
    if len(pictures) == 1:
        return pictures[0]
    pad = ((0, 1), (0, 1), (0, 0))[: pictures[0].ndim]
    padded = [np.pad(p, pad, constant_values=255) for p in pictures]
    rows = [np.concatenate(padded[i : i + 3], axis=1) for i in range(0, len(padded), 3)]
    return np.concatenate(rows)[:-1, :-1]


def uris(images: ImageSet, whole: np.ndarray) -> tuple[str, str]:
    """A picture, and its part to be enlarged or nothing."""
    if images.zoom is None:
        return data_uri(whole), ""
    top, left = images.zoom
    return data_uri(whole), data_uri(whole[top : top + ZOOM, left : left + ZOOM])


def evaluate(tool: Tool, images: ImageSet, file: Path, keep: int, scratch: Path) -> Picture:
    """The shown images as keep leaves them, through the tool's own picture."""
    originals = [upright(image) for image in images.images[list(images.shown)]]
    results, errors = [], []
    png = scratch / "eval.png"
    for index, original in enumerate(originals):
        args = ["eval", str(file), "--codec", square(keep), "--index", str(index)]
        (row,) = json.loads(tool.run(*args, "--png", str(png), "--force", "--json"))
        result, error = tiles(png, original)
        results.append(result)
        errors.append(error)
    figures = f"ratio {row['ratio']:.2f}, {decibels(row)} dB"
    shown = uris(images, montage(results)) + uris(images, montage(errors))
    return Picture(f"keep={keep}", figures, *shown, error_gain=row["error_gain"])


def show(
    tool: Tool, images: ImageSet, out: Path, keeps: Sequence[int]
) -> tuple[Picture, dict[int, Picture]]:
    """The original, and its picture at each keep."""
    file = out / f"{images.name}_shown.npy"
    np.save(file, images.images[list(images.shown)])
    command = [str(tool.path), "eval", str(file), "--codec", *map(square, keeps)]
    tool.commands.append([*command, "--png", f"{images.name}.png"])
    whole = montage([upright(image) for image in images.images[list(images.shown)]])
    original = Picture("original", "u8 pixels", *uris(images, whole))
    with tempfile.TemporaryDirectory() as scratch:
        made = {keep: evaluate(tool, images, file, keep, Path(scratch)) for keep in keeps}
    return original, made


# ---- measuring and telling


def measure(tool: Tool, images: ImageSet, args: argparse.Namespace, zfp: bool) -> list[Row]:
    file = args.out / f"{images.name}.npy"
    np.save(file, np.ascontiguousarray(images.images))
    least = "0.01" if args.quick else "0.12"
    common = ["bench", str(file), "--threads", str(args.threads), "--json"]
    rows = tool.rows(*common, "--min-time", least, "--codec", *codecs(images, args.quick))
    if zfp:  # a hundred times slower: one round is enough
        once = ["--min-time", "0", "--repeat", "1"]
        rows += tool.rows(*common, *once, "--peer", f"zfp@{zfp_rates(images)}")
    return rows


def progress(words: str) -> None:
    """A line on the terminal that the next call replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def print_table(images: ImageSet, rows: list[Row]) -> None:
    shape = "x".join(map(str, images.images.shape))
    print(f"\n{images.title}, {shape}, u8 packed as f32")
    print(f"{'':33}{'ratio':>15}{'':>18}{'pack':>14}{'unpack':>16}")
    print(
        f"{'codec':33}{'f32':>8}{'u8':>7}{'PSNR dB':>9}{'max err':>9}"
        f"{'GB/s':>7}{'of copy':>8}{'GB/s':>8}{'of copy':>8}"
    )
    for row in rows:
        name = row["codec"] + (" (peer)" if row["peer"] else "")
        print(
            f"{name:33}{row['ratio']:8.2f}{row['ratio_stored']:7.2f}{decibels(row):>9}"
            f"{largest_error(row):>9}{row['pack_gbps']:7.2f}{row['pack_of_copy']:8.2f}"
            f"{row['unpack_gbps']:8.2f}{row['unpack_of_copy']:8.2f}"
        )


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cache_note(images: ImageSet) -> str:
    """Says so when an array as f32 fits in the last cache, where copies and codecs are quicker."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    cache = max((int(file.read_text().strip().removesuffix("K")) for file in sizes), default=0)
    fits = images.images.size * 4 <= cache * 1024
    return f"; it fits in the cache of {cache // 1024} MiB, which quickens it" if fits else ""


def machine(tool: Tool, rows: list[Row]) -> dict[str, str]:
    threads = rows[0]["threads"]
    return {
        "Processor": cpu_name(),
        "Cores": str(len(os.sched_getaffinity(0))),
        "SIMD target": rows[0]["cpu_target"],
        "Threads measured": str(threads),
        "Version": tool.run("--version").strip(),
    }


def check(page: Path) -> None:
    browser = find_browser()
    if browser is None:
        print("report not checked: chromium is not installed")
        return
    found, height = problems(page, browser)
    if found:
        raise DemoError(f"{page} has problems in {browser}:\n  " + "\n  ".join(found))
    picture = page.with_suffix(".png")
    screenshot(page, browser, height, picture)
    if not picture.exists():
        raise DemoError(f"{browser} wrote no screenshot {picture}")
    print(f"report checked in headless Chromium, no errors; screenshot {picture}")


def show_training(args: argparse.Namespace) -> Path | None:
    """The first page: one network trained plain and wrapped. Says why if that cannot be."""
    libraries = args.build / "python"
    if why := training.missing(libraries):
        print(f"training left out: {why}")
        return None
    progress("training a network twice ...")
    page = args.out / "report.html"
    found = training.compare(libraries, args.quick, page)
    progress("")
    training.complete(page, found, "codecs.html")
    training.print_table(found)
    sys.stdout.flush()
    return page


def show_codecs(args: argparse.Namespace, first_page: str) -> Path:
    """The second page: real images through every codec."""
    tool = Tool(args.build / "tuckfold")
    sets, notes = load_sets(args.quick)
    zfp = tool.has_zfp()
    if not zfp:
        notes.append("zfp left out: libzfp is not installed")
    sz3 = has_sz3(tool)
    if not sz3:
        notes.append("SZ3 left out: it is not installed; TUCKFOLD_SZ3 may name its library")
    reports = []
    for images in sets:
        progress(f"packing {images.title} ...")
        rows = measure(tool, images, args, zfp)
        progress("")
        print_table(images, rows)
        sys.stdout.flush()
        original, shown = show(tool, images, args.out, SHOWN_KEEPS)
        progress(f"quality at many sizes: {images.title} ...")
        rates = curves(tool, images, args.out, zfp, sz3)
        progress("")
        note = cache_note(images)
        reports.append(SetReport(images, rows, original, list(shown.values()), note, rates))
    dial = show(tool, astronaut(sets[0]), args.out, KEEPS)
    page = args.out / "codecs.html"
    facts = machine(tool, reports[0].rows)
    page.write_text(render(Report(facts, reports, *dial, tool.commands), first_page))
    print("\nratio below 1 against u8: the u8 file was smaller. of copy: 1 is as quick as copying.")
    if score := peer_score([one.rows for one in reports]):
        print(f"zfp is a peer: {score}.")
    for note in notes:
        print(note)
    return page


def demo(args: argparse.Namespace) -> None:
    start = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    first = show_training(args)
    pages = [first] if first else []
    pages.append(show_codecs(args, first.name if first else ""))
    for page in pages:
        check(page)
    print(f"{time.monotonic() - start:.0f} s. The report: {pages[0]}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--build", type=Path, default=Path("build/release"), help="folder of a build"
    )
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder to write to")
    parser.add_argument("--threads", type=int, default=1, help="0 is every core; default 1")
    parser.add_argument(
        "--quick", action="store_true", help="few images, one small set, rough speeds"
    )
    return parser.parse_args()


if __name__ == "__main__":
    try:
        demo(parse())
    except (DemoError, ImagesError, OSError) as error:
        sys.exit(f"demo: {error}")
