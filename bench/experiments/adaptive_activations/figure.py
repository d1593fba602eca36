"""The study's figure: accuracy, and bytes saved over bytes stored, by average score."""

from __future__ import annotations

import statistics
from html import escape

COLORS = {
    "bounded": "#b5541c",
    "block_quant": "#1f6f8b",
    "dct_quant": "#6a8f2f",
    "adaptive": "#7b3fa0",
}
WIDTH, HEIGHT, LEFT, TOP = 250, 170, 56, 64
STEP_X, STEP_Y = WIDTH + LEFT + 14, HEIGHT + 56
LOW, HIGH = 0.48, 1.02


def _text(x: float, y: float, words: str, anchor: str = "middle", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def _panel(x0: float, y0: float, title: str, rows: list[dict], key: str) -> list[str]:
    """Means over seeds, with the range over seeds as bars."""
    values = [row[key] for row in rows]
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 1.0
    low, high = low - room, high + room

    def x(score: float) -> float:
        return x0 + (score - LOW) / (HIGH - LOW) * WIDTH

    def y(value: float) -> float:
        return y0 + HEIGHT - (value - low) / (high - low) * HEIGHT

    parts = [
        f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        _text(x0 + WIDTH / 2, y0 - 8, title, size=12),
    ]
    for score in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        parts += [_line(x(score), y0 + HEIGHT, x(score), y0 + HEIGHT + 4, "#999")]
        parts += [_text(x(score), y0 + HEIGHT + 16, f"{score:g}")]
    for part in range(5):
        value = low + room + (high - low - 2 * room) * part / 4
        parts += [_line(x0 - 4, y(value), x0, y(value), "#999")]
        parts += [_text(x0 - 7, y(value) + 4, f"{value:.1f}", "end")]
    exact = [row[key] for row in rows if row["family"] == "exact"]
    if exact:
        at = y(statistics.mean(exact))
        parts.append(_line(x0, at, x0 + WIDTH, at, "#444", ' stroke-dasharray="5 3"'))
    for family, color in COLORS.items():
        by_target: dict[float, list[dict]] = {}
        for row in rows:
            if row["family"] == family:
                by_target.setdefault(row["target"], []).append(row)
        points = []
        for _, of in sorted(by_target.items()):
            at = x(statistics.mean(row["score"] for row in of))
            found = [row[key] for row in of]
            points.append((at, y(statistics.mean(found))))
            parts.append(_line(at, y(min(found)), at, y(max(found)), color, ' opacity="0.5"'))
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in points]
    return parts


def figure(rows: list[dict], size: str) -> str:
    """As SVG; a column for each network."""
    names = list(dict.fromkeys(row["network"] for row in rows))
    seeds = len({row["seed"] for row in rows})
    width = max(STEP_X * len(names) + 20, 620)
    height = TOP + 2 * STEP_Y + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 18, f"Average score of activations; size {size}, {seeds} seeds", "start", 13),
    ]
    x = LEFT
    for family, color in COLORS.items():
        parts += [
            f'<circle cx="{x + 4}" cy="34" r="4" fill="{color}"/>',
            _text(x + 12, 38, family, "start"),
        ]
        x += 100
    parts += [
        _line(x, 34, x + 24, 34, "#444", ' stroke-dasharray="5 3"'),
        _text(x + 30, 38, "exact", "start"),
    ]
    for number, name in enumerate(names):
        of = [row for row in rows if row["network"] == name]
        x0 = LEFT + number * STEP_X
        parts += _panel(x0, TOP, f"{name}: accuracy in %", of, "accuracy")
        parts += _panel(x0, TOP + STEP_Y, f"{name}: saved over stored", of, "ratio")
    return "\n".join([*parts, "</svg>"]) + "\n"
