"""A plan as one HTML file that loads nothing."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tuckfold.torch._activations._plan import Plan
from tuckfold.torch._activations._text import bytes_text

_WIDTH, _HEIGHT = 960, 220

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; white-space: nowrap }
th, td { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid #ddd } .n { text-align: right }
svg { width: 100%; height: auto; background: #fafafa } .bar { fill: #c9ced6 } .after { fill: #2a6fb0 }
.line { fill: #2a6fb0; fill-opacity: .25; stroke: #2a6fb0 } .turn { stroke: #b03a2a; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd } svg { background: #1d2026 }
 th, td { border-color: #333 } .bar { fill: #4a505a } }
"""

# What headless browsers are asked for: that the script ran, and whether anything went wrong.
_SCRIPT = """
window.addEventListener("error", e => document.documentElement.dataset.errors = e.message);
const root = document.documentElement;
root.dataset.rows = document.querySelectorAll("#tensors tbody tr").length;
root.dataset.height = document.body.scrollHeight;
if (document.body.scrollWidth > root.clientWidth + 1) root.dataset.errors = "wider than the window";
root.dataset.checked = "yes";
"""


def _timeline(plan: Plan) -> str:
    """Stored bytes at each event of the pass; the turn from forward to backward is marked."""
    events = plan.events
    if not events:
        return "<p>No tensor was saved.</p>"
    most = max(stored for _, _, stored, _ in events) or 1
    step = _WIDTH / len(events)
    points = []
    for i, (_, _, stored, _) in enumerate(events):
        y = _HEIGHT - 20 - (_HEIGHT - 40) * stored / most
        points += [f"{i * step:.1f},{y:.1f}", f"{(i + 1) * step:.1f},{y:.1f}"]
    base = _HEIGHT - 20
    turn = next((i for i, event in enumerate(events) if event[1] == "read"), len(events)) * step
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="stored bytes over the pass">'
        f'<polygon class="line" points="0,{base} {" ".join(points)} {_WIDTH},{base}"/>'
        f'<line class="turn" x1="{turn:.1f}" y1="0" x2="{turn:.1f}" y2="{base}"/>'
        f"</svg><p>At most {bytes_text(most)}. The forward pass ends at the dashed line.</p>"
    )


def _modules(plan: Plan) -> str:
    """A bar for each module that saves something: bytes before, and after on top of them."""
    totals: dict[str, list[int]] = {}
    for row in plan.rows:
        total = totals.setdefault(row.module or "(root)", [0, 0])
        total[0] += row.before
        total[1] += row.after
    most = max((before for before, _ in totals.values()), default=0) or 1
    lines = []
    for name, (before, after) in totals.items():
        lines.append(
            f"<tr><td>{escape(name)}</td><td class=n>{bytes_text(before)}</td>"
            f"<td class=n>{bytes_text(after)}</td><td><svg viewBox='0 0 300 12' "
            f"style='width:300px;height:12px' aria-hidden=true><rect class=bar width={300 * before / most:.1f} height=12 />"
            f"<rect class=after width={300 * after / most:.1f} height=12 /></svg></td></tr>"
        )
    return (
        "<div class=scroll><table><thead><tr><th>module<th class=n>before<th class=n>after<th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _tensors(plan: Plan) -> str:
    lines = []
    for row in plan.rows:
        cells = (row.module, row.type, row.op, row.role, "×".join(map(str, row.shape)), row.dtype)
        text = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        before = bytes_text(row.before) if row.before else "shared"
        lines.append(
            f"<tr>{text}<td>{escape(row.how)}</td><td class=n>{before}</td>"
            f"<td class=n>{bytes_text(row.after)}</td></tr>"
        )
    titles = "<th>module<th>class<th>operator<th>tensor<th>shape<th>dtype<th>stored as<th class=n>before<th class=n>after"
    return (
        f"<div class=scroll><table id=tensors><thead><tr>{titles}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _kinds(plan: Plan) -> str:
    kinds: dict[str, list[int]] = {}
    for row in plan.rows:
        total = kinds.setdefault(row.how, [0, 0, 0])
        total[0] += 1
        total[1] += row.before
        total[2] += row.after
    lines = "".join(
        f"<tr><td>{escape(how)}</td><td class=n>{count}</td><td class=n>{bytes_text(before)}</td>"
        f"<td class=n>{bytes_text(after)}</td></tr>"
        for how, (count, before, after) in sorted(kinds.items(), key=lambda item: -item[1][1])
    )
    titles = "<th>stored as<th class=n>tensors<th class=n>before<th class=n>after"
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def write_report(plan: Plan, name: str, path: str | Path) -> None:
    title = f"What {escape(name)} saves for backward"
    step = "" if plan.step is None else escape(str(plan.step))
    step = f" {step[:1].upper()}{step[1:]}." if step else ""
    Path(path).write_text(
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{title}</title>"
        f'<meta name=viewport content="width=device-width"><link rel=icon href="data:,">'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{bytes_text(plan.before)} are saved, {bytes_text(plan.after)} stored: {plan.ratio:.2f} times less. "
        f"At most {bytes_text(plan.peak)} at any time. Forward {plan.forward_ms:.1f} ms, backward "
        f"{plan.backward_ms:.1f} ms.{step}</p>"
        f"<h2>Bytes over the pass</h2>{_timeline(plan)}<h2>By kind</h2>{_kinds(plan)}"
        f"<h2>By module</h2>{_modules(plan)}<h2>Every tensor</h2>{_tensors(plan)}"
        f"<script>{_SCRIPT}</script></body></html>\n",
        encoding="utf-8",
    )
