"""Every differentiable operator of torch's own database, wrapped and plain: equal gradients.

A part of it runs always, the whole with -m slow.
"""

import sys
import types
import unittest
import warnings
import zlib

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import same  # noqa: E402


def database() -> list:
    if "expecttest" not in sys.modules:  # the database imports it, and uses nothing of it
        stub = types.ModuleType("expecttest")
        stub.TestCase, stub.assert_expected_inline = unittest.TestCase, None
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if op.supports_autograd]


class Call(nn.Module):
    """An operator on copies, so that nobody else holds what it saves."""

    def __init__(self, op: object, args: object, kwargs: object) -> None:
        super().__init__()
        self.op, self.args, self.kwargs = op, args, kwargs

    def forward(self) -> list[torch.Tensor]:
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, self.kwargs))
        out = self.op(*args, **kwargs)
        del args, kwargs
        return [
            x.clone() if x.layout is torch.strided else x
            for x in pytree.tree_leaves(out)
            if isinstance(x, torch.Tensor) and x.requires_grad
        ]


def gradients(model: Call, wrapped: bool) -> list[torch.Tensor | None] | str:
    leaves = [
        x
        for x in pytree.tree_leaves((model.args, model.kwargs))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    torch.manual_seed(0)
    try:
        if wrapped:
            with tt.activations(model, least=0) as act:
                outs = model()
            assert act.problems == []
        else:
            outs = model()
        if not outs or not leaves:
            return []
        seeds = [torch.linspace(-1, 1, x.numel()).reshape(x.shape).to(x.dtype) for x in outs]
        return list(torch.autograd.grad(outs, leaves, seeds, allow_unused=True))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return type(error).__name__


def held_to_plain(op: object, most: int) -> int:
    compared = 0
    for dtype in (torch.float32, torch.float64, torch.complex64):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(1)
        samples = op.sample_inputs("cpu", dtype, requires_grad=True)
        for number, sample in enumerate(samples):
            if number >= most:
                break
            model = Call(op, (sample.input, *sample.args), sample.kwargs)
            plain, again = gradients(model, False), gradients(model, False)
            if isinstance(plain, str):
                assert gradients(model, True) == plain
                continue
            if not all(map(same_or_sparse, plain, again)):
                continue  # the operator does not repeat itself
            got = gradients(model, True)
            assert not isinstance(got, str), (op.name, number, got)
            assert all(map(same_or_sparse, got, plain)), (
                op.name,
                op.variant_test_name,
                dtype,
                number,
            )
            compared += 1
        if dtype == torch.float32 and compared:
            break
    return compared


def same_or_sparse(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is not None and a.layout is not torch.strided:
        return torch.equal(a.to_dense(), b.to_dense())
    if a is not None and a.is_complex():
        return same(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    return same(a, b)


def sweep(ops: list, most: int) -> int:
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            compared += held_to_plain(op, most)
    return compared


# Those that have a rule or a recipe, with their relatives.
RULED = (
    "nn.functional.relu", "nn.functional.leaky_relu", "nn.functional.hardtanh", "nn.functional.relu6",
    "nn.functional.gelu", "nn.functional.silu", "nn.functional.mish", "nn.functional.hardswish",
    "nn.functional.threshold", "nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.max_pool1d",
    "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_max_pool2d",
    "nn.functional.pad", "nn.functional.batch_norm", "nn.functional.layer_norm", "nn.functional.rms_norm", "native_batch_norm",
    "nn.functional.dropout", "nn.functional.embedding", "nn.functional.nll_loss", "nn.functional.cross_entropy",
    "add", "mul", "where", "masked_fill", "index_select", "gather", "softmax",
)  # fmt: skip


def test_operators_with_rules() -> None:
    ops = [op for op in database() if op.name in RULED]
    assert {op.name for op in ops} >= set(RULED) - {"nn.functional.rms_norm", "native_batch_norm"}
    assert sweep(ops, 6) > 150


def test_some_of_all_operators() -> None:
    ops = [op for op in database() if zlib.crc32(op.name.encode()) % 8 == 0]
    assert sweep(ops, 2) > 60


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_operators(part: int) -> None:
    assert sweep(database()[part::8], 40) > 300
