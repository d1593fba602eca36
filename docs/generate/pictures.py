#!/usr/bin/env python3
"""Draws docs/images/*.svg of codecs that no image shows: values above, the bytes that pack makes of them below.

.venv/bin/python docs/generate/pictures.py [FOLDER]      instead of docs/images
"""

from __future__ import annotations

import html
import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("TUCKFOLD_LIBRARIES", str(ROOT / "build/release/python"))
sys.path.insert(0, str(ROOT / "python"))

import numpy as np  # noqa: E402

import tuckfold  # noqa: E402

CELL, HEIGHT, LEFT, WIDTH = 52, 34, 150, 600
STYLE = (
    "text{font:14px sans-serif;fill:#333}.cell{font:13px monospace;text-anchor:middle}"
    "rect{stroke:#888;fill:#fff}.code rect{fill:#dbeafe}.head rect{fill:#fde9c9}"
)


@dataclass
class Row:
    """A line of boxes, each as wide as so many values."""

    title: str
    cells: list[tuple[str, float]]
    kind: str = ""


def svg(rows: list[Row]) -> str:
    """The rows below each other, with a margin."""
    parts = []
    for number, row in enumerate(rows):
        y = 16 + number * (HEIGHT + 16)
        parts.append(
            f'<text x="0" y="{y + 22}">{html.escape(row.title)}</text><g class="{row.kind}">'
        )
        x = float(LEFT)
        for text, wide in row.cells:
            size = wide * CELL
            parts.append(
                f'<rect x="{x:g}" y="{y}" width="{size:g}" height="{HEIGHT}"/>'
                f'<text class="cell" x="{x + size / 2:g}" y="{y + 22}">{html.escape(text)}</text>'
            )
            x += size
        parts.append("</g>")
    height = 16 + len(rows) * (HEIGHT + 16)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" style="stroke:none"/>\n{body}\n</svg>\n'
    )


def hexes(data: np.ndarray) -> list[str]:
    return [f"{byte:02x}" for byte in data]


def bits() -> list[Row]:
    values = np.array([7, 9, 4, 7, 5, 11, 4, 6], np.int32)
    packed = tuckfold.pack(values, "bits")
    low, width = int(packed[:8].view(np.int64)[0]), int(packed[8])
    return [
        Row("8 values, i32", [(str(v), 1) for v in values]),
        Row(f"less {low}, in {width} bits", [(f"{v - low:0{width}b}", 1) for v in values], "code"),
        Row(
            f"{packed.size} bytes",
            [(f"minimum: {low}", 2.6), (f"width: {width}", 1.6)]
            + [(text, 1.2) for text in hexes(packed[9:])],
            "head",
        ),
    ]


def mask() -> list[Row]:
    values = np.array([0, 1, 1, 0, 0, 0, 1, 0], np.float32)
    packed = tuckfold.pack(values, "mask")
    return [
        Row("8 values, f32", [(f"{v:g}", 1) for v in values]),
        Row("a bit each", [(str(int(v)), 1) for v in values], "code"),
        Row(f"{packed.size} byte", [(text, 8) for text in hexes(packed)], "head"),
    ]


def positive() -> list[Row]:
    values = np.array([0, 0.3, 1.7, -0.2, 0, 0, 2.5, 0], np.float32)
    packed = tuckfold.pack(values, "positive")
    return [
        Row("8 values, f32", [(f"{v:g}", 1) for v in values]),
        Row("above 0?", [(str(int(v > 0)), 1) for v in values], "code"),
        Row(f"{packed.size} byte", [(text, 8) for text in hexes(packed)], "head"),
    ]


def nonzero_quant() -> list[Row]:
    values = np.array([0, 0.3, 1.7, 0, 0.9, 0, 2.5, 0], np.float32)
    packed = tuckfold.pack(values, "nonzero_quant(bits=3)")
    mask, header, codes = packed[4], packed[8:12].view(np.uint16), int(packed[12:].view("<u4")[0])
    scale, minimum = (header.astype(np.uint32) << 16).view(np.float32)
    texts, place = [], 0
    for i in range(8):
        texts.append(str(codes >> 3 * place & 7) if mask >> i & 1 else "")
        place += int(mask >> i & 1)
    return [
        Row("8 values, f32", [(f"{v:g}", 1) for v in values]),
        Row("not 0?", [(str(mask >> i & 1), 1) for i in range(8)], "code"),
        Row("codes of 3 bits", [(text, 1) for text in texts], "code"),
        Row("header", [(f"scale {scale:.4f}", 4), (f"minimum {minimum:.4f}", 4)], "head"),
    ]


def pool_index() -> list[Row]:
    places = np.array([0, 3, 1, 2, 2, 0, 3, 1])  # of 2 rows of 4 windows of 2 x 2, 8 columns wide
    row, column = np.divmod(np.arange(8), 4)
    indices = (2 * row + places // 2) * 8 + 2 * column + places % 2
    packed = tuckfold.pack(indices.reshape(2, 4), "pool_index(width=8)")
    return [
        Row("8 indices, i64", [(str(i), 1) for i in indices]),
        Row("place in its 2 × 2", [(f"{place:02b}", 1) for place in places], "code"),
        Row(f"{packed.size} bytes", [(text, 4) for text in hexes(packed)], "head"),
    ]


def bytes_of() -> list[Row]:
    numbers = np.array([0, 1, 64, 128, 200, 254, 255])
    values = (numbers / 255).astype(np.float32)
    packed = tuckfold.pack(values, "bytes_of")
    return [
        Row("7 values, f32", [(f"{v:.3f}", 1) for v in values]),
        Row("times 255", [(str(k), 1) for k in numbers], "code"),
        Row(f"{packed.size} bytes", [(text, 1) for text in hexes(packed)], "head"),
    ]


def shuffle() -> list[Row]:
    values = np.array([1000, 1001, 1003, 1002, 998, 999], np.int32)
    packed = tuckfold.pack(values, "shuffle(delta=sub)")
    return [
        Row("6 values, i32", [(str(v), 1) for v in values]),
        Row("less the one before", [(f"{v:+}", 1) for v in np.diff(values, prepend=0)], "code"),
        Row("lowest bytes, next …", [(text, 1 / 3) for text in hexes(packed)], "head"),
    ]


def zstd() -> list[Row]:
    return [
        Row("2.5 MiB of codes", [("1 MiB", 3), ("1 MiB", 3), ("½ MiB", 1.5)]),
        Row("zstd, each alone", [("frame", 1.6), ("frame", 2.2), ("frame", 0.9)], "code"),
        Row(
            "packed",
            [("length", 1.3), ("sizes", 1.3), ("frame", 1.6), ("frame", 2.2), ("frame", 0.9)],
            "head",
        ),
    ]


PICTURES = {
    "bits": bits,
    "mask": mask,
    "positive": positive,
    "nonzero_quant": nonzero_quant,
    "pool_index": pool_index,
    "bytes_of": bytes_of,
    "shuffle": shuffle,
    "zstd": zstd,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images"
    for name, rows in PICTURES.items():
        (folder / f"{name}.svg").write_text(svg(rows()))


if __name__ == "__main__":
    main()
