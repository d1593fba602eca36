"""Numbers of parameters of the butterfly paper's tables 4 and 5, from the texts of their layers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tuckfold._structure import structure_of

FEATURES, CLASSES = 1024, 10

# Table 4: the structure of each hidden layer, and the number of parameters that is printed for its network.
METHODS = {
    "baseline": ("dense", 1059850),
    "butterfly": ("butterfly(tied=true)", 16390),
    "fastfood": ("fastfood(normalize=false)", 14346),
    "circulant": ("circulant", 12298),
    "low_rank": ("low_rank(rank=1)", 13322),
    "pixelfly": ("pixelfly(block=64, butterfly=16, rank=32)", 404490),
}


def count(text: str, features: int = FEATURES, biases: int = 1) -> int:
    """Parameters of a network with one hidden layer, features to features, and ten outputs."""
    hidden = structure_of(text, features, features).weight_count + biases * features
    return hidden + features * CLASSES + CLASSES


def biases_of(method: str) -> int:
    """Two in the butterfly that table 4 counts: the second adds nothing."""
    return 2 if method == "butterfly" else 1


@dataclass(frozen=True)
class Sweep:
    """A row of table 5: one option of a pixelfly changes; its numbers of parameters have two biases."""

    changes: str
    values: tuple[int, ...]
    fixed: tuple[tuple[str, int], ...]
    printed_mean: int
    printed_deviation: int

    def texts(self) -> list[str]:
        all_options = [dict(self.fixed) | {self.changes: value} for value in self.values]
        return [
            f"pixelfly(block={o['block']}, butterfly={o['butterfly']}, rank={o['rank']})"
            for o in all_options
        ]

    def to_json(self) -> dict[str, object]:
        counts = [count(text, biases=2) for text in self.texts()]
        return {
            "changes": self.changes,
            "values": list(self.values),
            "fixed": dict(self.fixed),
            "counts": counts,
            "first": counts[0],
            "printed_mean": self.printed_mean,
            "mean": statistics.mean(counts),
            "deviation": statistics.stdev(counts),
            "printed_deviation": self.printed_deviation,
        }


def _powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**k for k in range(first, last + 1))


# The column that table 5 calls mean is the first value; its row of blocks must have butterfly 2^7 and rank 2.
SWEEPS = (
    Sweep("butterfly", _powers(1, 8), (("block", 32), ("rank", 2)), 1064970, 326625),
    Sweep("block", _powers(3, 7), (("butterfly", 128), ("rank", 2)), 81930, 184638),
    Sweep("rank", _powers(1, 8), (("block", 16), ("butterfly", 16)), 344074, 181317),
)


def shl() -> dict[str, object]:
    """Table 4."""
    return {
        "table_4": [
            {
                "method": method,
                "text": text,
                "params": count(text, biases=biases_of(method)),
                "printed": printed,
            }
            for method, (text, printed) in METHODS.items()
        ],
        "butterfly_without_second_bias": count(METHODS["butterfly"][0]),
    }


def pixelfly() -> dict[str, object]:
    """Table 5."""
    return {"table_5": [sweep.to_json() for sweep in SWEEPS]}


def lines_of_shl() -> str:
    said = shl()
    rows = [(r["method"], r["text"], r["params"], r["printed"]) for r in said["table_4"]]
    rows.append(("butterfly", "one bias", said["butterfly_without_second_bias"], ""))
    lines = [f"{'method':10} {'hidden layer':42} {'params':>8} {'printed':>8}"]
    return "\n".join(lines + [f"{a:10} {b:42} {c:>8} {d:>8}" for a, b, c, d in rows])


def lines_of_pixelfly() -> str:
    lines = ["changes    first    printed mean     mean  deviation  printed deviation"]
    for row in pixelfly()["table_5"]:
        lines.append(
            f"{row['changes']:9} {row['first']:>7} {row['printed_mean']:>15} {row['mean']:>8.0f} "
            f"{row['deviation']:>10.0f} {row['printed_deviation']:>18}"
        )
    return "\n".join(lines)
