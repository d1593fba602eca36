"""The report's plots as inline SVG. Colours are classes, so that the page's style sets them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 48, 46
WIDE, HIGH = 1120, 440  # of the plot of rates ...
MARGIN = 170  # ... and the room for names on its right
LETTER = 7.4  # the width of one in a curve's name
MOST_DB = 70  # above this, nobody sees a difference; keep=8 is far above
MOST_RATE_DB = 80  # what 8 bits per value reach

Scale = Callable[[float], float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    label: str
    css: str  # class of its colour
    marker: str  # circle, square, diamond, triangle: distinct without colour
    points: Sequence[tuple[float, float, str]]  # x, y, text under the pointer


@dataclass(frozen=True)
class Bars:
    label: str
    css: str
    values: Sequence[float]


def linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    inner = linear(math.log2(low), math.log2(high), start, end)
    return lambda value: inner(math.log2(value))


def text(x: float, y: float, words: str, css: str = "", anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def marker(kind: str, x: float, y: float, css: str, hint: str) -> str:
    """A marker of about 9 pixels around x, y; `hint` appears under the pointer."""
    outlines = {
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "diamond": [(0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)],
        "triangle": [(0, -5.5), (5, 4), (-5, 4)],
    }
    inside = f"<title>{escape(hint)}</title>"
    if kind not in outlines:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="mark {css}">{inside}</circle>'
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in outlines[kind])
    return f'<polygon points="{points}" class="mark {css}">{inside}</polygon>'


def figure(
    title: str, about: str, parts: list[str], width: float = WIDTH, height: float = HEIGHT
) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}. '
        f'{escape(about)}">\n' + "\n".join(parts) + "\n</svg>"
    )


def legend(entries: Sequence[tuple[str, str, str]]) -> list[str]:
    """One row of (label, class, marker) above the plot."""
    parts, x = [], float(LEFT)
    for label, css, kind in entries:
        parts += [
            marker(kind, x + 5, 12, css, label),
            text(x + 15, 16, label, "legend", "start"),
        ]
        x += 15 + 6.3 * len(label) + 18
    return parts


def y_axis(
    scale: Scale,
    ticks: Sequence[float],
    title: str,
    end: float = WIDTH - RIGHT,
    middle: float = (TOP + HEIGHT - BOTTOM) / 2,
) -> list[str]:
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(line(LEFT, y, end, y, "grid"))
        parts.append(text(LEFT - 8, y + 4, f"{tick:g}", "tick", "end"))
    parts.append(
        f'<text transform="translate(13 {middle:.0f}) rotate(-90)" class="axis" '
        f'text-anchor="middle">{escape(title)}</text>'
    )
    return parts


def ticks_to(top: float) -> tuple[float, list[float]]:
    """A round end of the axis at or above `top`, and about five ticks up to it."""
    unit = 10.0 ** math.floor(math.log10(top / 5))
    step = next(unit * by for by in (1, 2, 5, 10) if unit * by >= top / 5)
    count = math.ceil(top / step)
    return count * step, [i * step for i in range(count + 1)]


def ratio_axes(scale: Scale, ticks: Sequence[float], per_stored: float) -> list[str]:
    """Ratio against f32 below, against the stored type above, a line where the file's size is."""
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in ticks:
        x = scale(tick)
        parts.append(line(x, TOP, x, bottom, "grid"))
        parts.append(text(x, bottom + 16, f"{tick:g}×", "tick"))
        if per_stored > 1:
            parts.append(text(x, TOP - 6, f"{tick / per_stored:g}×", "tick faint"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "ratio, against f32", "axis"))
    if per_stored > 1 and ticks[0] <= per_stored <= ticks[-1]:
        x = scale(per_stored)
        parts.append(line(x, TOP, x, bottom, "level"))
        parts.append(text(x + 6, TOP + 14, "→ smaller than the u8 file", "note", "start"))
    return parts


