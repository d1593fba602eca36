"""dct_chop in torch's own operations: the paper's matrix products on blocks, and their transposes.

A block A of N × N values has the coefficients F A Fᵀ, of which F, of K × N, keeps K × K. With the
matrix S of the way back, also of K × N, it returns as Sᵀ Y S. Orthonormal transforms have S = F.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from tuckfold._codec import matmul_form
from tuckfold._spec import spec_of


def dct_chop_params(what: str, spec: str) -> dict:
    """The parameters of a spec that is one dct_chop, in the paper's order."""
    stages = spec_of(spec).stages
    if len(stages) != 1 or stages[0].name != "dct_chop":
        raise ValueError(f"[{what}] needs one dct_chop, got {spec}; pack takes every codec")
    if stages[0].params["order"] == "planes":
        raise ValueError(f"[{what}] needs order=rows, the paper's matrix, got {spec}")
    return dict(stages[0].params)


@functools.lru_cache(maxsize=64)
def _rows(spec: str) -> tuple[list[list[float]], list[list[float]]]:
    p = dct_chop_params("matmul_form", spec)
    square = f"dct_chop(block={p['block']}, keep={p['keep']}, transform={p['transform']})"
    form = matmul_form(square, p["block"], p["block"])
    return form.lhs.tolist(), form.back_lhs.T.tolist()


def matrices(spec: str, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """F and S of one block, K × N, in f32. New ones, since tracing takes no tensors from outside."""
    forward, back = _rows(spec)
    return (
        torch.tensor(forward, dtype=torch.float32, device=device),
        torch.tensor(back, dtype=torch.float32, device=device),
    )


def _both_sides(blocks: Tensor, matrix: Tensor) -> Tensor:
    """Mᵀ B M of blocks B on axes 2 and 4, in full precision whatever autocast says."""
    device = blocks.device.type
    exact = nullcontext() if device == "meta" else torch.autocast(device, enabled=False)
    with exact:
        half = blocks @ matrix
        return (half.transpose(2, 4) @ matrix).transpose(2, 4)


@dataclass(frozen=True)
class Geometry:
    """How a tensor of some shape is cut into blocks, as the codec's page says."""

    shape: tuple[int, ...]
    leading: tuple[int, ...]  #: axes before the plane's two
    rows: int
    cols: int
    block: int
    keep: int
    triangle: bool
    orthonormal: bool

    @staticmethod
    def of(p: dict, shape: Sequence[int]) -> Geometry:
        """From parameters of dct_chop, in plain Python that torch.compile can follow."""
        lengths = [int(n) for n in shape]
        sides = []
        for _ in range(2):  # trailing axes are folded together until a side reaches the block
            side = 1
            while lengths and side < p["block"]:
                side *= lengths.pop()
            sides.append(side)
        if min(sides) < p["block"]:
            raise ValueError(
                f"[Codec] dct_chop needs two sides of at least {p['block']}, got {tuple(shape)}"
            )
        return Geometry(
            shape=tuple(int(n) for n in shape),
            leading=tuple(lengths),
            rows=sides[1],
            cols=sides[0],
            block=p["block"],
            keep=p["keep"],
            triangle=p["shape"] == "triangle",
            orthonormal=p["transform"] == "dct",
        )

    @property
    def padded(self) -> bool:
        return self.rows % self.block != 0 or self.cols % self.block != 0

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks down and across."""
        return -(-self.rows // self.block), -(-self.cols // self.block)

    @property
    def coefs_shape(self) -> tuple[int, ...]:
        """The shape of what compress gives."""
        (down, across), k = self.blocks, self.keep
        if self.triangle:
            return (*self.leading, down * across, k * (k + 1) // 2)
        return (*self.leading, down * k, across * k)

    def to_coefs(self, x: Tensor, matrix: Tensor, *, repeat_edges: bool) -> Tensor:
        """M A Mᵀ of every block A; past the edges values repeat, or are 0."""
        (down, across), n = self.blocks, self.block
        plane = x.reshape(-1, self.rows, self.cols)
        for axis, side in ((1, down * n), (2, across * n)):
            if repeat_edges and plane.shape[axis] < side:
                index = torch.arange(side, device=x.device).clamp(max=plane.shape[axis] - 1)
                plane = plane.index_select(axis, index)
        if self.padded and not repeat_edges:
            more = (0, across * n - self.cols, 0, down * n - self.rows)
            plane = torch.nn.functional.pad(plane, more)
        coefs = _both_sides(plane.reshape(-1, down, n, across, n), matrix.t())
        if self.triangle:
            coefs = coefs.transpose(2, 3).reshape(-1, down * across, self.keep**2)
            coefs = coefs.index_select(2, self._kept(x.device))
        return coefs.reshape(self.coefs_shape)

    def from_coefs(self, coefs: Tensor, matrix: Tensor, *, fold: bool) -> Tensor:
        """Mᵀ Y M of every block Y; values past the edges are dropped, or added to them."""
        (down, across), n, k = self.blocks, self.block, self.keep
        if self.triangle:
            full = coefs.new_zeros(coefs.numel() // coefs.shape[-1], k * k)
            rows = coefs.reshape(len(full), coefs.shape[-1])
            full = full.index_copy(1, self._kept(coefs.device), rows)
            coefs = full.reshape(-1, down, across, k, k).transpose(2, 3)
        plane = _both_sides(coefs.reshape(-1, down, k, across, k), matrix)
        plane = plane.reshape(-1, down * n, across * n)
        for axis, side in ((1, self.rows), (2, self.cols)):
            if plane.shape[axis] == side:
                continue
            kept = plane.narrow(axis, 0, side)
            if fold:
                rest = plane.narrow(axis, side, plane.shape[axis] - side).sum(axis, keepdim=True)
                kept = torch.cat(
                    [kept.narrow(axis, 0, side - 1), kept.narrow(axis, side - 1, 1) + rest], axis
                )
            plane = kept
        return plane.reshape(self.shape)

    def _kept(self, device: torch.device) -> Tensor:
        """Of K × K coefficients in a row, those of the triangle i + j < K."""
        places = [i * self.keep + j for i in range(self.keep) for j in range(self.keep - i)]
        return torch.tensor(places, device=device)
