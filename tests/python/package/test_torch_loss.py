"""The cross entropy that computes some rows at a time."""

import pytest
import torch
import torch.nn.functional as F

import tuckfold.torch as tft
from tuckfold.torch import _loss


def use_kernels(monkeypatch) -> None:
    """Those of GPUs, as C++ for the CPU."""
    fits = lambda x, y: x.dtype in _loss._FLOATS and y.dtype == torch.int64  # noqa: E731
    monkeypatch.setattr(_loss, "_is_fused", fits)


@pytest.fixture(params=[1 << 24, 700, 1, "kernels"])
def part(request, monkeypatch) -> None:
    """Values at once: all rows, some, and one; or kernels of ours."""
    if request.param == "kernels":
        use_kernels(monkeypatch)
    else:
        monkeypatch.setattr(_loss, "_PART", request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_values_and_gradients_are_those_of_double_precision(dtype, part):
    torch.manual_seed(0)
    x = (torch.randn(3, 7, 50) * 4).to(dtype).requires_grad_()
    y = torch.randint(50, (3, 7))
    y[1, 2] = y[0, 0] = -100
    exact = x.detach().double().requires_grad_()
    wanted = F.cross_entropy(exact.flatten(0, 1), y.flatten())
    loss = tft.cross_entropy(x, y)
    assert loss.dtype == (dtype if dtype == torch.float64 else torch.float32)
    assert abs(loss.item() - wanted.item()) < (1e-14 if dtype == torch.float64 else 1e-6)
    (grad,) = torch.autograd.grad(2.5 * loss, x)
    (expected,) = torch.autograd.grad(2.5 * wanted, exact)
    assert grad.dtype == dtype and grad.shape == x.shape
    assert bool((grad.double() - expected).abs().max() < max(torch.finfo(dtype).eps, 3e-8))
    assert bool((grad[1, 2] == 0).all())


def test_other_labels_orders_and_no_rows(part):
    x, y = torch.randn(4, 9, requires_grad=True), torch.tensor([1, 7, 8, 7])
    assert torch.allclose(
        tft.cross_entropy(x, y, ignore_index=7), F.cross_entropy(x, y, ignore_index=7)
    )
    wide = torch.randn(9, 6, 4, requires_grad=True).transpose(0, 2)
    loss = tft.cross_entropy(wide, torch.zeros(4, 6, dtype=torch.int64))
    assert torch.allclose(loss, F.cross_entropy(wide.reshape(24, 9), torch.zeros(24, dtype=torch.int64)))  # fmt: skip
    loss.backward()
    none = torch.full((4,), -100)
    for loss in (tft.cross_entropy(x, none), F.cross_entropy(x, none)):
        assert loss.isnan()
        (grad,) = torch.autograd.grad(loss, x)
        assert bool((grad == 0).all())


def test_backward_keeps_only_the_logits(part):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.nbytes) or t, lambda t: t
    ):
        x = torch.randn(64, 1000, requires_grad=True)
        tft.cross_entropy(x, torch.zeros(64, dtype=torch.int64))
    assert sum(kept) <= x.nbytes + 64 * 16 + 8


def test_second_derivatives_are_refused(part):
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 9, requires_grad=True)
    loss = tft.cross_entropy(x @ w, torch.tensor([1, 7, 8, 7]))
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        (loss + grad.square().sum()).backward()


def test_shapes_must_fit():
    with pytest.raises(ValueError, match="without the last axis"):
        tft.cross_entropy(torch.randn(4, 9), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(ValueError, match="int64"):
        tft.cross_entropy(torch.zeros(4, 9, dtype=torch.int64), torch.zeros(4, dtype=torch.int64))


def test_operators_refuse_what_does_not_fit():
    rows, grad = torch.ops.tuckfold.cross_entropy_rows, torch.ops.tuckfold.cross_entropy_grad
    x, y = torch.randn(4, 9), torch.zeros(4, dtype=torch.int64)
    losses, sums = rows(x, y, -100)
    assert losses.shape == (4,) and sums.shape == (4, 2)
    one = torch.ones(())
    for bad in (x[0], x.double(), x.t()[:4]):
        with pytest.raises((RuntimeError, ValueError), match="cross_entropy"):
            rows(bad, y, -100)
    for classes in (y[:3], y.int(), torch.zeros(8, dtype=torch.int64)[::2]):
        with pytest.raises((RuntimeError, ValueError), match="a class for each row"):
            rows(x, classes, -100)
    for arguments in ((sums[:3], one), (sums, one.double()), (sums, torch.ones(2))):
        with pytest.raises((RuntimeError, ValueError), match="scale"):
            grad(x, y, -100, *arguments)


def test_a_class_that_is_not_there_makes_nan():
    x = torch.randn(3, 9)
    for wrong in (9, -1):
        y = torch.tensor([1, wrong, 2])
        losses, sums = torch.ops.tuckfold.cross_entropy_rows(x, y, -100)
        assert losses.isnan().tolist() == [False, True, False]
        made = torch.ops.tuckfold.cross_entropy_grad(x, y, -100, sums, torch.ones(()))
        assert made.isnan().all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", _loss._FLOATS)
def test_kernels_are_compared_before_they_are_used(dtype, monkeypatch):
    device = torch.device("cpu")  # where the same operators are C++
    assert _loss._agree(device, dtype)
    rows, grad = _loss._rows, _loss._grad

    def loud(x, classes, ignored, sums, scale):
        wrong = grad(x, classes, ignored, sums, scale)
        wrong[6, 1002] += 1e-4
        return wrong

    monkeypatch.setattr(_loss, "_grad", loud)
    assert not _loss._agree(device, dtype)
    monkeypatch.setattr(_loss, "_grad", grad)
    monkeypatch.setattr(_loss, "_rows", lambda *a: (rows(*a)[0].roll(1), rows(*a)[1]))
    assert not _loss._agree(device, dtype)

    def refuses(*_):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(_loss, "_rows", refuses)
    assert not _loss._agree(device, dtype)
