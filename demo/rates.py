"""Curves of quality over size: the tool's codecs, zfp and SZ3 through it, JPEG through Pillow."""

import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from bench.images import ImageSet
from demo import DemoError
from demo.report.plots import Series

MOST_VALUES = 2_000_000  # of a set; curves need fewer than speeds
JPEG_SIDE = 65500  # the longest that JPEG takes
QUALITIES = (10, 20, 35, 50, 65, 80, 90, 95, 98)
RATES = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)
BOUNDS = (32, 20, 12, 8, 5, 3, 2, 1)  # in steps of a u8 pixel

# Label, class, marker and specs of each curve; one whose codecs are not there is left out.
CURVES = (
    ("dct_quant", "square", "circle", [f"dct_quant(rate={rate}, dc=4)" for rate in RATES]),
    (
        "dct_chop | block_quant",
        "triangle",
        "triangle",
        [f"dct_chop(keep={keep}) | block_quant(bits=8)" for keep in range(1, 9)],
    ),
    (
        "dct_chop, f16",
        "half",
        "diamond",
        [f"dct_chop(keep={keep}, coef=f16)" for keep in range(1, 6)],
    ),
    ("bounded", "bound", "square", [f"bounded(abs={bound})" for bound in BOUNDS]),
    ("bounded | zstd", "bound", "diamond", [f"bounded(abs={bound}) | zstd" for bound in BOUNDS]),
    ("zfp", "peer dashed", "square", [f"zfp(rate={rate})" for rate in RATES]),
)


class Tool(Protocol):
    def run(self, *args: str) -> str: ...
    def rows(self, *args: str) -> list[dict]: ...


def some_of(images: ImageSet) -> ImageSet:
    """Every so many images of the set, few enough for curves."""
    step = math.ceil(images.images.size / MOST_VALUES)
    return replace(images, images=np.ascontiguousarray(images.images[::step]))


# ---- JPEG


def stacks(images: np.ndarray) -> Iterator[np.ndarray]:
    """N x H x W (x 3) images one above the other, edges repeated up to whole blocks of 8.

    Tables and headers then count once, and not once for each small image.
    """
    pads = [(0, 0), *((0, -side % 8) for side in images.shape[1:3]), (0, 0)]
    padded = np.pad(images, pads[: images.ndim], mode="edge")
    height = padded.shape[1]
    for first in range(0, len(padded), JPEG_SIDE // height):
        part = padded[first : first + JPEG_SIDE // height]
        yield part.reshape(-1, *part.shape[2:])


def jpeg_point(images: np.ndarray, quality: int) -> tuple[float, float]:
    """Bits per value, and PSNR with the range of the data as peak."""
    size, results = 0, []
    for stack in stacks(images):
        file = io.BytesIO()
        Image.fromarray(stack).save(file, "JPEG", quality=quality, subsampling=0, optimize=True)
        size += file.tell()
        with Image.open(file) as picture:
            results.append(np.asarray(picture))
    height, width = images.shape[1:3]
    padded = [-(-side // 8) * 8 for side in (height, width)]
    result = np.concatenate(results).reshape(len(images), *padded, *images.shape[3:])
    error = result[:, :height, :width].astype(np.float64) - images
    square = np.mean(error**2)
    peak = float(images.max()) - float(images.min())
    psnr = math.inf if square == 0 else 20 * math.log10(peak) - 10 * math.log10(square)
    return size * 8 / images.size, psnr


def jpeg_series(label: str, marker: str, images: np.ndarray) -> Series:
    points = []
    for quality in QUALITIES:
        bits, psnr = jpeg_point(images, quality)
        points.append((bits, psnr, f"JPEG quality {quality}: {bits:.2f} bits, {psnr:.1f} dB"))
    return Series(label, "jpeg dashed", marker, points)


def jpeg_curves(images: np.ndarray) -> list[Series]:
    """Of grey images one curve; of colour ones in colour, and of their planes as grey images."""
    if images.ndim == 3:
        return [jpeg_series("JPEG", "circle", images)]
    planes = images.reshape(-1, *images.shape[-2:])
    colour = images.transpose(0, 2, 3, 1)
    return [
        jpeg_series("JPEG, colour", "circle", colour),
        jpeg_series("JPEG, planes", "triangle", planes),
    ]


# ---- through the tool


def series_of(label: str, css: str, marker: str, rows: Sequence[dict], values: int) -> Series:
    """What is exact has no place on the curve."""
    points = []
    for row in rows:
        bits = row["packed_bytes"] * 8 / values
        if row["psnr_db"] is not None:
            hint = f"{row['codec']}: {bits:.2f} bits, {row['psnr_db']:.1f} dB"
            points.append((bits, row["psnr_db"], hint))
    return Series(label, css, marker, sorted(points))


def sz3_peer() -> str:
    path = os.environ.get("TUCKFOLD_SZ3")
    return f"sz3={path}" if path else "sz3"


def has_sz3(tool: Tool) -> bool:
    quick = ["--synthetic", "8x8", "--min-time", "0", "--repeat", "1", "--json"]
    try:
        tool.run("bench", *quick, "--peer", f"{sz3_peer()}@1e-2")
    except DemoError:
        return False
    return True


def codec_names(tool: Tool) -> set[str]:
    return {codec["name"] for codec in json.loads(tool.run("codecs", "--json"))}


def curves(tool: Tool, images: ImageSet, out: Path, zfp: bool, sz3: bool) -> list[Series]:
    """Ours first; bits per value are those of the packed bytes."""
    few = some_of(images)
    file = out / f"{images.name}_rates.npy"
    np.save(file, few.images)
    there = codec_names(tool) - (set() if zfp else {"zfp"})
    made = []
    for label, css, marker, specs in CURVES:
        names = {stage.split("(")[0] for stage in specs[0].split(" | ")}
        if names <= there:
            rows = tool.rows("eval", str(file), "--codec", *specs, "--json")
            made.append(series_of(label, css, marker, rows, few.images.size))
    if sz3:
        bounds = ",".join(f"{bound / 255:.3g}" for bound in BOUNDS)
        once = ["--min-time", "0", "--repeat", "1", "--threads", "1", "--json"]
        rows = tool.rows("bench", str(file), *once, "--peer", f"{sz3_peer()}@{bounds}")
        made.append(series_of("SZ3", "sz dashed", "triangle", rows, few.images.size))
    return made + jpeg_curves(few.images)
