"""Writes the demo's report: one HTML file with its style, script and pictures inside."""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from bench.images import ImageSet
from demo.report.plots import Bars, Series, quality_plot, rate_plot, speed_plot

HERE = Path(__file__).parent
KEEPS = range(1, 9)
Row = dict  # an object of `tuckfold bench --json`


@dataclass(frozen=True)
class Picture:
    """A picture as it came back from a codec; images are data URIs."""

    label: str
    figures: str
    image: str
    zoom: str = ""  # a part of it, to be enlarged
    error: str = ""  # the difference from the original around grey ...
    error_zoom: str = ""
    error_gain: int = 1  # ... enlarged so many times


@dataclass(frozen=True)
class SetReport:
    images: ImageSet
    rows: Sequence[Row]
    original: Picture
    pictures: Sequence[Picture]
    note: str = ""  # on the speeds
    rates: Sequence[Series] = ()  # PSNR over bits per value


@dataclass(frozen=True)
class Report:
    machine: dict[str, str]
    sets: Sequence[SetReport]
    dial_original: Picture
    dial: dict[int, Picture]  # the same picture, by keep
    commands: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Codec:
    """What the report needs to know of a codec's text."""

    keep: int
    shape: str
    coef: str

    @staticmethod
    def of(row: Row) -> "Codec":
        words = dict(re.findall(r"(\w+)=(\w+)", row["codec"]))
        return Codec(int(words["keep"]), words.get("shape", "square"), words.get("coef", "f32"))


def own(rows: Sequence[Row], shape: str, coef: str) -> list[Row]:
    """Rows of dct_chop with this shape and coefficient type."""
    return [
        row
        for row in rows
        if not row["peer"] and (Codec.of(row).shape, Codec.of(row).coef) == (shape, coef)
    ]


def with_keep(rows: Sequence[Row], keep: int) -> Row | None:
    return next((r for r in own(rows, "square", "f32") if Codec.of(r).keep == keep), None)


def peers(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["peer"]]


def largest_error(row: Row) -> str:
    error = row["max_error"]
    return f"{error:.3g}" if error == 0 or error >= 0.001 else "<0.001"


def decibels(row: Row) -> str:
    if row["psnr_db"] is None:  # JSON has no infinity
        return "exact" if row["max_error"] == 0 else "–"
    return f"{row['psnr_db']:.1f}"


# ---- pieces of a set


def picture(one: Picture, what: str, enlarged: bool) -> str:
    css = ' class="pixels"' if enlarged else ""
    alt = escape(f"{what}, {one.label}")
    parts = [
        f"<figure><figcaption><b>{escape(one.label)}</b>{escape(one.figures)}</figcaption>",
        f'<img{css} src="{one.image}" alt="{alt}">',
    ]
    if one.zoom:
        parts.append(f'<img class="pixels" src="{one.zoom}" alt="{alt}, a part enlarged">')
    return "\n".join([*parts, "</figure>"])


def pictures(one: SetReport) -> str:
    enlarged = one.images.zoom is None
    shown = [picture(p, one.images.title, enlarged) for p in (one.original, *one.pictures)]
    return '<div class="pictures">\n' + "\n".join(shown) + "\n</div>"


def quality(rows: Sequence[Row]) -> str:
    kinds = [
        ("square", "square", "circle", own(rows, "square", "f32")),
        ("triangle", "triangle", "triangle", own(rows, "triangle", "f32")),
        ("square, f16", "half", "diamond", own(rows, "square", "f16")),
        ("zfp (peer)", "peer", "square", peers(rows)),
    ]
    series = []
    for label, css, mark, chosen in kinds:
        points = [
            (
                row["ratio"],
                math.inf if row["psnr_db"] is None else row["psnr_db"],
                (row["codec"] if row["peer"] else f"keep={Codec.of(row).keep} {label}")
                + f": {row['ratio']:.2f}×, {decibels(row)} dB",
            )
            for row in chosen
        ]
        if points:
            series.append(Series(label, css, mark, sorted(points)))
    return quality_plot(series, rows[0]["ratio"] / rows[0]["ratio_stored"])


