"""What goes wrong elsewhere with the tensors that hooks get; test_trap_table.py says which test is for what."""

import re

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import (  # noqa: E402
    NETWORKS,
    Block,
    Sequence,
    alexnet_like,
    exact,
    images,
    made,
    stored,
    tokens,
)  # fmt: skip


def hows(act: object, *x: Tensor) -> set[str]:
    return {row.how for row in act.plan(*x).rows}


def test_parameters_are_never_packed() -> None:
    """Linear saves weight.t(), a view; autocast saves a copy in another dtype."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    model[0].weight.data.clamp_(0, 1).round_()  # looks like a mask
    for frozen in (False, True):
        model[0].requires_grad_(not frozen)
        for dtype in (torch.float32, torch.bfloat16):
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=dtype != torch.float32),
                tt.activations(model, least=0) as act,
            ):
                plan = act.plan(torch.rand(8, 64))
                assert not [row for row in plan.rows if row.shape == (64, 64) and row.how != "keep"]


def test_a_tensor_that_is_alive_elsewhere_is_kept() -> None:
    kept: list[Tensor] = []

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.conv(x))
        kept.append(y)
        return F.max_pool2d(y, 2)

    model = Sequence(call, conv=nn.Conv2d(3, 4, 3))
    with exact(model, images()) as act:
        assert stored(act.plan(images()))["relu", "result"] == {"keep"}
    model.call = lambda m, x: F.max_pool2d(F.relu(m.conv(x)), 2)
    with exact(model, images()) as act:
        assert stored(act.plan(images()))["relu", "result"] == {"1 bit"}


def in_place(m: nn.Module, x: Tensor) -> Tensor:
    y = F.relu(m.conv(x))
    z = m.last(y)
    y.add_(1)
    return z


def test_in_place_changes_raise_the_error_of_autograd() -> None:
    maker = re.compile(r"which is output 0 of \w+")
    model = Sequence(in_place, conv=nn.Conv2d(3, 4, 3), last=nn.Conv2d(4, 2, 1))
    with pytest.raises(RuntimeError) as plain:
        model(images()).sum().backward()
    for least in (0, 1 << 30):
        with tt.activations(model, least=least), pytest.raises(RuntimeError) as wrapped:
            model(images()).sum().backward()
        # Which node made the tensor later is not known to us.
        assert maker.sub("", str(wrapped.value)) == maker.sub("", str(plain.value))


def test_in_place_changes_after_forward_are_seen() -> None:
    model = Sequence(lambda m, x: F.relu(m.conv(x)), conv=nn.Conv2d(3, 4, 3))
    with tt.activations(model, least=0):
        y = model(images())
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_changes_out_of_autograds_sight_are_not_recomputed() -> None:
    """The graph says gelu, but the values are others."""

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.gelu(m.a(x))
        if m.change:
            with torch.no_grad():
                y.mul_(2)
        return m.b(y)

    model = Sequence(call, a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    x = torch.rand(4, 8)
    for change, how in ((False, "recompute"), (True, "keep"), (False, "recompute")):
        model.change = change
        with exact(model, x) as act:
            assert how in stored(act.plan(x))["addmm", "mat1"]
            assert change == ("recompute" not in hows(act, x))


def test_operators_and_roles_are_known() -> None:
    with tt.activations(made(alexnet_like), least=0) as act:
        rows = act.plan(images()).rows
    assert {(row.module, row.op, row.role) for row in rows} >= {
        ("1", "relu", "result"),
        ("2", "max_pool2d_with_indices", "self"),
        ("2", "max_pool2d_with_indices", "result1"),
        ("3", "convolution", "input"),
        ("8", "addmm", "mat1"),
    }
    assert all(row.op for row in rows)


def test_views_share_one_storage() -> None:
    """q, k and v look into one tensor: neither stored three times nor taken for each other."""
    with exact(nn.Sequential(Block(16), Block(16)), torch.rand(2, 5, 16)) as act:
        plan = act.plan(torch.rand(2, 5, 16))
        attention = [
            row
            for row in plan.rows
            if row.op.startswith("scaled_dot") and row.role in ("query", "key", "value")
        ]
        assert len(attention) == 6
        assert len({row.storage for row in attention}) == 2
        assert sum(row.before for row in attention) == 2 * 4 * 2 * 5 * 3 * 16

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.a(x))
        return (y.t() @ y)[:, :3] * y.chunk(2)[0].sum()

    with exact(Sequence(call, a=nn.Linear(8, 8)), torch.rand(8, 8)):
        pass


def test_an_address_that_is_used_again_is_another_tensor() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        for conv in m.convs:
            x = F.relu(conv(x))
            F.max_pool2d(x, 2)  # saved, and freed at once
            x = F.avg_pool2d(x, 2, 1)
        return x

    model = Sequence(call, convs=nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(8)))
    with exact(model, images()):
        pass


def test_an_object_of_python_that_is_made_anew_is_another_tensor() -> None:
    """What is packed lets go of its tensor, and Python gives its identity to the next one."""
    seen: list[int] = []

    def call(m: nn.Module, x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for layer in m.layers:
            y = F.relu(layer(x))
            seen.append(id(y))
            total = total + y.sum()
            del y
        return total

    model = Sequence(call, layers=nn.ModuleList(nn.Linear(16, 16) for _ in range(12)))
    with exact(model, torch.randn(8, 16)) as act:
        rows = [row for row in act.plan(torch.randn(8, 16)).rows if row.op == "relu"]
        assert len({row.storage for row in rows}) == len(rows) == 12
        assert {row.before for row in rows} == {8 * 16 * 4}
        assert "1 bit" in {row.how for row in rows}
    assert len(set(seen)) < len(seen)


def test_two_objects_of_python_may_be_one_tensor() -> None:
    """Each time that a node is asked, what it saved is a new object, as is every alias."""

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = m.a(x)
        one, other = y.sin(), y.view_as(y).cos()
        assert one.grad_fn._saved_self is not other.grad_fn._saved_self
        return one + other

    with exact(Sequence(call, a=nn.Linear(16, 16)), torch.randn(8, 16)) as act:
        rows = [row for row in act.plan(torch.randn(8, 16)).rows if row.op in ("sin", "cos")]
        assert len(rows) == 2 and len({row.storage for row in rows}) == 1
        assert sum(row.before for row in rows) == 8 * 16 * 4


def test_expanded_and_strided_tensors() -> None:
    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.a(x))
        wide = F.leaky_relu(y[:, :, None].expand(-1, -1, 6)) * y[:, None, :6].expand(-1, 8, -1)
        return F.relu(wide[:, ::2, 1:].transpose(0, 1)).sum() + F.relu6(y.t()[::3]).sum()

    with exact(Sequence(call, a=nn.Linear(4, 8)), torch.randn(5, 4)):
        pass


def test_strides_come_back() -> None:
    seen: list[tuple[int, ...]] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.saved_tensors[0].stride())
            return g, None

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.gelu(m.a(x))
        return Look.apply(m.b(y), y).sum()

    model = Sequence(call, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 1)).to(
        memory_format=torch.channels_last
    )
    x = images().to(memory_format=torch.channels_last)
    with exact(model, x) as act:
        assert "recompute" in hows(act, x)
    assert set(seen) == {F.gelu(model.a(x)).stride()}


def test_random_state_and_small_tensors_are_kept() -> None:
    x = torch.rand(4, 6, 32)
    with tt.activations(nn.Sequential(Block(32))) as act:
        assert hows(act, x) == {"keep"}  # all below 64 KiB
    with exact(nn.Sequential(Block(32)), x) as act:
        kept = stored(act.plan(x))
        assert (
            kept["native_layer_norm", "result1"] == kept["native_layer_norm", "result2"] == {"keep"}
        )


def test_softmax_is_kept() -> None:
    with exact(
        nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 8)), torch.rand(4, 8)
    ) as act:
        assert stored(act.plan(torch.rand(4, 8)))["softmax", "result"] == {"keep"}


class Tagged(torch.Tensor):
    """A subclass that stays one through operators."""


def test_subclasses_pass_untouched() -> None:
    classes: list[type] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            classes.append(type(ctx.saved_tensors[0]))
            return g, None

    tagged = torch.rand(4, 8).as_subclass(Tagged)
    model = Sequence(lambda m, x: Look.apply(m.a(x), tagged), a=nn.Linear(8, 8))
    model(torch.rand(4, 8)).sum().backward()
    with tt.activations(model, least=0):
        model(torch.rand(4, 8)).sum().backward()
    assert classes[0] is classes[1]
    with exact(
        Sequence(
            lambda m, x: F.relu(m.a(x.as_subclass(Tagged))).as_subclass(Tensor), a=nn.Linear(8, 8)
        ),
        torch.rand(4, 8),
    ):
        pass


def test_what_is_unpacked_is_freed() -> None:
    """Backward holds no more than one or two unpacked tensors."""
    with tt.activations(
        nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(64, 64), nn.GELU()))), least=0
    ) as act:
        plan = act.plan(torch.rand(64, 64))
    one = 64 * 64 * 4
    assert plan.after <= 13 * one
    assert plan.peak <= plan.after + 3 * one


def test_tokens_and_embeddings() -> None:
    make, _ = NETWORKS["gpt"]
    with exact(made(make), tokens()) as act:
        found = stored(act.plan(tokens()))
        assert found["gelu", "self"] == {"keep"}
        assert "recompute" in found["addmm", "mat1"]


def test_storages_of_several_streams_are_kept(monkeypatch) -> None:
    """Packing in a stream what another one makes or reads would be a race."""
    from tuckfold.torch._activations import _run

    now = [0]
    monkeypatch.setattr(_run, "stream_of", lambda device: now[0])

    def call(m: nn.Module, x: Tensor) -> Tensor:
        y = F.relu(m.a(x))
        now[0] = m.other
        z = F.max_pool2d(y, 2)
        now[0] = 0
        return m.b(F.gelu(z))

    model = Sequence(call, a=nn.Conv2d(3, 4, 3), b=nn.Conv2d(4, 4, 3))
    for other, how in ((0, "1 bit"), (7, "keep")):
        model.other = other
        with exact(model, images()) as act:
            assert stored(act.plan(images()))["relu", "result"] == {how}


def test_forward_mode_has_no_problems() -> None:
    """Tangents that are zero have no memory to look at."""
    model = made(lambda: nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 2)))
    x, tangent = torch.rand(64, 32), torch.rand(64, 32)
    wanted = torch.func.jvp(model, (x,), (tangent,))
    with tt.activations(model, least=0) as act:
        for _ in range(4):
            got = torch.func.jvp(model, (x,), (tangent,))
            assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        assert act.problems == []


def test_what_a_model_changes_is_no_problem_of_ours(caplog) -> None:
    """The input of an operator that is recomputed, changed after it: backward says so, and nothing else."""

    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.a(x)
            b = nn.functional.gelu(a)
            a.mul_(2)
            return self.b(b)

    model = Changing()
    act = tt.wrap(model, least=0)
    for _ in range(6):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            model(torch.randn(2, 3, 16, 16)).sum().backward()
    assert act.problems == [] and "storing it failed" not in caplog.text


def test_no_tensor_is_copied_to_be_packed() -> None:
    """Strided memory is packed as it lies: a copy would be alive beside the tensor, at the peak."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU6(),
        nn.AvgPool2d(2),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    x = images().to(memory_format=torch.channels_last)
    copies = ("clone", "contiguous", "copy_", "_to_copy")

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.bytes = 0

        def __torch_dispatch__(self, call, types, arguments=(), keywords=None):
            out = call(*arguments, **(keywords or {}))
            if call.overloadpacket.__name__ in copies and isinstance(out, Tensor):
                self.bytes += out.nbytes if out.is_floating_point() else 0
            return out

    def copied() -> int:
        with Count() as count:
            model(x)
        return count.bytes

    plain = copied()
    with tt.activations(model, least=0) as act:
        assert copied() == plain
        assert hows(act, x) >= {"1 bit", "2 bits", "pool index", "nothing"}
