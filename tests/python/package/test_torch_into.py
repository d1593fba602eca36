"""Operators of ours that write into a tensor: as copy_ does, or an error."""

import pytest

torch = pytest.importorskip("torch")
import tuckfold.torch  # noqa: E402, F401

ops = torch.ops.tuckfold


def call(x: torch.Tensor, out: torch.Tensor, rows: bool, factors: list[torch.Tensor] | None = None) -> None:  # fmt: skip
    if rows:
        mean, invstd = torch.zeros(4), torch.ones(4)
        ops.normalize_rows_into(x, factors or [mean, invstd, torch.ones(6), torch.ones(6)], out)
    else:
        ops.normalize_into(x, [], factors or [torch.zeros(6), torch.ones(6), torch.ones(6), torch.ones(6)], 1, "relu", out)  # fmt: skip


@pytest.mark.parametrize("rows", [False, True])
def test_normalize_is_seen_by_autograd(rows: bool) -> None:
    x, out = torch.randn(4, 6), torch.zeros(4, 6)
    leaf = torch.ones(4, 6, requires_grad=True)
    product = leaf * out  # saves out
    call(x, out, rows)
    assert torch.equal(out, x + 1 if rows else (x + 1).relu())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        call(x, torch.zeros(4, 6, requires_grad=True), rows)
    with pytest.raises(RuntimeError, match="it has no gradient"):
        call(x.requires_grad_(), out, rows)
    with torch.no_grad():
        call(x, out, rows)


@pytest.mark.parametrize("rows", [False, True])
def test_normalize_refuses_what_does_not_fit(rows: bool) -> None:
    x, out = torch.randn(4, 6), torch.zeros(4, 6)
    for wrong in ([torch.zeros(6)] * 3, [torch.zeros(5)] * 4, [torch.zeros(6, dtype=torch.float64)] * 4):  # fmt: skip
        with pytest.raises((ValueError, RuntimeError), match="normalize"):
            call(x, out, rows, wrong)
    with pytest.raises((ValueError, RuntimeError), match="normalize"):
        call(x, torch.zeros(4, 5), rows)
    with pytest.raises((ValueError, RuntimeError), match="normalize"):
        call(x.double(), out.double(), rows)


@pytest.mark.parametrize("rows", [False, True])
def test_normalize_of_lazily_negated_tensors(rows: bool) -> None:
    x = torch.randn(4, 6, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    out = torch.zeros(4, 6)
    call(x, out, rows)
    assert torch.equal(out, x.resolve_neg() + 1 if rows else (x.resolve_neg() + 1).relu())
