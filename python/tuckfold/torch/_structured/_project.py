"""The nearest matrix of a structure to a given one, with a certificate of how near any could be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tuckfold._structure import structure_of
from tuckfold.torch.nn import Structure
from tuckfold.torch.nn._plain import pixelfly_blocks, plain

_ROUNDS = 12  # of the two parts of a pixelfly, each fitted to what the other leaves


@dataclass(frozen=True)
class Projection:
    """A matrix in a structure.

    Attributes:
        structure: what it became.
        weights: in the structure's order, in double precision.
        error: length of the difference, in the Frobenius norm, as a part of the matrix's own.
        bound: no matrix of the structure comes nearer than this; 0 where nothing is known.
    """

    structure: Structure
    weights: tuple[Tensor, ...]
    error: float
    bound: float

    def to_dense(self) -> Tensor:
        """The matrix."""
        unit = torch.eye(self.structure.in_features, dtype=torch.float64)
        return plain(self.structure, unit, self.weights).T.contiguous()


@torch.no_grad()
def project(weight: Tensor, text: str) -> Projection:
    """The matrix of a structure that is nearest to ``weight``, or nearly so.

    low_rank, monarch, block_diagonal, circulant and dense give the nearest of all. A butterfly's error is at most
    sqrt(log2(n) - 1) times the least, and in practice within some per cent; a pixelfly's parts are fitted in turn.

    Args:
        weight: out_features x in_features.
        text: the structure.

    Raises:
        ValueError: the structure has no projection: fastfood, tied, orthogonal or repeated butterflies, mixtures.

    >>> h = torch.ones(1, 1)
    >>> for _ in range(6):
    ...     h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    >>> tuckfold.torch.project(h, "butterfly").error < 1e-12
    True
    >>> round(tuckfold.torch.project(h, "low_rank(rank=16)").error, 3)
    0.866
    """
    if weight.dim() != 2:
        raise ValueError(f"[project] the weight must be a matrix, got shape {tuple(weight.shape)}")
    s = structure_of(text, weight.shape[1], weight.shape[0])
    a = weight.detach().to("cpu", torch.float64)
    if not torch.isfinite(a).all():
        raise ValueError("[project] the weight has values that are not finite; repair it first")
    function = _FAMILIES.get(s.name)
    plain_form = all(
        dict(s.options)[key] == value
        for key, value in {"tied": False, "blocks": 1, "form": "free"}.items()
        if s.name == "butterfly"
    ) and not (s.name == "pixelfly" and s.option("form") != "sum")
    if function is None or not plain_form:
        raise ValueError(
            f"[project] {s.text} has no projection; train it, or take low_rank, monarch, butterfly, "
            "pixelfly, block_diagonal or circulant"
        )
    weights, lost = function(s, a)
    length = float(a.norm())
    made = Projection(s, tuple(weights), 0.0, 0.0)
    error = float((a - made.to_dense()).norm()) / length if length > 0 else 0.0
    bound = lost / length if length > 0 else 0.0
    return Projection(s, tuple(weights), error, min(bound, error))


# Each returns the weights, and a length that no matrix of the structure can do without losing.


def _padded(a: Tensor, rows: int, cols: int) -> Tensor:
    return torch.nn.functional.pad(a, (0, cols - a.shape[1], 0, rows - a.shape[0]))


def _dense(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    return [a.clone()], 0.0


def _truncated(a: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """The best product of two matrices with so many columns between, and what it loses."""
    u, sigma, v = torch.linalg.svd(a, full_matrices=False)
    root = sigma[..., :rank].sqrt()
    first = root.unsqueeze(-1) * v[..., :rank, :]
    second = u[..., :, :rank] * root.unsqueeze(-2)
    return first, second, float(sigma[..., rank:].square().sum())


def _low_rank(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    first, second, lost = _truncated(a, s.option("rank"))
    return [first, second], math.sqrt(lost)


def _block_diagonal(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    k, o, i = s.weights[0].shape
    blocks = _padded(a, k * o, k * i).reshape(k, o, k, i)
    kept = torch.stack([blocks[b, :, b] for b in range(k)])
    return [kept], math.sqrt(max(float(a.square().sum() - kept.square().sum()), 0.0))


def _circulant(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    n = s.weights[0].shape[0]
    apart = (torch.arange(a.shape[0]).unsqueeze(1) - torch.arange(a.shape[1])) % n
    sums = torch.zeros(n, dtype=a.dtype).index_add_(0, apart.flatten(), a.flatten())
    counts = torch.bincount(apart.flatten(), minlength=n).clamp(min=1)
    kernel = sums / counts
    return [kernel], float((a - kernel[apart]).norm())


def _monarch(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    """Rows s k + l and the columns of block b make a matrix of low rank: the numbers m between the two
    factors that belong to both."""
    k, mid, i = s.weights[0].shape
    o = s.weights[1].shape[1]
    blocks = _padded(a, k * o, k * i).reshape(o, k, k, i).permute(1, 2, 0, 3)  # l, b, s, p
    first, second = (torch.zeros(w.shape, dtype=a.dtype) for w in s.weights)
    u, sigma, v = torch.linalg.svd(blocks, full_matrices=False)
    lost = 0.0
    for b in range(k):
        numbers = torch.arange(b * mid, (b + 1) * mid)
        for line in range(k):
            shared = numbers[numbers % k == line]
            count = min(len(shared), sigma.shape[-1])
            shared = shared[:count]
            root = sigma[line, b, :count].sqrt()
            second[line][:, shared // k] = u[line, b, :, :count] * root
            first[b, shared % mid] = root.unsqueeze(-1) * v[line, b, :count]
            lost += float(sigma[line, b, count:].square().sum())
    return [first, second], math.sqrt(lost)


def _butterfly(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    """Factor by factor from the left: rows p and p + n / 2 of each half are multiples of one row.

    The left vectors have length one, so that what the steps lose is orthogonal.
    """
    stack, _, levels, half = s.weights[0].shape[:4]
    n = 2 * half
    grows = s.option("stride") == "increasing"
    twiddle = torch.zeros(s.weights[0].shape, dtype=a.dtype)
    whole, least = _padded(a, stack * n, n), 0.0
    for k in range(stack):
        part = whole[k * n : (k + 1) * n]
        core = part if grows else part.T
        least += _least_loss(core, levels) ** 2
        core = core.unsqueeze(0)  # matrices of this level
        for level in range(levels - 1, -1, -1):
            size = 1 << level
            quads = core.reshape(-1, 2, size, 2, size).permute(0, 3, 2, 1, 4)  # m, side, p, 2, cols
            gram = quads @ quads.transpose(-1, -2)
            left = torch.linalg.eigh(gram)[1][..., 1]  # m, side, p, 2: of the larger value
            rest = (left.unsqueeze(-2) @ quads).squeeze(-2)  # m, side, p, cols
            # [[a, b], [c, d]] of pair p: the left vectors of both sides are its columns.
            pairs = left.permute(0, 2, 3, 1).reshape(half, 2, 2)
            core = rest.reshape(-1, size, size)
            place = level if grows else levels - 1 - level
            twiddle[k, 0, place] = pairs if grows else pairs.transpose(1, 2)
        # What is left are 1 x 1: into the columns of the first factor, that of stride 1.
        scale = core.reshape(half, 1, 2)
        place = 0 if grows else levels - 1
        twiddle[k, 0, place] *= scale if grows else scale.transpose(1, 2)
    return [twiddle], math.sqrt(least)


def _least_loss(a: Tensor, levels: int) -> float:
    """The largest loss of any split into two products of factors, each of which is solved exactly."""
    n, most = 1 << levels, 0.0
    total = float(a.square().sum())
    for top in range(1, levels):
        rows, cols = 1 << top, n >> top
        blocks = a.reshape(rows, cols, rows, cols).permute(1, 2, 0, 3)  # p, side, rows, cols
        small = (
            blocks @ blocks.transpose(-1, -2) if rows <= cols else blocks.transpose(-1, -2) @ blocks
        )
        kept = float(torch.linalg.eigvalsh(small)[..., -1].clamp(min=0).sum())
        most = max(most, total - kept)
    return math.sqrt(max(most, 0.0))


def _pixelfly(s: Structure, a: Tensor) -> tuple[list[Tensor], float]:
    block, rank = s.option("block"), s.option("rank")
    rows, cols = (torch.tensor(places) for places in pixelfly_blocks(s))
    count = -(-s.out_features // block), -(-s.in_features // block)
    low = torch.zeros_like(a)
    blocks = first = second = a
    for _ in range(_ROUNDS):
        rest = _padded(a - low, count[0] * block, count[1] * block)
        blocks = rest.reshape(count[0], block, count[1], block)[rows, :, cols]
        sparse = torch.zeros(count[0], count[1], block, block, dtype=a.dtype)
        sparse[rows, cols] = blocks
        sparse = sparse.permute(0, 2, 1, 3).reshape(count[0] * block, -1)
        first, second, _ = _truncated(a - sparse[: a.shape[0], : a.shape[1]], rank)
        low = second @ first
    return [blocks, first, second], 0.0


_FAMILIES = {
    "butterfly": _butterfly,
    "pixelfly": _pixelfly,
    "monarch": _monarch,
    "block_diagonal": _block_diagonal,
    "low_rank": _low_rank,
    "circulant": _circulant,
    "dense": _dense,
}
