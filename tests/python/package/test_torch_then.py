"""unpack with a normalization and an activation in the same call."""

import itertools

import pytest
import torch

import tuckfold
import tuckfold.torch as tft

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def reference(x, then):
    """One value after the other, in double precision with a rounding to float32 after each operation."""
    y = torch.empty_like(x)
    for place in itertools.product(*map(range, x.shape)):
        channel = place[then.dim]
        product = (x[place].double() * then.scale[channel].double()).float()
        total = (product.double() + then.shift[channel].double()).float()
        y[place] = torch.where(total <= 0, 0.0, total) if then.act == "relu" else total
    return y


def numbers(channels):
    return torch.linspace(-1.3, 2.1, channels), torch.linspace(0.7, -0.9, channels)


@pytest.mark.parametrize("order", ["logical", "storage"])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_the_definition(dtype, memory, order):
    x = torch.randn(2, 5, 4, 6).to(dtype).to(memory_format=memory)
    for act, spec in (("relu", "block_quant(bits=4, group=8)"), ("none", "raw")):
        packed = tft.Packed.pack(x, spec, order=order)
        then = tft.Then(*numbers(5), act=act)
        y = packed.unpack(then=then)
        assert y.stride() == x.stride() and y.dtype == dtype
        assert torch.equal(y, reference(packed.unpack(), then))
        out = torch.empty_like(x)
        assert packed.unpack(then=then, out=out) is out
        assert torch.equal(out, y)