def quality_plot(series: Sequence[Series], per_stored: float) -> str:
    """PSNR over ratio; `per_stored` is how many times larger f32 is than the stored type."""
    seen = [(x, y) for one in series for x, y, _ in one.points if y <= MOST_DB]
    least = min((y for _, y in seen), default=0)
    low = math.floor((least - 3) / 5) * 5  # room for the label of the lowest point
    high = max(low + 20, math.ceil((max((y for _, y in seen), default=MOST_DB) + 4) / 10) * 10)
    last = 2 ** math.ceil(math.log2(max((x for x, _ in seen), default=64)))
    x_of = logarithmic(1, last, LEFT + 12, WIDTH - RIGHT - 16)
    y_of = linear(low, high, HEIGHT - BOTTOM, TOP)
    ratios = [2**i for i in range(int(math.log2(last)) + 1)]
    parts = legend([(one.label, one.css, one.marker) for one in series])
    parts += y_axis(y_of, range(-(-low // 10) * 10, high + 1, 10), "PSNR, dB")
    parts += ratio_axes(x_of, ratios, per_stored)
    for number, one in enumerate(series):
        points = [(x_of(x), y_of(y), t) for x, y, t in one.points if y <= high]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" class="curve {one.css}"/>')
        for x, y, hint in points:
            parts.append(marker(one.marker, x, y, one.css, hint))
            if number == 0:  # the main series carries its keep
                parts.append(text(x - 9, y + 12, hint.split()[0].removeprefix("keep="), "point"))
    about = "; ".join(
        f"{one.label}: " + ", ".join(f"{y:.1f} dB at {x:.2f}" for x, y, _ in one.points)
        for one in series
    )
    return figure("PSNR over ratio", about, parts)


@dataclass(frozen=True)
class Name:
    """A curve's name at a free position."""

    x: float
    y: float
    words: str
    anchor: str  # start, middle or end

    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        width = LETTER * len(self.words)
        left = self.x - width * {"start": 0, "middle": 0.5, "end": 1}[self.anchor]
        return left, self.y - 11, left + width, self.y + 4

    def covers(self, point: Point) -> bool:
        left, top, right, bottom = self.box()
        return left - 3 < point[0] < right + 3 and top - 3 < point[1] < bottom + 3

    def meets(self, other: "Name") -> bool:
        left, top, right, bottom = self.box()
        first, high, last, low = other.box()
        return left < last and first < right and top < low and high < bottom


def places(end: Point, words: str) -> list[Name]:
    """Positions of a name around the end of its curve, the best first."""
    x, y = end
    sides = [(10, 4, "start"), (0, -10, "middle"), (4, -10, "end"), (8, -8, "start")]
    sides += [(8, 17, "start"), (0, 20, "middle")]
    sides += [(0, -10 - step, "middle") for step in (12, 24, 36, 48)]
    return [Name(x + dx, y + dy, words, anchor) for dx, dy, anchor in sides]


def dots(points: Sequence[Point]) -> list[Point]:
    """Points along a curve, near enough for none of its parts to hide between letters."""
    found = list(points[-1:])
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        count = max(1, round(math.hypot(x2 - x1, y2 - y1) / 5))
        found += [(x1 + (x2 - x1) * i / count, y1 + (y2 - y1) * i / count) for i in range(count)]
    return found


def place_names(curves: Sequence[tuple[str, Sequence[Point]]]) -> list[Name]:
    """A name at the end of each curve, that covers no other, and of curves and their ends little."""
    drawn = [dot for _, points in curves for dot in dots(points)]
    placed: list[Name] = []
    for words, points in curves:
        options = places(points[-1], words)
        hidden = [
            1000 * sum(option.meets(other) for other in placed)
            + 2 * sum(option.covers(dot) for dot in drawn)
            + 20 * sum(option.covers(others[-1]) for _, others in curves)
            + rank
            for rank, option in enumerate(options)
        ]
        placed.append(options[hidden.index(min(hidden))])
    return placed


def rate_plot(series: Sequence[Series], most_bits: float) -> str:
    """PSNR over bits per value up to `most_bits`, each curve with its name at its end."""
    shown = {
        one.label: [p for p in one.points if p[0] <= most_bits and p[1] <= MOST_RATE_DB]
        for one in series
    }
    series = [one for one in series if shown[one.label]]
    seen = [y for one in series for _, y, _ in shown[one.label]]
    low = math.floor(min(seen, default=20) / 5) * 5
    high = max(low + 20, math.ceil((max(seen, default=MOST_DB) + 1) / 5) * 5)
    top, right, bottom = TOP - 24, WIDE - MARGIN, HIGH - BOTTOM
    x_of = linear(0, most_bits, LEFT, right)
    y_of = linear(low, high, bottom, top)
    ticks = range(-(-low // 10) * 10, high + 1, 10)
    parts = y_axis(y_of, ticks, "PSNR, dB", right, (top + bottom) / 2)
    for bits in range(int(most_bits) + 1):
        parts.append(line(x_of(bits), top, x_of(bits), bottom, "grid"))
        parts.append(text(x_of(bits), bottom + 16, f"{bits}", "tick"))
    parts.append(text((LEFT + right) / 2, HIGH - 8, "bits per value", "axis"))
    curves = []
    for one in series:
        points = [(x_of(x), y_of(y), hint) for x, y, hint in shown[one.label]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" class="curve {one.css}"/>')
        parts += [marker(one.marker, x, y, one.css, hint) for x, y, hint in points]
        curves.append((one.label, [point[:2] for point in points]))
    for one, name in zip(series, place_names(curves), strict=True):
        parts.append(text(name.x, name.y, name.words, f"name {one.css}", name.anchor))
    about = "; ".join(
        f"{one.label}: " + ", ".join(f"{y:.1f} dB at {x:.2f}" for x, y, _ in shown[one.label])
        for one in series
    )
    return figure("PSNR over bits per value", about, parts, WIDE, HIGH)


def speed_plot(groups: Sequence[str], bars: Sequence[Bars], copy_gbps: float, title: str) -> str:
    """A group of bars for each name in `groups`, and the speed of a plain copy as a line."""
    top, ticks = ticks_to(max([copy_gbps] + [value for one in bars for value in one.values]) * 1.06)
    y_of = linear(0, top, HEIGHT - BOTTOM, TOP - 16)
    parts = legend([(one.label, one.css, "square") for one in bars])
    parts += y_axis(y_of, ticks, "GB/s of uncompressed data")
    slot = (WIDTH - RIGHT - LEFT) / len(groups)
    width = slot * 0.72 / len(bars)
    for place, group in enumerate(groups):
        start = LEFT + slot * (place + 0.14)
        middle = start + slot * 0.36
        parts.append(text(middle, HEIGHT - BOTTOM + 16, group, "tick"))
        values = [one.values[place] for one in bars]
        if max(values) < top / 100:  # too low to be read off
            figures = " / ".join(f"{value:.2f}" for value in values)
            parts.append(text(middle, HEIGHT - BOTTOM - 6, figures, "small"))
        for number, one in enumerate(bars):
            value = one.values[place]
            x, y = start + number * width, y_of(value)
            parts.append(
                f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
                f'height="{HEIGHT - BOTTOM - y:.1f}" class="mark {one.css}">'
                f"<title>{escape(group)}: {escape(one.label)} {value:.2f} GB/s</title></rect>"
            )
    y = y_of(copy_gbps)
    parts.append(line(LEFT, y, WIDTH - RIGHT, y, "level"))
    parts.append(text(WIDTH - RIGHT - 4, y - 6, f"plain copy {copy_gbps:.1f} GB/s", "note", "end"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, title, "axis"))
    about = "; ".join(
        f"{one.label}: "
        + ", ".join(f"{g} {v:.2f}" for g, v in zip(groups, one.values, strict=True))
        for one in bars
    )
    return figure("Speed", f"{about}; plain copy {copy_gbps:.2f}", parts)
