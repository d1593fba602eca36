"""The study's figure: loss over steps, the mean over seeds and their range."""

from __future__ import annotations

import statistics
from html import escape

COLORS = {
    "plain": "#444444",
    "exact": "#1f6f8b",
    "4 bits": "#6a8f2f",
    "2 bits": "#b5541c",
    "noise 1%": "#7b3fa0",
}
WIDTH, HEIGHT, LEFT, TOP = 420, 260, 50, 64


def _text(x: float, y: float, words: str, anchor: str = "middle", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def _panel(x0: float, title: str, rows: list[dict]) -> list[str]:
    values = [v for row in rows for v in row["loss"]]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    count = max(len(row["loss"]) for row in rows)

    def point(i: int, value: float) -> str:
        x = x0 + (i + 0.5) / count * WIDTH
        return f"{x:.1f},{TOP + HEIGHT - (value - low) / span * HEIGHT:.1f}"

    parts = [
        f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        _text(x0 + WIDTH / 2, TOP - 8, title, size=12),
        _text(x0 + WIDTH / 2, TOP + HEIGHT + 18, f"training, in {count} equal spans of steps"),
    ]
    for part in range(5):
        y = TOP + HEIGHT - part / 4 * HEIGHT
        parts.append(_text(x0 - 6, y + 4, f"{low + part / 4 * span:.2f}", "end"))
    for way, color in COLORS.items():
        curves = [row["loss"] for row in rows if row["way"] == way]
        if not curves:
            continue
        each = list(zip(*curves, strict=True))
        above = [point(i, max(of)) for i, of in enumerate(each)]
        below = [point(i, min(of)) for i, of in enumerate(each)]
        mean = [point(i, statistics.mean(of)) for i, of in enumerate(each)]
        around = " ".join([*above, *reversed(below)])
        dash = ' stroke-dasharray="5 3"' if way == "exact" else ""
        parts += [
            f'<polygon points="{around}" fill="{color}" opacity="0.12"/>',
            f'<polyline points="{" ".join(mean)}" fill="none" stroke="{color}" stroke-width="1.5"{dash}/>',
        ]
    return parts


def figure(rows: list[dict], size: str) -> str:
    """As SVG; a panel for each network."""
    names = list(dict.fromkeys(row["network"] for row in rows))
    seeds = len({row["seed"] for row in rows})
    width, height = LEFT + len(names) * (WIDTH + LEFT + 14), TOP + HEIGHT + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 18, f"Training loss; size {size}, {seeds} seeds", "start", 13),
    ]
    for number, (way, color) in enumerate(COLORS.items()):
        x = LEFT + 84 * number
        parts += [
            f'<rect x="{x}" y="30" width="12" height="6" fill="{color}"/>',
            _text(x + 17, 37, way, "start"),
        ]
    for number, name in enumerate(names):
        of = [row for row in rows if row["network"] == name]
        parts += _panel(LEFT + number * (WIDTH + LEFT + 14), f"{name}: loss", of)
    return "\n".join([*parts, "</svg>"]) + "\n"
