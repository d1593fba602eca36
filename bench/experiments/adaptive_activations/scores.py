"""How much a codec harms a tensor, as a score in [0, 1], and the choice for a score on average.

A codec that stores one tensor changes the gradient. The square of that change over the variance that
gradients have between batches is the tensor's noise n. With L tensors,

    score = 1 / (1 + n L / 0.1)

so a score of 1 is exact, and at 1/2 all tensors together add a tenth of the batches' variance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

import tuckfold.torch as tt
from bench.experiments.adaptive_activations.tasks import Task

MOST_NOISE = 0.1
LEAST = 1 << 12  # bytes of a tensor that is worth a codec
EXACT = "auto"
LADDERS: dict[str, tuple[str, ...]] = {
    "bounded": tuple(
        f"bounded(rel={r})" for r in (0.3, 0.2, 0.1, 0.06, 0.04, 0.02, 0.01, 0.004, 0.001)
    ),
    "block_quant": tuple(
        f"block_quant(bits={b}, group=64, round=stochastic)" for b in (1, 2, 3, 4, 5, 6, 8)
    ),
    "dct_quant": tuple(f"dct_quant(rate={r}, dc=4)" for r in (1, 1.5, 2, 3, 4, 6, 8)),
    "nonzero_quant": tuple(f"nonzero_quant(bits={b}, group=64)" for b in (1, 2, 3, 4, 6)),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    name: LADDERS[name] for name in ("bounded", "block_quant", "dct_quant")
} | {"adaptive": tuple(codec for ladder in LADDERS.values() for codec in ladder)}
_FINEST = "block_quant(bits=8, group=64)"

Group = tuple[
    tuple[str, str], ...
]  # modules and operators that saved tensors of one or more storages
Table = dict[Group, dict[str, tuple[float, int]]]  # by codec: noise, bytes


@contextmanager
def stored(task: Task, choice: dict[Group, str]) -> Iterator[tt.Activations]:
    """The task's network with these codecs; all else is stored exactly."""
    text = "".join(
        f'[[rule]]\nmatch = "{module or "*"}"\nop = "{op}"\nstore = "{codec}"\n'
        for group, codec in choice.items()
        if codec != EXACT
        for module, op in group
    )
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text(text or '[[rule]]\nstore = "auto"\n')
        with tt.activations(task.model, rules=rules, least=LEAST) as act:
            yield act


def ratio(act: tt.Activations, task: Task) -> float:
    """Bytes saved over bytes stored, without the batch, which is kept since the training loop holds it."""
    arguments = task.batch(-1)[0]
    plan = act.plan(*arguments)
    shapes = {tuple(x.shape) for x in arguments if task.saves_batch}
    held = sum(row.before for row in plan.rows if row.shape in shapes and row.how == "keep")
    return (plan.before - held) / (plan.after - held)


def groups_of(task: Task) -> list[Group]:
    """The tensors that a codec may store, as rules can name them."""
    with tt.activations(task.model, codec=_FINEST, least=LEAST) as act:
        rows = act.plan(*task.batch(-1)[0]).rows
    lossy = {row.storage for row in rows if row.how.startswith("block_quant")}
    groups: list[set[tuple[str, str]]] = []
    for storage in sorted(lossy):
        names = {(row.module, row.op) for row in rows if row.storage == storage and "(" in row.how}
        names |= names.union(*(group for group in groups if group & names))
        groups = [group for group in groups if not group & names] + [names]
    return [tuple(sorted(group)) for group in groups]


def _square(a: list[Tensor], b: list[Tensor] | None = None) -> float:
    pairs = zip(a, b or [None] * len(a), strict=True)
    return sum(float((x if y is None else x - y).double().square().sum()) for x, y in pairs)


class Scorer:
    """Of a network as it is now.

    Args:
        batches: over which gradients vary; the first `of_noise` are run with codecs, too.
    """

    def __init__(
        self, task: Task, groups: list[Group], batches: int = 6, of_noise: int = 1
    ) -> None:
        self.task, self.groups = task, groups
        exact = [task.gradients(i) for i in range(batches)]
        mean = [sum(of[1:], of[0]) / batches for of in zip(*exact, strict=True)]
        self.variance = sum(_square(g, mean) for g in exact) / (batches - 1)
        self.exact = exact[:of_noise]

    def noise(self, choice: dict[Group, str]) -> float:
        """The square of the gradient's change, as a part of the variance between batches."""
        with stored(self.task, choice):
            changed = [self.task.gradients(i) for i in range(len(self.exact))]
        total = sum(map(_square, changed, self.exact))
        return total / len(self.exact) / self.variance

    def table(self, codecs: tuple[str, ...]) -> Table:
        """Every codec for every group alone; bytes are those of its storages."""
        table: Table = {group: {} for group in self.groups}
        for codec in (*codecs, EXACT):
            with stored(self.task, dict.fromkeys(self.groups, codec)) as act:
                rows = act.plan(*self.task.batch(-1)[0]).rows
            for group in self.groups:
                mine = {row.storage for row in rows if (row.module, row.op) in group}
                size = sum(row.after for row in rows if row.storage in mine)
                noise = 0.0 if codec == EXACT else self.noise({group: codec})
                table[group][codec] = (noise, size)
        return table

    def scores(self, choice: dict[Group, str]) -> list[float]:
        return [score(self.noise({g: c}), len(choice)) for g, c in choice.items()]


def score(noise: float, count: int) -> float:
    return 1 / (1 + noise * count / MOST_NOISE) if noise == noise else 0.0


def chosen(table: Table, codecs: tuple[str, ...], target: float) -> tuple[dict[Group, str], float]:
    """The fewest bytes whose scores are the target on average, and that average.

    Each tensor takes its smallest codec that has a least score, the same for all tensors; that least score is
    as low as the average lets it be.
    """
    known = {
        group: {
            codec: (score(noise, len(table)), size)
            for codec, (noise, size) in of.items()
            if codec in codecs or codec == EXACT
        }
        for group, of in table.items()
    }
    best: tuple[int, dict[Group, str], float] | None = None
    for least in sorted({value for of in known.values() for value, _ in of.values()}):
        picks = {
            group: min((c for c in of if of[c][0] >= least), key=lambda c, of=of: of[c][1])
            for group, of in known.items()
        }
        average = sum(known[g][c][0] for g, c in picks.items()) / len(picks)
        size = sum(known[g][c][1] for g, c in picks.items())
        if average >= target and (best is None or size < best[0]):
            best = (size, picks, average)
    assert best is not None  # exact storage scores 1
    return best[1], best[2]
