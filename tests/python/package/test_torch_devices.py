"""What can be said of other devices where there are none: fake tensors, and the codecs' own word."""

import pytest

import tuckfold

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tuckfold.torch as tft  # noqa: E402


def test_fake_kernels_stay_on_the_device_of_their_tensors() -> None:
    codec = tft.Codec("dct_chop(keep=4)")
    with FakeTensorMode():
        x = torch.empty(4, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
        packed = tft.pack(x, "block_quant(bits=8)")
        assert packed.device.type == "cuda"
        assert packed.shape == (tuckfold.layout("block_quant(bits=8)", "bf16", x.shape).max_bytes,)
        back = tft.unpack(packed, "block_quant(bits=8)", x.shape, x.dtype)
        assert (back.device.type, back.dtype) == ("cuda", x.dtype)
        assert tft.unpack(packed, "block_quant(bits=8)", out=back) is back
        coefs = torch.ops.tuckfold.compress(x, "dct_chop(keep=4)")
        assert (coefs.device.type, tuple(coefs.shape)) == ("cuda", (4, 3, 16, 16))
        again = torch.ops.tuckfold.decompress(coefs, "dct_chop(keep=4)", list(x.shape), x.dtype)
        assert again.device.type == "cuda"
    assert codec.spec == tuckfold.CodecSpec("dct_chop(keep=4)")


def test_operators_are_there_for_both_devices() -> None:
    for name in ("pack", "unpack", "unpack_into", "compress", "decompress"):
        for key in ("CPU", "CUDA"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"tuckfold::{name}", key)


def test_a_codec_runs_on_cuda_only_where_the_build_does() -> None:
    on_cuda = [codec.name for codec in tuckfold.list_codecs() if codec.cuda]
    assert bool(on_cuda) == tuckfold.has_cuda()
    assert tuckfold.cuda_devices() == (torch.cuda.device_count() if tuckfold.has_cuda() else 0)