@pytest.mark.parametrize("act", ["none", "relu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_is_added_before_the_activation(dtype, act):
    op = torch.ops.tuckfold.unpack_then
    x, add = torch.randn(2, 60).to(dtype), torch.randn(2, 60).to(dtype)
    spec, (scale, shift) = "block_quant(bits=4, group=8)", numbers(5)
    packed = tft.pack(x, spec)
    given = (packed, spec, [2, 60], dtype, scale, shift, 12, act)
    back = tft.unpack(packed, spec, (2, 60), dtype).reshape(2, 5, 12).double()
    product = (back * scale.double()[:, None]).float()
    total = (product.double() + shift.double()[:, None]).float()
    total = (total.double() + add.reshape(2, 5, 12).double()).float()
    want = (total.clamp_min(0) if act == "relu" else total).to(dtype).reshape(2, 60)
    assert torch.equal(op(*given, add), want)
    assert torch.equal(op(*given), op(*given, None))
    torch.library.opcheck(op.default, (*given, add))
    for wrong in (add.double(), add[:1], add.t().contiguous().t()):
        with pytest.raises(
            (ValueError, RuntimeError), match="add must have the dtype and the shape"
        ):
            op(*given, wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_of_a_relu_are_those_of_its_bits(dtype):
    op, spec = torch.ops.tuckfold.unpack_then, "block_quant(bits=4, group=8)"
    x, relu = torch.randn(8, 64).to(dtype), torch.randn(8, 64).to(dtype)
    packed, bits = tft.pack(x, spec), tft.pack(relu, "positive")
    given = (packed, spec, [8, 64], dtype, torch.ones(1), torch.zeros(1), 512, "none")
    y = op(*given, gate=bits)
    assert torch.equal(y > 0, relu > 0) and torch.equal(y == 0, relu <= 0)
    back = tft.unpack(packed, spec, (8, 64), dtype)
    both = (relu > 0) & (back > 0)
    assert both.any() and torch.equal(y[both], back[both])
    torch.library.opcheck(op.default, given, {"gate": bits})
    with pytest.raises((ValueError, RuntimeError), match="gate a bit a value"):
        op(*given, gate=bits[:-1])


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_may_be_packed(dtype, scaled):
    op, spec = torch.ops.tuckfold.unpack_then, "block_quant(bits=4, group=8)"
    x, other = torch.randn(4, 64).to(dtype), torch.randn(4, 64).to(dtype)
    packed, packed_add = tft.pack(x, spec), tft.pack(other, spec)
    given = (packed, spec, [4, 64], dtype, *numbers(4), 16, "relu")
    factors = [number.flip(0) for number in numbers(4)] if scaled else [None, None]
    add = tft.unpack(packed_add, spec, (4, 64), dtype)
    if scaled:
        add = op(packed_add, spec, [4, 64], dtype, *factors, 16, "none")
    assert torch.equal(op(*given, None, packed_add, *factors), op(*given, add))
    with pytest.raises((ValueError, RuntimeError), match="must have the bytes of packed"):
        op(*given, None, packed_add[:-1])
    with pytest.raises((ValueError, RuntimeError), match="must be given together"):
        op(*given, None, packed_add, numbers(4)[0])


@pytest.mark.parametrize(("shape", "dim"), [((3, 7), 1), ((3, 7), -2), ((6,), 0), ((1, 1, 5), 1)])
def test_channels_may_be_any_axis(shape, dim):
    x = torch.randn(shape)
    then = tft.Then(*numbers(shape[dim]), act="relu", dim=dim)
    packed = tft.pack(x, "raw")
    y = tft.unpack(packed, "raw", shape, torch.float32, then=then)
    assert torch.equal(y, reference(x, tft.Then(then.scale, then.shift, "relu", dim % len(shape))))


def test_a_transposed_tensor_keeps_its_strides():
    x = torch.randn(4, 6, 3).transpose(0, 2)
    then = tft.Then(*numbers(6), act="relu")
    for order in ("logical", "storage"):
        y = tft.Packed.pack(x, "raw", order=order).unpack(then=then)
        assert y.stride() == x.stride()
        assert torch.equal(y, reference(x, then))


def test_batch_normalization_and_relu_come_back_from_what_was_before_them():
    norm = torch.nn.BatchNorm2d(8).eval()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.uniform_(-1, 1)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(3, 8, 5, 5).to(memory_format=torch.channels_last)
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    then = tft.Then(scale, norm.bias - norm.running_mean * scale, act="relu")
    y = tft.Packed.pack(x, "raw", order="storage").unpack(then=then)
    assert not y.requires_grad
    torch.testing.assert_close(y, norm(x).relu().detach())


def test_it_compiles():
    x, then = torch.randn(2, 4, 8), tft.Then(*numbers(4), act="relu")
    packed = tft.pack(x, "block_quant(bits=4, group=8)")

    def unpack(packed, scale, shift):
        return torch.ops.tuckfold.unpack_then(
            packed,
            "block_quant(bits=4, group=8)",
            [2, 4, 8],
            torch.float32,
            scale,
            shift,
            8,
            "relu",
        )

    wanted = tft.unpack(packed, "block_quant(bits=4, group=8)", x.shape, then=then)
    compiled = torch.compile(unpack, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(packed, then.scale, then.shift), wanted)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dim": 3}, "a tensor of 3 axes has no axis 3"),
        ({"scale": torch.ones(5)}, "scale must have one axis of 4 numbers"),
        ({"shift": torch.ones(4, 1)}, "shift must have one axis of 4 numbers"),
    ],
)
def test_what_does_not_fit_is_refused(change, text):
    packed = tft.pack(torch.randn(2, 4, 8), "raw")
    arguments = {"scale": torch.ones(4), "shift": torch.ones(4)} | change
    with pytest.raises(ValueError, match=text):
        tft.unpack(packed, "raw", (2, 4, 8), torch.float32, then=tft.Then(**arguments))


def test_damaged_bytes_and_integers_are_refused():
    then = tft.Then(torch.ones(4), torch.ones(4))
    packed = tft.pack(torch.randn(2, 4, 8), "raw")
    with pytest.raises(tuckfold.CorruptDataError):
        tft.unpack(packed[:-1], "raw", (2, 4, 8), torch.float32, then=then)
    with pytest.raises(ValueError, match="must be f32, f16 or bf16, got i32"):
        tft.unpack(packed, "raw", (2, 4, 8), torch.int32, then=then)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"act": "gelu"}, ValueError, "act must be none or relu, got gelu"),
        ({"scale": torch.ones(4) * 1j}, TypeError, "scale must be a tensor of real numbers, got torch.complex64"),
        ({"shift": [1.0] * 4}, TypeError, "shift must be a tensor of real numbers, got list"),
    ],
)  # fmt: skip
def test_what_no_tensor_could_use_is_refused_at_once(change, error, text):
    with pytest.raises(error, match=text):
        tft.Then(**{"scale": torch.ones(4), "shift": torch.ones(4)} | change)


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 4, 0), (2, 0, 8), (0,)])
@pytest.mark.parametrize("order", ["logical", "storage"])
def test_empty_tensors_come_back(shape, order):
    x = torch.empty(shape)
    dim = 0 if len(shape) == 1 else 1
    then = tft.Then(*numbers(shape[dim]), act="relu", dim=dim)
    assert tft.Packed.pack(x, "raw", order=order).unpack(then=then).shape == shape
    packed = tft.pack(x, "raw")
    assert tft.unpack(packed, "raw", shape, torch.float32, then=then).shape == shape


