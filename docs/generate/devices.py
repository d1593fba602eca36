#!/usr/bin/env python3
"""Writes docs/devices.md and its figure from devices/*.json and the tool's answers; --check only compares.

docs/generate/devices.py [--check] [--tool build/release/tuckfold]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/devices.md"
FIGURE = ROOT / "docs/images/devices.svg"
ORDER = ("cs2", "sn30", "groqchip", "ipu-gc200", "ipu-bow", "a100", "a30", "h200", "cpu")
SIDES = (32, 64, 128, 256, 512)
KEEP = 4
TILED = f"dct_chop(keep={KEEP}, serialize=2)"

HEAD = """# What can each accelerator take?

`docs/generate/devices.py` writes this page from the files of `devices/` and from what `tuckfold fits` and `tuckfold time`
answer. No vendor's SDK was run: limits and times are published ones, each with its source. How codecs
are exported is on [its own page](portable.md).

A device has the operators that a vendor's page names, or code that ran on it. It is often said that all accelerators share
more, such as permute, max and where; without a source for the device that is not used here. So `fits` may refuse
what a device can do: where you know better, add the operator to a copy of its file.
"""

OBSTACLES = """## What stacks prevent, and our answer

| what | where | source | our answer |
|---|---|---|---|
| all sizes are fixed when a program is compiled | all four | hpdc24, section 3.1 | every codec that is exported has a size that follows from the shape |
| no shifts of bits | CS-2, SN30, GroqChip, IPU | hpdc24, section 3.1; PopTorch's list | products of matrices; `block_quant` with whole bytes; other codecs are refused, with the stage and the reason |
| gather and scatter | the IPU alone has them | hpdc24, section 3.5.2 | `shape=triangle` for the IPU, refused elsewhere; `shape=square` needs none |
| f16 on some, bf16 on others | f16: CS-2, GroqChip, IPU; bf16: SN30 | hpdc24, section 3.1 | tensors and coefficients of either type, products in f32; the type that is missing is refused |
| a matrix must fit one memory unit | SN30: 0.5 MB, 362 × 362 f32 | hpdc24, section 3.5.1 | `serialize=s`: s × s true tiles, with matrices s² times smaller |
| a matrix unit of 320 × 320 | GroqChip | hpdc24, section 4.2.2 | the same |
| memory on chip alone | GroqChip: 230 MB, IPU: 900 MB | hpdc24, Table 1 | `fits` counts what lives at once, and says which batch fits |
| a batch of 1000 at most, of 3 × 64 × 64 | GroqChip | hpdc24, section 4.2.2 | `fits` counts planes; memory is given as the reason, so planes smaller than 64 × 64 count by their values |
| no padding operator in common | all four | – | edges are part of the matrices: any shape takes the same two products |
| the link to the host is slow | IPU, GroqChip, A100 | hpdc24, section 4.2.2 | packed data cross it: unpacking takes less time the smaller `keep` is |
"""

CASES = (
    ("100×3×256², keep 4", "dct_chop(keep=4)", (100, 3, 256, 256), "f32"),
    ("100×3×512², keep 4", "dct_chop(keep=4)", (100, 3, 512, 512), "f32"),
    ("the same, serialize=2", "dct_chop(keep=4, serialize=2)", (100, 3, 512, 512), "f32"),
    ("1000×3×64²", "dct_chop(keep=4)", (1000, 3, 64, 64), "f32"),
    ("1001×3×64²", "dct_chop(keep=4)", (1001, 3, 64, 64), "f32"),
    ("f16", "dct_chop(keep=4)", (100, 3, 64, 64), "f16"),
    ("bf16", "dct_chop(keep=4)", (100, 3, 64, 64), "bf16"),
    ("triangle", "dct_chop(keep=4, shape=triangle)", (100, 3, 64, 64), "f32"),
    ("\\| block_quant(bits=8)", "dct_chop(keep=4) | block_quant(bits=8)", (100, 3, 64, 64), "f32"),
)

LAYERS = """## Layers