def speed(rows: Sequence[Row]) -> str:
    square = own(rows, "square", "f32")
    shown = square + [row for row in peers(rows) if row is middle_peer(rows)]
    names = [f"{Codec.of(row).keep}" for row in square] + ["zfp"] * (len(shown) - len(square))
    bars = [
        Bars("pack", "pack", [row["pack_gbps"] for row in shown]),
        Bars("unpack", "unpack", [row["unpack_gbps"] for row in shown]),
    ]
    title = "keep, square f32" + ("; zfp at the size of keep=4" if len(shown) > len(square) else "")
    return speed_plot(names, bars, median(row["copy_gbps"] for row in rows), title)


def twins(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Each of the peer's rows after ours, square and f32, of the nearest size."""
    ours = own(rows, "square", "f32")
    return [
        (min(ours, key=lambda row: abs(math.log(row["ratio"] / peer["ratio"]))), peer)
        for peer in peers(rows)
    ]


def middle_peer(rows: Sequence[Row]) -> Row | None:
    """The peer's row of the size of keep=4."""
    return next((peer for our, peer in twins(rows) if our is with_keep(rows, 4)), None)


def peer_score(sets: Sequence[Sequence[Row]]) -> str:
    """At how many of the sizes measured zfp is better than us; empty without zfp."""
    pairs = [pair for rows in sets for pair in twins(rows)]
    if not pairs:
        return ""
    psnr = [[math.inf if r["psnr_db"] is None else r["psnr_db"] for r in pair] for pair in pairs]
    wins = sum(theirs > ours for ours, theirs in psnr)
    slower = median(our["pack_gbps"] / peer["pack_gbps"] for our, peer in pairs)
    return (
        f"closer to the original at {wins} of {len(pairs)} equal sizes, and packs "
        f"{slower:.0f} times slower"
    )


def plots(rows: Sequence[Row]) -> str:
    best = with_keep(rows, 8)
    above = (
        f"; 8 loses nothing but rounding ({decibels(best)} dB) and is above the plot"
        if best
        else ""
    )
    return f"""<div class="plots">
<figure><figcaption><b>Quality</b>Up and to the right is better. Numbers at points are
<code>keep</code>{above}. The upper scale is against the u8 file.</figcaption>
{quality(rows)}</figure>
<figure><figcaption><b>Speed</b>Taller is better. The dashed line is a non-temporal copy of the same
array, timed in the same rounds with as many threads.</figcaption>
{speed(rows)}</figure>
</div>"""


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def rates_caption(series: Sequence[Series]) -> str:
    names = {one.label for one in series}
    coders = ["JPEG", *(["SZ3"] if "SZ3" in names else [])]
    coders += ["zstd"] if "bounded | zstd" in names else []
    fixed = [
        "<code>dct_quant</code>",
        "<code>dct_chop</code>",
        *(["zfp"] if "zfp" in names else []),
    ]
    words = f"""Up and to the left is better; dashed curves are other people’s. 8 bits per value are the
u8 file, exact. {listed(coders)} give{"s" if len(coders) == 1 else ""} frequent values fewer bits, so
that the size is known only afterwards and no block decodes alone. JPEG in colour also shares
bits between the colours; it returns whole pixels, and its images are stacked into tall files so that
headers count once. {listed(fixed)} spend the same bits on every block: the size is known before, and
any block decodes by itself."""
    if bounded := [name for name in ("bounded", "SZ3") if name in names]:
        words += f" {listed(bounded)} promise{'s' if len(bounded) == 1 else ''} the error of every pixel."
    return words + " Of large sets every so many images, two million values at most."


def rates(one: SetReport) -> str:
    if not one.rates:
        return ""
    return f"""<div class="plots wide">
<figure><figcaption><b>Quality at a size</b>{rates_caption(one.rates)}</figcaption>
<div class="scroll" tabindex="0" role="region" aria-label="Quality at a size">
{rate_plot(one.rates, 8)}</div></figure>
</div>"""


def cells(row: Row) -> str:
    below = ' class="below"' if row["ratio_stored"] < 1 else ""
    return (
        f'<td class="first">{row["ratio"]:.2f}</td><td{below}>{row["ratio_stored"]:.2f}</td>'
        f'<td class="first">{decibels(row)}</td><td>{escape(largest_error(row))}</td>'
        f'<td class="first">{row["pack_gbps"]:.2f}</td><td>{row["pack_of_copy"]:.2f}</td>'
        f'<td class="first">{row["unpack_gbps"]:.2f}</td><td>{row["unpack_of_copy"]:.2f}</td>'
    )


def table_row(row: Row) -> str:
    if row["peer"]:
        name = escape(row["codec"])
        return f'<tr><th scope="row" colspan="3" class="text">{name}, peer</th>{cells(row)}</tr>'
    codec = Codec.of(row)
    return (
        f'<tr data-keep="{codec.keep}" data-shape="{codec.shape}" data-coef="{codec.coef}">'
        f'<th scope="row">{codec.keep}</th><td class="text">{codec.shape}</td>'
        f'<td class="text">{codec.coef}</td>{cells(row)}</tr>'
    )


def refused_row(keep: int) -> str:
    why = "refused: with padded edges the packed array would be larger than f32"
    return (
        f'<tr data-keep="{keep}" data-shape="square" data-coef="f32"><th scope="row">{keep}</th>'
        f'<td class="text">square</td><td class="text">f32</td>'
        f'<td class="text soft first" colspan="8">{why}</td></tr>'
    )


def table(one: SetReport) -> str:
    rows = one.rows
    squares = [table_row(row) if (row := with_keep(rows, k)) else refused_row(k) for k in KEEPS]
    rest = [own(rows, "triangle", "f32"), own(rows, "square", "f16"), peers(rows)]
    groups = [squares, *([table_row(row) for row in group] for group in rest if group)]
    bodies = ["<tbody>\n" + "\n".join(group) + "\n</tbody>" for group in groups]
    size = one.images.images.size * 4 / 1e6
    return f"""<div class="scroll" tabindex="0" role="region" aria-label="{one.images.title}">
<table>
<caption>{one.images.shape_text} values, {size:.1f} MB as f32, stored as u8{one.note}</caption>
<thead>
<tr><th colspan="3" scope="colgroup">dct_chop, block 8</th>
<th colspan="2" scope="colgroup">ratio to</th><th colspan="2" scope="colgroup">quality</th>
<th colspan="2" scope="colgroup">pack</th><th colspan="2" scope="colgroup">unpack</th></tr>
<tr><th scope="col">keep</th><th scope="col" class="text">shape</th>
<th scope="col" class="text">coef</th>
<th scope="col">f32</th><th scope="col">stored</th><th scope="col">PSNR, dB</th>
<th scope="col">max error</th><th scope="col">GB/s</th><th scope="col">of copy</th>
<th scope="col">GB/s</th><th scope="col">of copy</th></tr>
</thead>
{chr(10).join(bodies)}
</table></div>"""


def verdict(rows: Sequence[Row]) -> str:
    """The set in two sentences: our middle setting, and the peer at the same size."""
    four = with_keep(rows, 4)
    words = (
        f"With <code>keep=4</code> an f32 array becomes {four['ratio']:.2f} times smaller at "
        f"{decibels(four)} dB, packs at {four['pack_of_copy']:.2f} and unpacks at "
        f"{four['unpack_of_copy']:.2f} of the speed of a copy."
    )
    if (peer := middle_peer(rows)) is not None:
        words += (
            f" At that size <code>{escape(peer['codec'])}</code> reaches {decibels(peer)} dB, "
            f"packing at {peer['pack_gbps']:.2f} and unpacking at {peer['unpack_gbps']:.2f} GB/s "
            f"against {four['pack_gbps']:.1f} and {four['unpack_gbps']:.1f}."
        )
    return f"<p>{words}</p>"


def section(one: SetReport) -> str:
    return f"""<section id="{one.images.name}" aria-labelledby="{one.images.name}-title">
<h2 id="{one.images.name}-title">{escape(one.images.title)}</h2>
<p class="soft">{escape(one.images.source)}</p>
{verdict(one.rows)}
{pictures(one)}
{plots(one.rows)}
{rates(one)}
{table(one)}
</section>"""


# ---- the page


def dial(report: Report) -> str:
    """One picture at every keep; without the script, at keep=4."""
    steps = []
    for keep, one in report.dial.items():
        caption = f"enlarged ×{one.error_gain} around grey"
        error = Picture("error", caption, one.error, one.error_zoom)
        body = picture(one, "Astronaut", False) + picture(error, f"Astronaut, keep={keep}", False)
        hidden = "" if keep == 4 else " hidden"
        steps.append(
            f'<div class="step" data-keep="{keep}" data-stay="{keep**2} of 64 coefficients stay"{hidden}>'
            f"{body}</div>"
        )
    return f"""<div class="hero" role="group" aria-label="One picture at every keep">
<div class="dial" hidden><label for="keep">keep</label>
<span aria-hidden="true">1</span><input id="keep" type="range" min="1" max="8" value="4" step="1">
<span aria-hidden="true">8</span><output for="keep"></output></div>
<div class="trio">
{picture(report.dial_original, "Astronaut", False)}
{chr(10).join(steps)}
</div>
</div>"""


TERMS = """<h3>How to read the figures</h3>
<dl class="terms">
<dt>ratio, f32</dt><dd>Bytes of the array as f32, which is what networks train on, over packed
bytes.</dd>
<dt>ratio, stored</dt><dd>Bytes of the array as it is stored, u8 here, over packed bytes. Below 1
means that the u8 file was smaller, and it is exact.</dd>
<dt>PSNR</dt><dd>Peak signal to noise ratio, the range of the data as peak. Higher is closer to the
original. Beside a picture it is that picture’s, else that of the whole set.</dd>
<dt>max error</dt><dd>The largest difference of one value; pictures span 0 to 255.</dd>
<dt>of copy</dt><dd>Speed over that of a plain copy of the same array: 1 is as quick as
copying.</dd>
</dl>"""


def peer_paragraph(score: str) -> str:
    if not score:
        return ""
    return f"""<p>The plots and tables show zfp in fixed-rate mode as a peer. It is {score}: it
spends the bits of a block where they matter, while <code>dct_chop</code> keeps the same coefficients
of every block, in f32 by default. That buys speed, and a packed array that is itself a
plain matrix.</p>"""


def machine(facts: dict[str, str]) -> str:
    items = [f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()]
    return '<dl class="machine">' + "".join(items) + "</dl>"


def command(words: Sequence[str]) -> str:
    """A command that wraps only between its words."""
    spans = [f"<span>{escape(shlex.quote(word))}</span>" for word in words]
    return f"<code>{' '.join(spans)}</code>\n"


def render(report: Report, first_page: str = "") -> str:
    back = f'<a href="{first_page}">Training</a>' if first_page else ""
    links = [f'<a href="#{s.images.name}">{escape(s.images.title)}</a>' for s in report.sets]
    score = peer_score([one.rows for one in report.sets])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tuckfold on real images, at every keep</title>
<link rel="icon" href="data:,">
<style>
{(HERE / "report.css").read_text()}</style>
</head>
<body>
<header>
<h1>Tuckfold on real images, at every <code>keep</code></h1>
<p class="lead">Tuckfold’s <code>dct_chop</code> keeps the lowest <code>keep</code> ×
<code>keep</code> frequencies of every 8 × 8 block. This is what that costs in size, quality and
time.</p>
{machine(report.machine)}
<nav aria-label="Pages and image sets">{back}{"".join(links)}<a href="#commands">Commands</a></nav>
</header>
<main>
{dial(report)}
{TERMS}
{peer_paragraph(score)}
{chr(10).join(map(section, report.sets))}
</main>
<footer id="commands"><div>
<h2>Commands</h2>
<p><code>bench</code> gives the figures of plots and tables, <code>eval</code> the pictures and the
figures beside them. The arrays are beside this report.</p>
<pre>{"".join(map(command, report.commands))}</pre>
</div></footer>
<script>
{(HERE / "report.js").read_text()}</script>
</body>
</html>
"""
