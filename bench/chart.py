"""Lines and points in a small SVG, for the pages of experiments.

Chart("times", "features", "ms", [Line("dense", [(128, 0.1), (256, 0.4)], "#333")], log=(True, True)).svg()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 44


@dataclass(frozen=True)
class Line:
    name: str
    points: list[tuple[float, float]]
    colour: str
    dashed: bool = False
    dots: bool = False  # no line between the points


def _steps(low: float, high: float) -> list[float]:
    """About five round numbers."""
    raw = (high - low) / 5 or 1
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _power_steps(low: float, high: float, base: int) -> list[float]:
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    if base == 10 and last - first < 2:  # too few powers: also their double and fivefold
        steps = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [step for step in steps if low <= step <= high]
    every = max(1, (last - first) // 8 + 1)
    return [float(base) ** k for k in range(first, last + 1, every)]


def _label(value: float) -> str:
    if 0 < value < 0.5 and math.log2(value).is_integer():
        return f"1/{1 / value:g}"
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:g}"


@dataclass(frozen=True)
class Chart:
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: tuple[bool, bool] = (False, False)  # of x, by powers of 2; of y, by powers of 10
    marks: Sequence[tuple[float, str]] = field(default_factory=tuple)  # upright lines with words

    def _axis(self, values: list[float], log: bool) -> tuple[float, float]:
        low, high = min(values), max(values)
        if log:
            return low / 1.15, high * 1.15
        room = (high - low or 1) * 0.06
        return low - room, high + room

    def body(self, left: float = 0) -> str:
        xs = [x for line in self.lines for x, _ in line.points] + [x for x, _ in self.marks]
        ys = [y for line in self.lines for _, y in line.points]
        (x0, x1), (y0, y1) = self._axis(xs, self.log[0]), self._axis(ys, self.log[1])

        def place(value: float, low: float, high: float, log: bool) -> float:
            if log:
                value, low, high = math.log(value), math.log(low), math.log(high)
            return (value - low) / (high - low)

        def px(x: float) -> float:
            return left + LEFT + place(x, x0, x1, self.log[0]) * (WIDTH - LEFT - RIGHT)

        def py(y: float) -> float:
            return HEIGHT - BOTTOM - place(y, y0, y1, self.log[1]) * (HEIGHT - TOP - BOTTOM)

        parts = [f'<text x="{left + LEFT}" y="18" class="title">{escape(self.title)}</text>']
        for value in _power_steps(x0, x1, 2) if self.log[0] else _steps(x0, x1):
            at = px(value)
            parts.append(
                f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" class="grid"/>'
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_label(value)}</text>'
            )
        for value in _power_steps(y0, y1, 10) if self.log[1] else _steps(y0, y1):
            at = py(value)
            parts.append(
                f'<path d="M{left + LEFT} {at:.1f}H{left + WIDTH - RIGHT}" class="grid"/>'
                f'<text x="{left + LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_label(value)}</text>'
            )
        middle = left + (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self.x)}</text>'
            f'<text transform="translate({left + 13} {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(self.y)}</text>'
        )
        for x, words in self.marks:
            parts.append(
                f'<path d="M{px(x):.1f} {TOP}V{HEIGHT - BOTTOM}" class="mark"/>'
                f'<text x="{px(x) + 3:.1f}" y="{HEIGHT - BOTTOM - 5}">{escape(words)}</text>'
            )
        for line in self.lines:
            at = [(px(x), py(y)) for x, y in line.points]
            if not line.dots:
                way = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
                dash = ' stroke-dasharray="5 4"' if line.dashed else ""
                parts.append(
                    f'<path d="M{way}" fill="none" stroke="{line.colour}" stroke-width="1.8"{dash}/>'
                )
            if line.dots or len(at) <= 12 and not line.dashed:
                parts += [
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{line.colour}"/>'
                    for a, b in at
                ]
        return "\n".join(parts)

    @staticmethod
    def side_by_side(charts: Sequence[Chart]) -> str:
        """With one legend below; lines of one name look alike in all of them."""
        legend, at, row = [], LEFT, 0
        width = WIDTH * len(charts)
        for line in {line.name: line for chart in charts for line in chart.lines}.values():
            needed = 34 + 6.6 * len(line.name)
            if at + needed > width - RIGHT:
                at, row = LEFT, row + 1
            y = HEIGHT + 12 + 18 * row
            dash = ' stroke-dasharray="5 4"' if line.dashed else ""
            legend.append(
                f'<circle cx="{at + 9}" cy="{y}" r="2.6" fill="{line.colour}"/>'
                if line.dots
                else f'<path d="M{at} {y}h18" stroke="{line.colour}" stroke-width="1.8"{dash}/>'
            )
            legend.append(f'<text x="{at + 23}" y="{y + 4}">{escape(line.name)}</text>')
            at += needed
        height = HEIGHT + 28 + 18 * row
        bodies = "\n".join(chart.body(WIDTH * n) for n, chart in enumerate(charts))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n'
            "<style>text{font:11px sans-serif;fill:#333}.title{font-weight:bold;font-size:12px}"
            ".grid{stroke:#ddd;stroke-width:.7}.mark{stroke:#999;stroke-dasharray:2 3}</style>\n"
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n{bodies}\n'
            + "\n".join(legend)
            + "\n</svg>\n"
        )

    def svg(self) -> str:
        return Chart.side_by_side([self])
