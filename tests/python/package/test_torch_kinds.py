"""Arguments of other kinds than tensors in plain memory: TypeError or ValueError that say what to do."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tuckfold.torch as tt  # noqa: E402

X = torch.arange(64.0).reshape(8, 8)
PACKED = tt.pack(X, "raw")
NO_TENSORS = [[1, 2], np.ones((8, 8), np.float32), None, "ab", b"ab", 3]
PACK = {
    "pack": lambda x: tt.pack(x, "raw"),
    "pack seeded": lambda x: tt.pack(x, "raw", seed=torch.tensor(1)),
    "pack_checked": lambda x: tt.pack_checked(x, "raw"),
    "pack_many": lambda x: tt.pack_many([X, x], "raw"),
    "Packed": lambda x: tt.Packed.pack(x, "raw"),
    "Packed storage": lambda x: tt.Packed.pack(x, "raw", order="storage"),
}
UNPACK = {
    "unpack": lambda x: tt.unpack(x, "raw", (8, 8), torch.float32),
    "unpack then": lambda x: tt.unpack(
        x, "raw", (8, 8), torch.float32, then=tt.Then(torch.ones(8), torch.ones(8))
    ),
    "unpack_checked": lambda x: tt.unpack_checked(x, "raw", (8, 8), torch.float32),
    "unpack_many": lambda x: tt.unpack_many([x], "raw", out=[torch.empty(8, 8)]),
    "unpack_many out": lambda x: tt.unpack_many([PACKED], "raw", out=[x]),
    "Packed": lambda x: tt.Packed(x, "raw", torch.float32, (8, 8)),
}
OUT = {
    "unpack": lambda x: tt.unpack(PACKED, "raw", out=x),
    "unpack shape": lambda x: tt.unpack(PACKED, "raw", (8, 8), out=x),
    "Packed": lambda x: tt.Packed.pack(X, "raw").unpack(out=x),
}


@pytest.mark.parametrize("call", PACK.values(), ids=PACK)
@pytest.mark.parametrize("x", NO_TENSORS, ids=lambda x: type(x).__name__)
def test_packing_no_tensor(call: Callable, x: object) -> None:
    kind = type(x).__name__
    with pytest.raises(TypeError, match=rf"must be a torch.Tensor, got {kind}; .*"):
        call(x)


def test_numpy_arrays_are_shown_the_way() -> None:
    for call in (tt.pack, tt.Packed.pack):
        with pytest.raises(TypeError, match="got ndarray; use tuckfold.pack for numpy arrays"):
            call(np.ones(8, np.float32), "raw")


@pytest.mark.parametrize("call", UNPACK.values(), ids=UNPACK)
@pytest.mark.parametrize("x", NO_TENSORS, ids=lambda x: type(x).__name__)
def test_unpacking_no_tensor(call: Callable, x: object) -> None:
    with pytest.raises(TypeError, match=f"must be a torch.Tensor, got {type(x).__name__}"):
        call(x)


@pytest.mark.parametrize("call", OUT.values(), ids=OUT)
@pytest.mark.parametrize(
    "x", [[1, 2], np.ones((8, 8), np.float32), 3], ids=["list", "array", "int"]
)
def test_filling_no_tensor(call: Callable, x: object) -> None:
    with pytest.raises(TypeError, match=f"out must be a torch.Tensor, got {type(x).__name__}"):
        call(x)


@pytest.mark.filterwarnings("ignore")  # torch: its sparse, nested and quantized tensors are a beta
@pytest.mark.parametrize("call", PACK.values(), ids=PACK)
def test_tensors_without_plain_memory(call: Callable) -> None:
    for x, said in [
        (X.to_sparse_csr(), r"layout sparse_csr; call to_dense\(\) first"),
        (X.to_sparse(), r"layout sparse_coo; call to_dense\(\) first"),
        (torch.nested.nested_tensor([X, X[:3]]), r"nested tensor; take the tensors of unbind\(\)"),
        (
            torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),
            r"quantized tensor; call int_repr\(\)",
        ),
    ]:
        with pytest.raises(ValueError, match=said):
            call(x)


@pytest.mark.parametrize("dtype", ["f32", 6, [1], np.float32], ids=str)
def test_dtypes_of_other_kinds(dtype: object) -> None:
    for call in (
        lambda: tt.layout("raw", dtype, (8, 8)),
        lambda: tt.takes("raw", dtype, (8, 8)),
        lambda: tt.unpack(PACKED, "raw", (8, 8), dtype),
        lambda: tt.unpack_checked(PACKED, "raw", (8, 8), dtype),
    ):
        with pytest.raises(TypeError, match="dtype must be one of torch's, such as torch.float32"):
            call()


@pytest.mark.parametrize("shape", [8, "88", torch.ones(2)], ids=lambda s: type(s).__name__)
def test_shapes_of_other_kinds(shape: object) -> None:
    for call in (
        lambda: tt.unpack(PACKED, "raw", shape, torch.float32),
        lambda: tt.unpack_checked(PACKED, "raw", shape, torch.float32),
    ):
        with pytest.raises(TypeError, match="shape must be a tuple of integers"):
            call()


def test_one_tensor_in_place_of_many() -> None:
    with pytest.raises((TypeError, ValueError)):
        tt.unpack_many(X, "raw", out=X)
