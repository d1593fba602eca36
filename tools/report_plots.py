"""The report's two plots as inline SVG. Colours are classes, so that the page's style sets them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 380
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 48, 46
MOST_DB = 70  # above this, nobody sees a difference; keep=8 lies far above

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Series:
    label: str
    css: str  # class of its colour
    marker: str  # circle, square, diamond, triangle: told apart without colour
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


def figure(title: str, about: str, parts: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}. '
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


def y_axis(scale: Scale, ticks: Sequence[float], title: str) -> list[str]:
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid"))
        parts.append(text(LEFT - 8, y + 4, f"{tick:g}", "tick", "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
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
