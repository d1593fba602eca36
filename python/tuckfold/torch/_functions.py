"""pack and unpack, with the exceptions that the rest of the package raises."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import tuckfold
from tuckfold._codec import Layout, check_dtype_is_known
from tuckfold._library import seed_of
from tuckfold._spec import CodecSpec, text_of
from tuckfold.torch import _library as ops
from tuckfold.torch._then import Then, rows_of_channel

_pack = torch.ops.tuckfold.pack.default
_pack_seeded = torch.ops.tuckfold.pack_seeded.default
_pack_checked = torch.ops.tuckfold.pack_checked.default
_unpack_checked = torch.ops.tuckfold.unpack_checked.default
_unpack = torch.ops.tuckfold.unpack.default
_unpack_into = torch.ops.tuckfold.unpack_into.default
_pack_many = torch.ops.tuckfold.pack_many.default
_unpack_many_into = torch.ops.tuckfold.unpack_many_into.default


# Dynamo need not follow it into the library: the answer depends on the text alone.
_check_dtype_is_known = torch.compiler.assume_constant_result(check_dtype_is_known)


def _signed(seed: int) -> int:
    """Operators take 64 bits with a sign."""
    if torch.compiler.is_compiling():  # where a range check would compile anew for every seed
        return seed
    seed = seed_of(seed)
    return seed if seed < 2**63 else seed - 2**64


def layout(spec: str | CodecSpec, dtype: torch.dtype, shape: Sequence[int]) -> Layout:
    """What :func:`tuckfold.layout` says, for a dtype of torch.

    >>> tuckfold.torch.layout("block_quant(bits=4)", torch.bfloat16, (64, 256)).max_bytes
    8448
    """
    return ops.layout_of("layout", text_of(spec), dtype, shape)


def takes(spec: str | CodecSpec, dtype: torch.dtype, shape: Sequence[int]) -> bool:
    """What :func:`tuckfold.takes` says, for a dtype of torch; no codec takes complex numbers or 8-bit floats.

    >>> tuckfold.torch.takes("dct_quant(rate=4)", torch.bfloat16, (1024,))
    False
    """
    ops.check_dtype("takes", dtype)
    if dtype not in ops.DTYPES.values():
        return False
    return tuckfold.takes(spec, ops.dtype_name("takes", dtype), shape)


def pack(x: Tensor, spec: str | CodecSpec, *, seed: int | Tensor = 0) -> Tensor:
    """Folds a tensor into fewer bytes: ``torch.ops.tuckfold.pack``.

    The bytes are those of :func:`tuckfold.pack`, and follow from spec, values and seed alone. Where
    the codec's size is fixed, so is the shape of the result, and ``torch.compile`` knows it.

    On a GPU kernels follow what is in torch's current stream, and the memory is torch's. Only codecs
    whose size varies, and exact ones, which may refuse values, wait for them.

    Args:
        x: a tensor on the CPU or a CUDA device, of any strides; channels_last is read in place.
        spec: the codec, or its text.
        seed: for stochastic rounding, -2**63 to 2**64 - 1; give each tensor its own. A tensor of one int64 on the
            device of x is read when kernels run, so that a captured CUDA graph or a compiled
            function serves every seed.

    Returns:
        A uint8 tensor of one axis, on the same device. Gradients end here.

    Raises:
        TypeError: x is no tensor; :func:`tuckfold.pack` takes numpy arrays.
        ValueError: the tensor does not fit the codec, or is sparse.
        NotImplementedError: the codec does not run on its device, or the build has no CUDA.

    >>> tuckfold.torch.pack(torch.zeros(8, 32, 32), "dct_chop(keep=2)").shape
    torch.Size([2048])
    """
    if isinstance(seed, Tensor):
        return ops.call(_pack_seeded, x, text_of(spec), seed)
    return ops.call(_pack, x, text_of(spec), _signed(seed))


def pack_checked(x: Tensor, spec: str | CodecSpec, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Packs as :func:`pack` does, and leaves what that waits for on the device.

    Exact codecs may refuse values, and the size of some follows from the values: on a GPU :func:`pack`
    waits for both. This does not, so a CUDA graph can record it.

    Args:
        x: as for :func:`pack`.
        spec: the codec, or its text.
        seed: for stochastic rounding.

    Returns:
        The packed bytes, in room for the worst case, and one int64 on the same device: how many there
        are, or -1 where the codec refuses the values and the bytes mean nothing.

    >>> packed, size = tuckfold.torch.pack_checked(torch.tensor([0.0, 1.0, 1.0]), "mask")
    >>> packed[:size], size.item()
    (tensor([6], dtype=torch.uint8), 1)
    >>> tuckfold.torch.pack_checked(torch.tensor([0.0, 1.0, 0.5]), "mask")[1].item()
    -1
    """
    return ops.call(_pack_checked, x, text_of(spec), _signed(seed))