def test_out_is_filled_by_both_and_must_have_the_shape():
    x, then = torch.randn(2, 4, 8), tft.Then(*numbers(4), act="relu")
    packed = tft.Packed.pack(x, "raw")
    wanted = packed.unpack(then=then)
    out = torch.empty(4, 2, 8).transpose(0, 1)
    assert tft.unpack(packed.bytes, "raw", out=out, then=then) is out
    assert torch.equal(out, wanted)
    for order in ("logical", "storage"):
        for following in (None, then):
            with pytest.raises(ValueError, match=r"out has shape \(3, 2, 4, 8\), not \(2, 4, 8\)"):
                tft.Packed.pack(x, "raw", order=order).unpack(
                    out=torch.empty(3, 2, 4, 8), then=following
                )


@pytest.mark.parametrize(
    "spec", ["block_quant(bits=4, group=256)", "block_quant(bits=3, group=64)", "raw"]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_unpack_gelu_is_near_the_definition(dtype, spec):
    x = (torch.randn(5, 999) * 3).to(dtype).flatten()
    packed = tft.pack(x, spec)
    y = torch.ops.tuckfold.unpack_gelu(packed, spec, x.shape, dtype)
    back = tft.unpack(packed, spec, x.shape, dtype=dtype).double()
    wanted = torch.nn.functional.gelu(back)
    digits = max(torch.finfo(dtype).eps, 3e-7)
    assert bool(((y.double() - wanted).abs() <= digits * back.abs().clamp(1)).all())


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_unpack_rows_has_the_bits_of_both_steps(dtype, to):
    spec = "block_quant(bits=4, group=64)"
    x = torch.randn(6 * 40).to(dtype)
    packed = tft.pack(x, spec)
    factors = [torch.randn(6), torch.rand(6), torch.randn(40), torch.randn(40)]
    wanted = torch.empty(240, dtype=to)
    back = tft.unpack(packed, spec, x.shape, dtype=dtype)
    torch.ops.tuckfold.normalize_rows_into(back, factors, wanted)
    assert torch.equal(torch.ops.tuckfold.unpack_rows(packed, spec, [240], dtype, factors, to), wanted)  # fmt: skip
    with pytest.raises(Exception, match="for each row"):
        torch.ops.tuckfold.unpack_rows(
            packed, spec, [240], dtype, [*factors[:3], torch.randn(39)], to
        )


def test_both_have_shapes_without_values():
    with torch._subclasses.FakeTensorMode():
        packed = torch.empty(240 * 4, dtype=torch.uint8)
        numbers_of = [torch.empty(6), torch.empty(6), torch.empty(40), torch.empty(40)]
        rows = torch.ops.tuckfold.unpack_rows(packed, "raw", [240], torch.float32, numbers_of, torch.bfloat16)  # fmt: skip
        gelu = torch.ops.tuckfold.unpack_gelu(packed, "raw", [240], torch.float32)
    assert rows.dtype == torch.bfloat16 and rows.shape == gelu.shape == (240,)
