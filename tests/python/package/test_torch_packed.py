"""Packed tensors: what they know, how they travel, and that autograd sees what is written."""

import io
import pickle

import pytest

torch = pytest.importorskip("torch")
import tuckfold.torch as tt  # noqa: E402

LAYOUTS = {
    "rows": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(1, 3),
    "padded": lambda x: torch.nn.functional.pad(x, (0, 3))[..., :-3],
    "repeated": lambda x: x[:1].expand(4, -1, -1, -1),
    "empty": lambda x: x[:0],
}


def make(layout: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.linspace(-1, 1, 4 * 6 * 16 * 24).reshape(4, 6, 16, 24).sin().to(dtype)
    return LAYOUTS[layout](x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["logical", "storage"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_packed_tensor_comes_back_as_it_was(layout: str, order: str, dtype: torch.dtype) -> None:
    x = make(layout, dtype)
    packed = tt.Packed.pack(x, "raw", order=order)
    back = packed.unpack()
    assert torch.equal(back, x)
    if layout not in ("padded", "repeated"):
        assert back.stride() == x.stride()
    assert torch.equal(
        packed.unpack(out=torch.empty_like(x, memory_format=torch.contiguous_format)), x
    )
    lossy = tt.Packed.pack(x, "block_quant(bits=8)", order=order)
    assert (lossy.unpack() - x).abs().max() < 0.01 if x.numel() else True
    assert lossy.nbytes == 0 or lossy.ratio > 1.5


def test_the_storage_order_is_that_of_the_memory() -> None:
    x = make("channels_last")
    packed = tt.Packed.pack(x, "block_quant(bits=4)", order="storage")
    assert torch.equal(packed.bytes, tt.pack(x.permute(0, 2, 3, 1), "block_quant(bits=4)"))
    assert tt.Packed.pack(make("padded"), "raw", order="storage").order == "logical"


def test_packed_tensors_travel() -> None:
    packed = tt.Packed.pack(make("channels_last"), "block_quant(bits=4)", order="storage")
    assert pickle.loads(pickle.dumps(packed)) == packed
    file = io.BytesIO()
    torch.save({"x": packed}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["x"] == packed
    assert packed.to("cpu") == packed
    assert packed.device == torch.device("cpu")
    with pytest.raises(ValueError, match="order"):
        tt.Packed.pack(make("rows"), "raw", order="columns")


SPEC = "block_quant(bits=4)"


def into(out: torch.Tensor) -> None:
    tt.unpack(tt.pack(torch.rand(8, 64), SPEC), SPEC, out=out)


def many_into(out: torch.Tensor) -> None:
    tt.unpack_many([tt.pack(torch.rand(8, 64), SPEC)], SPEC, out=[out])


def op_into(out: torch.Tensor) -> None:
    torch.ops.tuckfold.unpack_into(tt.pack(torch.rand(8, 64), SPEC), SPEC, out)


@pytest.mark.parametrize("write", [into, many_into, op_into])
def test_autograd_sees_what_is_overwritten(write) -> None:
    w, saved = torch.rand(8, 64, requires_grad=True), torch.rand(8, 64)
    loss = (w * saved).sum()
    write(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("write", [into, many_into, op_into])
def test_what_needs_a_gradient_is_not_overwritten(write) -> None:
    leaf = torch.zeros(8, 64, requires_grad=True)
    for out in (leaf, leaf * 2, torch.nn.Parameter(torch.zeros(8, 64))):
        with pytest.raises(RuntimeError, match="requires grad|part of a graph"):
            write(out)
    assert not leaf.any()
    with torch.no_grad():
        write(leaf)
    assert leaf.any()
    with torch.inference_mode():
        made = torch.zeros(8, 64)
        write(made)
    with pytest.raises(RuntimeError, match="inference"):
        write(made)


def test_changing_seeds_compile_at_most_twice() -> None:
    import torch._dynamo.testing

    counter = torch._dynamo.testing.CompileCounter()
    spec = "block_quant(bits=2, round=stochastic)"

    @torch.compile(backend=counter, fullgraph=True)
    def pack(x: torch.Tensor, seed: int) -> torch.Tensor:
        return tt.pack(x, spec, seed=seed)

    x = torch.rand(64, 64)
    for seed in range(2, 30):
        assert torch.equal(pack(x, seed), tt.pack(x, spec, seed=seed))
    assert counter.frame_count <= 2  # the second takes the seed as an input


def test_a_seed_in_a_tensor_compiles_once() -> None:
    import torch._dynamo.testing

    counter = torch._dynamo.testing.CompileCounter()
    spec = "block_quant(bits=2, round=stochastic)"

    @torch.compile(backend=counter, fullgraph=True)
    def pack(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return tt.pack(x, spec, seed=seed)

    x = torch.rand(64, 64)
    for seed in range(12):
        assert torch.equal(pack(x, torch.tensor(seed)), tt.pack(x, spec, seed=seed))
    assert counter.frame_count == 1
    for wrong in (torch.tensor(1.0), torch.tensor([1, 2])):
        with pytest.raises(ValueError, match="seed"):
            tt.pack(x, spec, seed=wrong)


def test_vmap_gives_every_sample_its_own_noise() -> None:
    spec = "block_quant(bits=2, round=stochastic)"
    same = torch.rand(1, 64).expand(3, 64)
    packed = torch.vmap(lambda x: tt.pack(x, spec, seed=5))(same)
    assert torch.equal(packed, torch.stack(tt.pack_many(list(same), spec, seed=5)))
    assert not torch.equal(packed[0], packed[1])


@pytest.mark.parametrize("spec", ["dct_chop(keep=4)", "dct_quant(rate=4)", "block_quant(bits=4)"])
def test_batches_of_any_size_compile_and_export(spec: str) -> None:
    class Fold(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tt.unpack(tt.pack(x, spec), spec, x.shape) * 2

    compiled = torch.compile(Fold(), dynamic=True, fullgraph=True, backend="aot_eager")
    batch = torch.export.Dim("batch")
    exported = torch.export.export(
        Fold(), (torch.rand(4, 32, 32),), dynamic_shapes=({0: batch},)
    ).module()
    for size in (2, 3, 7):
        x = torch.rand(size, 32, 32)
        assert torch.equal(compiled(x), Fold()(x))
        assert torch.equal(exported(x), Fold()(x))
