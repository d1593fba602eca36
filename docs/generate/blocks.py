#!/usr/bin/env python3
"""Writes the table of blocks in docs/activations.md from plans made on the CPU; --check only compares.

docs/generate/blocks.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from bench.experiments.activations.blocks import BLOCKS  # noqa: E402

PAGE = ROOT / "docs/activations.md"
MARKS = ("<!-- docs/generate/blocks.py writes this table -->", "<!-- end -->")


def row(name: str) -> str:
    make, shape = BLOCKS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape, requires_grad=True)
    with tt.activations(model, least=1024) as act:
        plan = act.plan(x)
    with tt.activations(model, least=1024, recompute=0) as act:
        packed = act.plan(x)
    made = sorted({f"{r.op}" for r in plan.rows if r.how == "recompute"})
    kept: dict[str, int] = {}
    for r in plan.rows:
        if r.how == "keep":
            kept[r.op] = kept.get(r.op, 0) + r.after
    # Those that hold a tenth of what is stored, or more.
    large = [op for op, n in sorted(kept.items(), key=lambda i: -i[1]) if n > plan.after / 10]
    cells = (name, f"{packed.ratio:.2f}", f"{plan.ratio:.2f}", _names(made), _names(large))
    return f"| {' | '.join(cells)} |"


def _names(operators: list[str]) -> str:
    return ", ".join(f"`{op}`" for op in operators) or "–"


def table() -> str:
    torch.set_num_threads(1)
    head = "| block | packed alone | and recomputed | read what is recomputed | kept for |\n| --- | --: | --: | --- | --- |"
    return "\n".join([head, *map(row, BLOCKS)]) + "\n"


def main() -> int:
    text = PAGE.read_text()
    begin, end = (text.index(mark) for mark in MARKS)
    made = f"{text[: begin + len(MARKS[0])]}\n\n{table()}\n{text[end:]}"
    if "--check" in sys.argv:
        if made != text:
            print(
                f"{PAGE.name} differs from its models: run docs/generate/blocks.py", file=sys.stderr
            )
        return int(made != text)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
