"""The families in torch's own operators: for export, for complex numbers, and where there is no kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuckfold._structure import Structure


def plain(s: Structure, x: Tensor, weights: Sequence[Tensor], bias: Tensor | None = None) -> Tensor:
    """What ``torch.ops.tuckfold.structured`` computes."""
    rows = x.reshape(-1, s.in_features)
    y = _FAMILIES[s.name](s, rows, *weights)
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], s.out_features)


def _widened(s: Structure, x: Tensor, features: int) -> Tensor:
    return F.pad(x, (0, features - s.in_features)) if features > s.in_features else x


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _butterfly(s: Structure, x: Tensor, twiddle: Tensor) -> Tensor:
    if s.option("form") == "orthogonal":
        c, i = torch.cos(twiddle), torch.sin(twiddle)
        twiddle = torch.stack([torch.stack([c, -i], -1), torch.stack([i, c], -1)], -2)
    n = max(_power_of_two(s.in_features), 2)
    levels, stack, tied = n.bit_length() - 1, twiddle.shape[0], s.option("tied")
    y = _widened(s, x, n).unsqueeze(1).expand(-1, stack, n)
    for block in range(s.option("blocks")):
        for level in range(levels):
            grows = (s.option("stride") == "increasing") == (block % 2 == 0)
            stride = 1 << (level if grows else levels - 1 - level)
            if tied:
                t = twiddle[:, block, stride - 1 : 2 * stride - 1].unsqueeze(1)
            else:
                t = twiddle[:, block, level].reshape(stack, n // (2 * stride), stride, 2, 2)
            pairs = y.reshape(-1, stack, n // (2 * stride), 2, stride)
            first, second = pairs[..., 0, :], pairs[..., 1, :]
            y = torch.stack(
                [
                    t[..., 0, 0] * first + t[..., 0, 1] * second,
                    t[..., 1, 0] * first + t[..., 1, 1] * second,
                ],
                dim=-2,
            )
    return y.reshape(-1, stack * n)[:, : s.out_features]


def _low_rank(s: Structure, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.linear(F.linear(x, first), second)


def _block_diagonal(s: Structure, x: Tensor, blocks: Tensor) -> Tensor:
    k, _, i = blocks.shape
    parts = _widened(s, x, k * i).reshape(-1, k, i).transpose(0, 1)
    y = torch.bmm(parts, blocks.transpose(1, 2)).transpose(0, 1)
    return y.reshape(x.shape[0], -1)[:, : s.out_features]


def _monarch(s: Structure, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    k, mid, i = first.shape
    parts = _widened(s, x, k * i).reshape(-1, k, i).transpose(0, 1)
    h = torch.bmm(parts, first.transpose(1, 2)).transpose(0, 1)  # samples, k, mid
    h = h.reshape(-1, mid, k).permute(2, 0, 1)  # number m goes to block m mod k
    y = torch.bmm(h, second.transpose(1, 2))  # k, samples, outputs
    return y.permute(1, 2, 0).reshape(x.shape[0], -1)[:, : s.out_features]


@functools.lru_cache(maxsize=256)
def pixelfly_blocks(s: Structure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The block rows and block columns of a pixelfly, in the order of its weight."""
    block, size, factors = s.option("block"), s.option("butterfly"), s.option("factors")
    rows, cols = -(-s.out_features // block), -(-s.in_features // block)
    cells = 1 << (min(size, rows, cols).bit_length() - 1)
    seen = [k for k in range(size.bit_length() - 1) if 1 << k >= size // cells]
    most = len([k for k in seen if factors == 0 or k < factors])
    found = [
        (r, c)
        for c in range(cols)
        for r in range(rows)
        if (apart := (r * cells // rows) ^ (c * cells // cols)) == 0
        or (apart & (apart - 1) == 0 and apart < 1 << most)
    ]
    return tuple(r for r, _ in found), tuple(c for _, c in found)


def _pixelfly(
    s: Structure, x: Tensor, blocks: Tensor, first: Tensor, second: Tensor, *gate: Tensor
) -> Tensor:
    sparse, low = _sparse(s, x, blocks), _low_rank(s, x, first, second)
    if s.option("form") == "sum":
        return sparse + low
    share: float | Tensor = 0.5
    if gate:
        share = torch.sigmoid(x @ gate[0] + gate[1]).unsqueeze(-1)
    return sparse + share * (low - sparse)


_indices: dict[tuple[torch.device, tuple[int, ...]], Tensor] = {}


def _index(numbers: Sequence[int], x: Tensor) -> Tensor:
    """On the device of x. Real ones are kept: a CUDA graph cannot copy them while it is captured."""
    if type(x) not in (Tensor, nn.Parameter) or torch.compiler.is_compiling():
        return torch.tensor(numbers, device=x.device)
    key = (x.device, tuple(numbers))
    if key not in _indices:
        with torch.inference_mode(False):  # it outlives that
            _indices[key] = torch.tensor(numbers, device=x.device)
    return _indices[key]


def _sparse(s: Structure, x: Tensor, blocks: Tensor) -> Tensor:
    block, (rows, cols) = s.option("block"), pixelfly_blocks(s)
    count = -(-s.out_features // block)
    parts = _widened(s, x, -(-s.in_features // block) * block).reshape(x.shape[0], -1, block)
    columns = _index(cols, x)
    each = len(rows) // count
    if all(rows.count(r) == each for r in set(rows)) and each * count == len(rows):
        # As many blocks in every row: one product of count matrices.
        order = _index(sorted(range(len(rows)), key=lambda i: rows[i]), x)
        weight = blocks[order].reshape(count, each, block, block).permute(0, 1, 3, 2)
        picked = parts[:, columns[order]].reshape(-1, count, each * block).transpose(0, 1)
        y = torch.bmm(picked, weight.reshape(count, each * block, block)).transpose(0, 1)
    else:
        products = torch.bmm(parts[:, columns].transpose(0, 1), blocks.transpose(1, 2))
        goes = F.one_hot(_index(rows, x), count).to(x.dtype)  # blocks, rows
        y = torch.matmul(products.permute(1, 2, 0), goes).transpose(1, 2)
    return y.reshape(x.shape[0], -1)[:, : s.out_features]


def _circulant(s: Structure, x: Tensor, kernel: Tensor) -> Tensor:
    n = kernel.shape[0]
    if torch.onnx.is_in_onnx_export():
        apart = torch.arange(s.out_features).unsqueeze(1) - torch.arange(s.in_features)
        return F.linear(x, kernel[apart % n])
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    y = torch.fft.irfft(torch.fft.rfft(kernel.to(wide)) * torch.fft.rfft(x.to(wide), n), n)
    return y[:, : s.out_features].to(x.dtype)


def _hadamard(x: Tensor, n: int) -> Tensor:
    for level in range(n.bit_length() - 1):
        pairs = x.reshape(-1, n >> (level + 1), 2, 1 << level)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        x = torch.stack([first + second, first - second], dim=2)
    return x.reshape(-1, n)


def _fastfood(
    s: Structure, x: Tensor, scale: Tensor, gaussian: Tensor, signs: Tensor, permutation: Tensor
) -> Tensor:
    n = _power_of_two(max(s.in_features, s.out_features))
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    h = _hadamard(_widened(s, x.to(wide), n) * signs.to(wide), n)[:, permutation]
    y = _hadamard(h * gaussian.to(wide), n) * scale.to(wide)
    if s.option("normalize"):
        y = y / n
    return y[:, : s.out_features].to(x.dtype)


def _dense(s: Structure, x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight)


_FAMILIES: dict[str, Callable[..., Tensor]] = {
    "butterfly": _butterfly,
    "pixelfly": _pixelfly,
    "monarch": _monarch,
    "block_diagonal": _block_diagonal,
    "low_rank": _low_rank,
    "circulant": _circulant,
    "fastfood": _fastfood,
    "dense": _dense,
}
