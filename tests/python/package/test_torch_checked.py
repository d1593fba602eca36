"""pack_checked and unpack_checked: as pack and unpack, and what these would wait for or raise as a tensor."""

import pytest
import torch

import tuckfold
import tuckfold.torch as tft


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("mask", torch.tensor([0.0, 1.0, 1.0] * 7)),
        ("bits", torch.tensor([3, 9, 4] * 50, dtype=torch.int64)),
        ("pool_index(width=8)", torch.tensor([[0, 11, 5, 14], [16, 27, 21, 30]])),
        ("bounded(abs=0.01)", torch.linspace(0, 1, 4096).reshape(64, 64)),
        ("block_quant(bits=4, round=stochastic)", torch.randn(5, 300, dtype=torch.bfloat16)),
        ("positive", torch.empty(0, 3)),
    ],
)
def test_it_has_the_bytes_of_pack(spec, values):
    packed, size = tft.pack_checked(values, spec, seed=3)
    assert size.dtype == torch.int64 and size.shape == (1,)
    assert torch.equal(packed[: size.item()], tft.pack(values, spec, seed=3))


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("mask", torch.tensor([0.0, 1.0, 0.5])),
        ("bytes_of", torch.tensor([float("nan")])),
        ("pool_index(width=8)", torch.tensor([[0, 11, 5, 14], [34, 18, 37, 38 + 8]])),
    ],
)
def test_refused_values_are_an_answer(spec, values):
    with pytest.raises(ValueError):
        tft.pack(values, spec)
    assert tft.pack_checked(values, spec)[1].item() == -1


def test_all_but_the_values_is_still_an_error():
    with pytest.raises(ValueError, match="unknown codec"):
        tft.pack_checked(torch.ones(3), "nonsense")
    with pytest.raises(ValueError, match="i64 and i32"):
        tft.pack_checked(torch.ones(3, 3), "pool_index(width=3)")


def test_it_compiles_in_one_graph():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def fold(x):
        packed, size = tft.pack_checked(x, "mask")
        return packed + 0, size + 0

    packed, size = fold(torch.tensor([0.0, 1.0] * 12))
    assert (packed.tolist(), size.tolist()) == ([170] * 3, [3])


@pytest.mark.parametrize("spec", ["bounded(abs=0.01)", "bounded(rel=1e-3)", "block_quant(bits=4)"])
def test_it_has_the_values_of_unpack(spec):
    x = torch.randn(50, 70, dtype=torch.bfloat16)
    packed = tft.pack(x, spec)
    back, verdict = tft.unpack_checked(packed, spec, x.shape, x.dtype)
    assert torch.equal(back, tft.unpack(packed, spec, x.shape, x.dtype))
    assert (verdict.dtype, verdict.tolist()) == (torch.int64, [0])


def test_damaged_bytes_are_an_answer():
    packed = tft.pack(torch.linspace(0, 1, 5000), "bounded(abs=0.01)")
    packed[5] ^= 255  # of a chunk's size
    with pytest.raises(tuckfold.CorruptDataError):
        tft.unpack(packed, "bounded(abs=0.01)", (5000,))
    verdict = tft.unpack_checked(packed, "bounded(abs=0.01)", (5000,), torch.float32)[1]
    assert verdict.tolist() == [-1]


def test_unpacking_compiles_in_one_graph():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def unfold(packed):
        back, verdict = tft.unpack_checked(packed, "mask", (24,), torch.float32)
        return back + 0, verdict + 0

    back, verdict = unfold(torch.tensor([170] * 3, dtype=torch.uint8))
    assert (back.tolist(), verdict.tolist()) == ([0.0, 1.0] * 12, [0])


def test_pool_indices_of_torch_come_back():
    torch.manual_seed(0)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(3, 5, 29, 30).to(memory_format=layout)
        _, index = torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
        spec = "pool_index(kernel=3, stride=2, padding=1, width=30)"
        packed = tft.Packed.pack(index, spec)
        assert packed.nbytes * 16 <= index.nbytes + 16
        assert torch.equal(packed.unpack(), index)