`tuckfold fits` takes a structured layer, too, with the shape of its input, and answers for a training step with momentum:

    $ tuckfold fits butterfly --shape 50,1024 --device ipu-gc200

On the IPU memory lies with 1472 tiles, and a program takes of it beside the data. The answer is an estimate for the layer in plain
operators, as PyTorch would run it there. Each operator is one compute set or a few, each of vertices that edges join to their data. A
product is cut so that the slices of a tile are smallest; slices beyond the share for temporaries are done in turns, each a compute
set of its own. What is known from sources is the number of tiles, their memory and their six threads. Bytes of a vertex, an edge, a compute set, a message and of
code are assumed, and stand in the device's file. *Reducing Memory Requirements for the IPU using Butterfly Factorizations* shows in its figures 5 and 7
that edges, vertices, compute sets and memory grow together with the size of the problem; the estimate does so, too. The figures print no numbers, so that none of these could be checked, and nothing was run on an IPU. A
compiler of the vendor's may fuse operators, or split them further.

For devices without tiles the answer counts weights, gradients, optimizer states and activations with this library's kernels,
without their workspace.

50 samples of 1024 features, f32; the largest layer is a power of two of features to as many, with 50 samples:
"""

OWN = """## A device of your own

A device is one more file, given by its path (`--device my/chip.json`) or put in a folder that `TUCKFOLD_DEVICES` names. Where that folder and the built-in
files have a device of one name, yours is taken. `fits` and `time` write the path of a file from your folder behind the name, and `device_file` of
their `--json` is the path of the file that was read, wherever it lies. What is wrong with a file is said with the field: `limits[0].value must be a number above 0, got "big"`.