def unpack(
    packed: Tensor,
    spec: str | CodecSpec,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    *,
    out: Tensor | None = None,
    then: Then | None = None,
) -> Tensor:
    """Unfolds what pack made: ``torch.ops.tuckfold.unpack``.

    Args:
        packed: the bytes; on a CUDA device from a multiple of 16 bytes on, so clone() a slice.
        spec: the codec that packed them.
        shape: of the tensor that was packed; not needed with out.
        dtype: of the tensor that was packed; float32 unless given, where the codec takes no
            integers. Codecs that do, such as ``raw``, ``bits`` and ``zstd``, need it.
        out: a tensor to fill, of any strides, instead of a new one. Autograd sees that it changes, as
            with ``copy_``; one that requires grad is refused.
        then: a normalization and an activation of what is unpacked, in the same kernel on a GPU if the
            codec is ``block_quant`` of 2, 4 or 8 bits: ``torch.ops.tuckfold.unpack_then``. For float32,
            float16 and bfloat16.

    Returns:
        The tensor, on the device of the bytes, or out.

    Raises:
        tuckfold.CorruptDataError: the bytes are not of that codec, shape and dtype.

    >>> x = torch.rand(2, 3, 32, 32).to(memory_format=torch.channels_last)
    >>> packed = tuckfold.torch.pack(x, "raw")
    >>> bool((tuckfold.torch.unpack(packed, "raw", out=torch.empty_like(x)) == x).all())
    True
    """
    if shape is None and out is None:
        raise ValueError("[unpack] needs the shape of the tensor, or out= to fill")
    if out is not None and not isinstance(out, Tensor):
        ops.check_tensor("unpack", "out", out)
    if then is not None and not isinstance(packed, Tensor):
        ops.check_tensor("unpack", "packed", packed)
    if out is not None and shape is not None and tuple(shape) != tuple(out.shape):
        raise ValueError(f"[unpack] out has shape {tuple(out.shape)}, not {tuple(shape)}")
    if out is not None and then is not None:
        return out.copy_(unpack(packed, spec, out.shape, out.dtype, then=then))
    if out is None:
        if dtype is None:
            _check_dtype_is_known(text_of(spec))
            dtype = torch.float32
        ops.check_dtype("unpack", dtype)
        if then is not None:
            inner = rows_of_channel(shape, then.axis(shape))
            return then.unpack(packed, text_of(spec), shape, dtype, inner)
        return ops.call(_unpack, packed, text_of(spec), shape, dtype)
    ops.call(_unpack_into, packed, text_of(spec), out)
    return out


def unpack_checked(
    packed: Tensor, spec: str | CodecSpec, shape: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Unpacks as :func:`unpack` does, and leaves what that waits for on the device.

    Whether the bytes of ``bounded`` contradict themselves is known only after they are read: on a GPU
    :func:`unpack` waits for that. This does not, so that other work may follow at once.

    Args:
        packed: as for :func:`unpack`.
        spec: the codec that packed them.
        shape: of the tensor that was packed.
        dtype: of the tensor that was packed.

    Returns:
        The tensor, and one int64 on the same device: 0, or -1 where the bytes are damaged or of another
        tensor; values then mean nothing.

    Raises:
        tuckfold.CorruptDataError: already the number of bytes does not fit.

    >>> x = torch.linspace(0, 1, 5000)
    >>> packed = tuckfold.torch.pack(x, "bounded(abs=0.01)")
    >>> y, verdict = tuckfold.torch.unpack_checked(packed, "bounded(abs=0.01)", x.shape, x.dtype)
    >>> bool((y - x).abs().max() <= 0.01), verdict.item()
    (True, 0)
    """
    ops.check_dtype("unpack_checked", dtype)
    return ops.call(_unpack_checked, packed, text_of(spec), shape, dtype)


def pack_many(tensors: Sequence[Tensor], spec: str | CodecSpec, *, seed: int = 0) -> list[Tensor]:
    """Packs many tensors with one codec: ``torch.ops.tuckfold.pack_many``.

    The bytes are those of :func:`pack` for each, the i-th with ``seed + i``. On a GPU, dct_chop and
    dct_quant pack many tensors in one launch, where one each would take longer than the work, and
    block_quant tensors of one dtype.

    Args:
        tensors: on one device, of any shapes, strides and dtypes that the codec takes.
        spec: the codec, or its text.
        seed: for stochastic rounding.

    Returns:
        A uint8 tensor of one axis for each.

    Raises:
        ValueError: one of them does not fit the codec; then none is packed.

    >>> grads = [torch.zeros(8, 8), torch.zeros(64, 16)]
    >>> [len(packed) for packed in tuckfold.torch.pack_many(grads, "dct_chop(keep=4)")]
    [64, 1024]
    """
    xs = list(tensors)  # none have no device to run on
    return ops.call(_pack_many, xs, text_of(spec), _signed(seed)) if xs else []


def unpack_many(
    packed: Sequence[Tensor], spec: str | CodecSpec, *, out: Sequence[Tensor]
) -> list[Tensor]:
    """Unpacks what pack_many made: ``torch.ops.tuckfold.unpack_many_into``.

    Args:
        packed: the bytes of each, as for :func:`unpack`.
        spec: the codec that packed them.
        out: tensors to fill, of the shapes and dtypes that were packed, of any strides; none may share
            memory with another or with the bytes.

    Returns:
        The tensors of out.

    Raises:
        tuckfold.CorruptDataError: bytes are not of that codec, shape and dtype; then no tensor is
            filled.

    >>> x = [torch.rand(8, 8), torch.rand(64, 16)]
    >>> packed = tuckfold.torch.pack_many(x, "raw")
    >>> back = tuckfold.torch.unpack_many(packed, "raw", out=[torch.empty_like(t) for t in x])
    >>> all(torch.equal(a, b) for a, b in zip(x, back))
    True
    """
    pieces, outs = list(packed), list(out)
    if pieces or outs:
        ops.call(_unpack_many_into, pieces, text_of(spec), outs)
    return outs