| field | what |
|---|---|
| `name`, `title`, `kind`, `software` | texts; the file must be called NAME.json |
| `target` | which file is for it: torch, onnx, poptorch, samba, cerebras, groq |
| `sources` | key → title or address; every number names a key as `source`, and `at`, the page or place in it |
| `numbers` | figures in SI units: {numbers} |
| `dtypes` | `names` of f32, f16, bf16, u8, each once |
| `operators`, `missing` | `names` that it has; each `name` that a source says it lacks, with a `text`; each once: {operators} |
| `limits` | `rule`, `value` above 0, `text`: memory_bytes (all that lives at once), matrix_bytes and matrix_side (of each product), planes (each counts as one; where they are smaller than `sample`, [rows, columns], as the part of it that they are); other rules have no `sample` |
| `host_call` | `settings` of t0_ms, in_gbps, out_gbps, tflops: one, or the ends of what sources allow; `error`, the relative half-width of the interval; `points`; `uncompressed` if GB/s count the tensor both ways; `flat`, a time `ms` that the interval holds for tensors `until` a batch and a sample's size; times are at most a day, rates 1e-6 to 1e9 |
| `serialize`, `triangle` | `slower`, factors of that time; tiles are estimated with their geometric mean, or where they differ by less than `error` leaves open with the one nearest to 1; for the triangle `t0_ms` and `ns_per_value`, within these factors |
| `tiles` | for layers: `workers` of a tile; `vertex_bytes`, `edge_bytes`, `compute_set_bytes`, `message_bytes`, `code_bytes`; `temporary_share` of a tile's memory for one product |
| `stated`, `restrictions` | what sources say of speed (`gbps`, `direction`, `shape`, `keep`) and else |
"""


class Tool:
    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(
        self, verb: str, spec: str, shape: tuple[int, ...], device: str, *more: str
    ) -> dict | None:
        """The tool's JSON, or None where it has no answer for this device."""
        command = [
            self.path,
            verb,
            spec,
            "--shape",
            ",".join(map(str, shape)),
            "--device",
            device,
            "--json",
            *more,
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            if done.returncode == 4:
                return None
            sys.exit(done.stderr)
        return json.loads(done.stdout)[0]


def si(value: float, unit: str) -> str:
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".strip()


def unit_of(name: str) -> str:
    for ending, unit in (("_bytes_per_s", "B/s"), ("_flops", "FLOP/s"), ("_hz", "Hz"), ("_w", "W")):
        if name.endswith(ending):
            return unit
    return "B" if "_bytes" in name else ""


def overview(devices: dict[str, dict]) -> str:
    lines = [
        "## At a glance",
        "",
        "| device | `--device` | on chip | of a unit | types | `--target` | SDK |",
        "|---|---|--:|--:|---|---|---|",
    ]
    for device in devices.values():
        numbers = device["numbers"]
        cell = [
            si(numbers[key]["value"], "B") if key in numbers else "–"
            for key in ("on_chip_bytes", "on_chip_bytes_per_unit")
        ]
        lines.append(f"| {device['title']} | `{device['name']}` | {cell[0]} | {cell[1]} | {', '.join(device['dtypes']['names'])} "
                     f"| {device['target']} | {device['software']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def verdicts(devices: dict[str, dict], tool: Tool) -> str:
    lines = ["## What fits", "", "Answers of `tuckfold fits`, of `dct_chop(keep=4)` and f32 unless said otherwise.", "",
             "| | " + " | ".join(devices) + " |", "|---|" + "---|" * len(devices)]  # fmt: skip
    for title, spec, shape, dtype in CASES:
        cells = []
        for name in devices:
            answer = tool.ask("fits", spec, shape, name, "--dtype", dtype)
            remedy = (answer["remedy"] or "").removeprefix("use ").replace("--", "")
            cells.append("yes" if answer["fits"] else f"no: {remedy}" if remedy else "no")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def layers(tool: Tool) -> str:
    texts = ("dense", "butterfly", "butterfly(tied=true)", "pixelfly", "monarch", "block_diagonal", "low_rank", "circulant", "fastfood")  # fmt: skip
    lines = [LAYERS, "| layer | compute sets | vertices | edges | data | program | temporaries | of a tile | largest on the IPU | on the A30 |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for text in texts:
        said = tool.ask("fits", text, (50, 1024), "ipu-gc200")
        tile = [si(said["tile_bytes"][key], "B") for key in ("data", "program", "temporary")]
        largest = tool.ask("fits", text, (50, 1024), "a30")["largest_features"]
        counts = [f"{said[key]:,}" for key in ("compute_sets", "vertices", "edges")]
        cells = [f"`{text}`", *counts, *tile, si(said["bytes"], "B")]
        cells.append(f"{said['largest_features']:,}")
        cells.append(f"{largest:,}" + (" or more" if largest == 2**20 else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def where(entry: dict) -> str:
    return f"{entry['source']}, {entry['at']}"


def section(device: dict, tool: Tool) -> str:
    lines = [f"### {device['title']}", "", f"{device['kind']}; {device['software']}.", ""]
    rows = []
    for name, entry in device["numbers"].items():
        value = si(entry["value"], unit_of(name)) if unit_of(name) else f"{entry['value']:,.0f}"
        rows.append((name.replace("_", " "), value, where(entry), entry.get("note", "")))
    rows.append(
        (
            "types",
            ", ".join(device["dtypes"]["names"]),
            where(device["dtypes"]),
            device["dtypes"].get("note", ""),
        )
    )
    for entry in device["operators"]:
        rows.append(("operators", ", ".join(entry["names"]), where(entry), entry.get("note", "")))
    rows += [
        (f"no {entry['name']}", "", where(entry), entry["text"])
        for entry in device.get("missing", [])
    ]
    rows += [("limit", entry["text"], where(entry), "") for entry in device.get("limits", [])]
    rows += [
        (key, f"takes {low:g} to {high:g} times what the model below gives", where(device[key]), device[key].get("note", ""))
        for key in ("serialize", "triangle")
        if key in device
        for low, high in [device[key]["slower"]]
    ]  # fmt: skip
    if "tiles" in device:
        numbers = [f"{k} {v:g}" for k, v in device["tiles"].items() if not isinstance(v, str)]
        rows.append(("tiles", ", ".join(numbers), where(device["tiles"]), device["tiles"]["note"]))
    rows += [("stated", entry["text"], where(entry), "") for entry in device.get("stated", [])]
    rows += [
        ("stated", entry["text"], where(entry), "") for entry in device.get("restrictions", [])
    ]
    lines += ["| what | | source | note |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", *times(device, tool), ""]
    lines += [f"- {key}: {title}" for key, title in device["sources"].items()]
    return "\n".join(lines) + "\n"


def times(device: dict, tool: Tool) -> list[str]:
    model = device.get("host_call")
    if model is None:
        text = "No call was published: times are bounds from below, by peak and memory bandwidth."
    else:
        terms = []
        for setting in model["settings"]:
            term = f"{setting['t0_ms']:g} ms"
            term += f" + {'tensor' if model.get('uncompressed') else 'in'} / {setting['in_gbps']:g} GB/s"
            term += f" + out / {setting['out_gbps']:g} GB/s" if "out_gbps" in setting else ""
            term += f" + products / {setting['tflops']:g} TFLOP/s" if "tflops" in setting else ""
            terms.append(term)
        text = f"**Time of a call**: t = {', or '.join(terms)}. Fitted to {model['points']} ({where(model)})."
        text += f" {model['note'][0].upper()}{model['note'][1:]}." if "note" in model else ""
        if flat := model.get("flat"):
            text += (f" Up to {'×'.join(map(str, flat['until']))} the interval holds {flat['ms']:g} ms, too: "
                     f"{flat['note']} ({where(flat)}).")  # fmt: skip
    lines = [
        text,
        "",
        f"| `dct_chop(keep={KEEP})`, 100×3, ms | " + " | ".join(f"{n}²" for n in SIDES) + " |",
        "|---|" + "--:|" * len(SIDES),
    ]
    for direction in "pack", "unpack":
        cells = []
        for n in SIDES:
            answer = predicted(device["name"], n, tool)
            if answer is None:
                tiled = tool.ask("time", TILED, (100, 3, n, n), device["name"])
                cells.append(f"serialize=2: {span(tiled[direction])}" if tiled else "does not fit")
            else:
                cells.append(span(answer[direction]))
        lines.append(f"| {direction} | " + " | ".join(cells) + " |")
    return lines


CACHE: dict[tuple[str, int, int], dict | None] = {}


def predicted(name: str, n: int, tool: Tool, keep: int = KEEP) -> dict | None:
    if (name, n, keep) not in CACHE:
        answer = tool.ask("time", f"dct_chop(keep={keep})", (100, 3, n, n), name)
        CACHE[name, n, keep] = answer
    return CACHE[name, n, keep]


def span(time: dict) -> str:
    ms = [1e3 * time[key] if time[key] is not None else None for key in ("seconds", "low", "high")]
    return f"≥ {ms[0]:.3g}" if ms[2] is None else f"{ms[0]:.3g} ({ms[1]:.3g}–{ms[2]:.3g})"


# ---- the figure: a panel for each device, time over resolution, what is predicted and what is stated

WIDTH, HEIGHT, LEFT, TOP, COLUMNS = 288, 200, 58, 26, 3
ROW, HEAD_HEIGHT = HEIGHT + TOP + 34, 46
LOW, HIGH = -3.0, 3.4  # decades of milliseconds
COLORS = {"pack": "#b5541c", "unpack": "#1f6f8b"}


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'


def point(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{color}" stroke="white"/>'


def hollow(x: float, top: float, bottom: float, color: str) -> str:
    return (f'<rect x="{x - 2:.1f}" y="{top - 1.5:.1f}" width="4" height="{bottom - top + 3:.1f}" '
            f'fill="white" stroke="{color}"/>')  # fmt: skip


def dash(x: float, y: float, color: str) -> str:
    return (f'<line x1="{x - 6:.1f}" x2="{x + 6:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{color}" stroke-width="1.6"/>')  # fmt: skip


def cross(x: float, y: float) -> str:
    return text(x, y, "×", "middle", ' font-size="15" fill="#a00"')


def figure(devices: dict[str, dict], tool: Tool) -> str:
    width, rows = COLUMNS * (WIDTH + LEFT) + 12, math.ceil(len(devices) / COLUMNS)
    title = f"One call from the host, dct_chop(keep={KEEP}) of 100×3×n×n f32, in ms"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{rows * ROW + HEAD_HEIGHT}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>',
             text(LEFT, 18, title, more=' font-size="13"')]  # fmt: skip
    x = LEFT
    for direction, color in COLORS.items():
        parts += [f'<rect x="{x}" y="28" width="14" height="8" fill="{color}"/>', text(x + 19, 36, direction)]  # fmt: skip
        x += 70
    parts += [f'<line x1="{x}" x2="{x + 20}" y1="32" y2="32" stroke="#444" stroke-width="1.6"/>',
              f'<rect x="{x}" y="27" width="20" height="10" fill="#444" opacity="0.2"/>',
              text(x + 25, 36, "predicted, with its interval"),
              f'<line x1="{x + 200}" x2="{x + 220}" y1="32" y2="32" stroke="#444" stroke-width="1.6" stroke-dasharray="2 4"/>',
              text(x + 225, 36, "bound from below"),
              point(x + 345, 32, "#444"), text(x + 353, 36, "stated of this n"),
              hollow(x + 470, 29, 35, "#444"), text(x + 478, 36, "stated of all n together"),
              cross(x + 640, 37), text(x + 649, 36, "does not fit")]  # fmt: skip
    for number, device in enumerate(devices.values()):
        x0 = LEFT + number % COLUMNS * (WIDTH + LEFT)
        y0 = HEAD_HEIGHT + TOP + number // COLUMNS * ROW
        parts += panel(device, x0, y0, tool)
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(device: dict, x0: float, y0: float, tool: Tool) -> list[str]:
    def x(n: float) -> float:
        return x0 + 18 + (math.log2(n) - 5) / 4 * (WIDTH - 72)

    def y(ms: float) -> float:
        return y0 + HEIGHT * (1 - (math.log10(ms) - LOW) / (HIGH - LOW))

    name, grey = device["name"], ' fill="#555"'
    parts = [text(x0, y0 - 6, name, more=' font-weight="bold"')]
    for decade in range(math.ceil(LOW), math.floor(HIGH) + 1):
        at = y(10.0**decade)
        parts.append(
            f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#eee"/>'
        )
        parts.append(text(x0 - 4, at + 4, f"{10.0**decade:g}", "end", grey))
    parts += [text(x(n), y0 + HEIGHT + 13, f"n = {n}" if n == SIDES[0] else str(n), "middle", grey)
              for n in SIDES]  # fmt: skip
    parts.append(f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')  # fmt: skip
    answers = {n: predicted(name, n, tool) for n in SIDES}
    for n in (n for n, answer in answers.items() if answer is None):
        parts.append(cross(x(n), y0 + 22))
        if tiled := tool.ask("time", TILED, (100, 3, n, n), name):
            parts += [dash(x(n), y(1e3 * tiled[direction]["seconds"]), color)
                      for direction, color in COLORS.items()]  # fmt: skip
            parts.append(text(x(n), y0 + 36, "serialize=2", "middle", grey))
    answers = {n: answer for n, answer in answers.items() if answer is not None}
    for direction, color in COLORS.items():
        calls = {n: answer[direction] for n, answer in answers.items()}
        bound = any(call["high"] is None for call in calls.values())
        if not bound:
            outline = [(x(n), y(1e3 * call["low"])) for n, call in calls.items()]
            outline += [(x(n), y(1e3 * call["high"])) for n, call in reversed(calls.items())]
            parts.append(f'<polygon points="{coordinates(outline)}" fill="{color}" opacity="0.2"/>')
        line = coordinates([(x(n), y(1e3 * call["seconds"])) for n, call in calls.items()])
        dotted = ' stroke-dasharray="2 4"' if bound else ""
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.6"{dotted}/>'
        )
    for offset, (direction, color) in zip((-3, 3), COLORS.items(), strict=True):
        for entry in device.get("stated", []):
            if entry["direction"] not in (direction, "both"):
                continue
            keep = KEEP if KEEP in entry.get("keep", [KEEP]) else entry["keep"][0]
            if "shape" in entry:
                n = entry["shape"][-1]
                low, high = stated_ms(entry, n)
                at, middle = x(n) + offset, y(math.sqrt(low * high))
                if keep != KEEP:  # its prediction is not on the line
                    guess = y(1e3 * predicted(name, n, tool, keep)[direction]["seconds"])
                    parts += [dash(at, guess, color), text(at + 8, middle + 4, f"keep {keep}", more=grey)]  # fmt: skip
                parts.append(point(at, middle, color))
            else:
                for n in answers:
                    low, high = stated_ms(entry, n)
                    parts.append(hollow(x(n) + offset, y(high), y(low), color))
    return parts


def coordinates(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in points)


def stated_ms(entry: dict, n: int) -> tuple[float, float]:
    """The least and the most milliseconds that follow from a stated throughput."""
    gbps = entry["gbps"] if isinstance(entry["gbps"], list) else [entry["gbps"]] * 2
    megabytes = 100 * 3 * n * n * 4 / 1e6
    return megabytes / gbps[1], megabytes / gbps[0]


def page(devices: dict[str, dict], tool: Tool) -> str:
    numbers = sorted({name for device in devices.values() for name in device["numbers"]})
    operators = sorted(
        {
            name
            for device in devices.values()
            for entry in device["operators"]
            for name in entry["names"]
        }
    )
    own = OWN.format(numbers=", ".join(numbers), operators=", ".join(operators))
    drawn = (
        "## Times\n\n![Predicted and stated times](images/devices.svg)\n\n"
        "Lines are what `tuckfold time` predicts. A dot follows from a throughput that a source states, or that we measured, at this "
        "resolution; its keep is written beside it where it is another, with a dash at what is predicted for that; where only tiles fit, a dash is what is predicted for `serialize=2`. A hollow bar "
        "follows from a throughput that a source gives for all resolutions together, drawn at each: it says little of the smallest, where "
        "the fixed cost of a call counts most. Calls are timed with their transfers, so these are times of links more than of codecs.\n"
    )
    sections = [section(device, tool) for device in devices.values()]
    return "\n".join(
        [
            HEAD,
            overview(devices),
            OBSTACLES,
            verdicts(devices, tool),
            layers(tool),
            drawn,
            "## Each device\n",
            *sections,
            own,
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="fail where the page or its figure is out of date"
    )
    parser.add_argument("--tool", type=Path, default=ROOT / "build/release/tuckfold")
    options = parser.parse_args()
    files = {path.stem: json.loads(path.read_text()) for path in (ROOT / "devices").glob("*.json")}
    devices = {name: files.pop(name) for name in ORDER} | dict(sorted(files.items()))
    tool = Tool(options.tool)
    for path, text in (PAGE, page(devices, tool)), (FIGURE, figure(devices, tool)):
        if not options.check:
            path.write_text(text)
        elif not path.exists() or text != path.read_text():
            print(f"{path.relative_to(ROOT)} is out of date; run docs/generate/devices.py")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
