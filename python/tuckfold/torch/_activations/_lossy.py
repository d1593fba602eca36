"""Saved tensors as a codec stores them: which may be, by which codec, and the way back.

A table names the operators whose backward is smooth in what they saved; the values of all others are
kept. Means, deviations and sums of exponentials are in no line of it, so they stay exact.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tuckfold._spec import list_codecs, spec_of
from tuckfold.torch import _library  # noqa: F401 (loads the operators)
from tuckfold.torch._activations import _forms as forms
from tuckfold.torch._activations import _gates as gates
from tuckfold.torch._activations._graph import Prober, kind
from tuckfold.torch._activations._saved import Form, Handle, Record
from tuckfold.torch._functions import layout, pack, takes, unpack
from tuckfold.torch._memory import flat, is_dense

_pack = torch.ops.tuckfold.pack.default
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Groups of values in any order; others get the tensor's axes.
_OF_ROWS = {"block_quant", "nonzero_quant", "bounded"}
_KEEP_ZEROS = {"block_quant", "nonzero_quant"}  # where a group has no negative values
# Of the bytes that a pass saves, those that no codec stores: the last ones, which backward reads first. They are
# needed in full before others are, so that packing them would take time, and hardly lower the peak.
LATE = {"cuda": 1 / 16, "cpu": 0.0}
_MAKE_ZEROS = {"ReluBackward0", "MaxPool2DWithIndicesBackward0", "NativeDropoutBackward0"}
VALUES: dict[str, tuple[str, ...]] = {
    "ConvolutionBackward0": ("input",),
    "AddmmBackward0": ("mat1", "mat2"),
    "MmBackward0": ("self", "mat2"),
    "BmmBackward0": ("self", "mat2"),
    "BaddbmmBackward0": ("batch1", "batch2"),
    "NativeBatchNormBackward0": ("input",),
    "CudnnBatchNormBackward0": ("input",),
    "NativeLayerNormBackward0": ("input",),
    "NativeGroupNormBackward0": ("input",),
    "FusedRmsNormBackward0": ("input",),
    "GeluBackward0": ("self",),
    "SiluBackward0": ("self",),
    "MishBackward0": ("self",),
    "HardswishBackward0": ("self",),
    "TanhBackward0": ("result",),
    "SigmoidBackward0": ("result",),
    "GluBackward0": ("self",),
    "MulBackward0": ("self", "other"),
    "PowBackward0": ("self",),  # squares alone
} | {
    f"ScaledDotProduct{name}AttentionBackward0": ("value", "output")
    for name in ("Flash", "Efficient", "Cudnn")
}
# Backward computes exponentials of products of these, and divides by a sum that is exact.
SCORES: dict[str, tuple[str, ...]] = {
    "SoftmaxBackward0": ("result",),
} | {
    f"ScaledDotProduct{name}AttentionBackward0": ("query", "key")
    for name in ("Flash", "Efficient", "Cudnn")
}
for _table, _roles in ((VALUES, ("value", "output")), (SCORES, ("query", "key"))):
    _table["ScaledDotProductFlashAttentionForCpuBackward0"] = _roles


def learn(node: Any, probe: Prober) -> None:
    """Notes which of a node's tensors a codec may store, and how well it must."""
    name = kind(node)
    if name == "PowBackward0" and node._saved_exponent != 2:
        return
    for grade, table in (("value", VALUES), ("score", SCORES)):
        for role in table.get(name, ()):
            handle = probe(node, f"_saved_{role}")
            if handle is not None and not (name == "MulBackward0" and _is_spread(node, handle)):
                handle.grade = grade


def _is_spread(node: Any, handle: Handle) -> bool:
    """Whether each value is a factor of many, as statistics and gates are."""
    return handle.shape.numel() < math.prod(node._input_metadata[0].shape)


@functools.lru_cache(maxsize=64)
def is_exact(codec: str) -> bool:
    exact = {codec.name for codec in list_codecs() if codec.exact}
    return all(stage.name in exact for stage in spec_of(codec).stages)


@functools.lru_cache(maxsize=64)
def error_of(codec: str) -> float:
    """The mean square of a codec's error over that of values: measured on random normal ones."""
    with _disable_current_modes(), torch.no_grad():  # those of compilers have no values
        x = torch.empty(1 << 14).normal_(generator=torch.Generator().manual_seed(1))
        if not takes(codec, x.dtype, tuple(x.shape)):
            x = x.view(1 << 7, 1 << 7)  # some need two sides
        back = unpack(pack(x, codec, seed=1), codec, x.shape)
        return float((back - x).square().mean() / x.square().mean())


@functools.lru_cache(maxsize=64)
def for_scores(codec: str) -> str:
    """The codec for what attention's scores are computed from: one of 8 bits, unless it is as good itself."""
    params = [stage.params for stage in spec_of(codec).stages]
    bits = [n for p in params if isinstance(n := p.get("bits"), (int, float))]
    if is_exact(codec) or max(bits, default=0) >= 8:
        return codec
    rounding = next((p["round"] for p in params if p.get("round")), "stochastic")
    eight = f"block_quant(bits=8, group=256, round={rounding})"
    return codec if error_of(codec) <= error_of(eight) else eight


@functools.lru_cache(maxsize=64)
def for_dense(codec: str) -> str:
    """In place of nonzero_quant, where hardly any value is 0."""
    params = spec_of(codec).stages[0].params
    return "block_quant({})".format(
        ", ".join(f"{k}={params[k]}" for k in ("bits", "group", "round"))
    )


def _has_zeros(handles: list[Handle]) -> bool:
    made = {h.origin[0] for h in handles if h.origin is not None}
    return bool(made & _MAKE_ZEROS) or any(h.need == "positive" for h in handles)


@functools.lru_cache(maxsize=64)
def _first(codec: str) -> str:
    return spec_of(codec).stages[0].name


@functools.lru_cache(maxsize=64)
def suits_graphs(codec: str) -> bool:
    """Whether it takes a row of values, and makes bytes of which the number is known before."""
    return (
        takes(codec, torch.float32, (1 << 20,)) and layout(codec, torch.float32, (1 << 20,)).fixed
    )


_takes = functools.lru_cache(maxsize=4096)(takes)


def mixed(seed: int, number: int) -> int:
    """A seed for one of many uses, from 64 bits: the finalizer of splitmix64."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


class Usual(str):
    """The codec for whatever nobody has named one for."""

    __slots__ = ()


def best_grade(handles: list[Handle]) -> str:
    """The best that any of the views needs."""
    grades = {h.grade for h in handles if h.need == "value"}
    return next((g for g in ("", "score", "sums") if g in grades), "value")


class Lossy:
    """A whole storage by a codec; every view of it that is read for its values looks into what it
    decodes to.

    Args:
        x: the storage as one row, or a tensor that fills it.
        mask: which values are above 0, where a ReLU made them and the codec would change zeros.
    """

    __slots__ = ("bytes", "gate", "label", "mask", "shape", "strides")
    whole = True
    changes = True  # values

    def __init__(self, x: Tensor, codec: str, seed: int, mask: forms.Bits | None = None) -> None:
        self.bytes, self.label, self.mask = _pack(x, codec, seed), codec, mask
        self.shape, self.strides = x.shape, x.stride()
        self.gate: forms.Bits | None = None  # the bits of all values, where a ReLU made them

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes

    def decode(self, handle: Handle) -> Tensor:
        return gates.decoded(handle, self, self.gate, lambda gate: self._unpacked(handle, gate))

    def once(self, handle: Handle) -> Tensor:
        """For a recipe: the next reader may be far."""
        base = handle.record.cache
        base = self._unpacked(handle) if base is None else base
        return base.as_strided(handle.shape, handle.strides, handle.offset)

    def _unpacked(self, handle: Handle, gate: gates.Gate | None = None) -> Tensor:
        with torch.no_grad():
            if gate is not None and is_fused(self, handle.dtype):
                length = self.shape.numel()
                return gates.unpack(self.bytes, self.label, length, handle.dtype, gate)
            out = torch.empty_strided(
                self.shape, self.strides, dtype=handle.dtype, device=handle.device
            )
            forms.unpack_into(self.bytes, self.label, out)
            if self.mask is not None:
                ones = torch.empty_like(out)
                forms.unpack_into(self.mask.bytes, "positive", flat(ones))
                out = torch.ops.aten.threshold_backward(out, ones, 0)
            return out


def is_fused(form: Lossy, dtype: torch.dtype) -> bool:
    """Whether one kernel unpacks it and does what follows."""
    return (
        form.mask is None
        and len(form.shape) == 1
        and dtype in (torch.float32, torch.float16, torch.bfloat16)
        and _is_block_quant(form.label)
    )


def _is_block_quant(codec: str) -> bool:
    return codec.startswith("block_quant(") and "|" not in codec


@functools.lru_cache(maxsize=64)
def adds_packed(codec: str, other: str) -> bool:
    """Whether one kernel unpacks and adds what these have stored."""
    return codec == other and spec_of(codec).stages[0].params["bits"] in (2, 4, 8)


def may_be(handles: list[Handle]) -> bool:
    """Whether a codec may store what these views look into."""
    values = [h for h in handles if h.need == "value"]
    return bool(values) and all(h.grade and h.dtype in _FLOATS for h in values)


def forms_of(record: Record, handles: list[Handle], codec: str, seed: int) -> list[Form] | None:
    """A form for every view of a storage, or None to keep it.

    Views that are read for less than their values get the exact form of that.
    """
    from tuckfold.torch._activations import _offload as offload
    from tuckfold.torch._activations import _store as store

    if codec == offload.CPU:
        return offload.forms_of(record, handles)
    if not may_be(handles):
        return None
    if any(h.tensor is None or h.tensor.is_conj() or h.tensor.is_neg() for h in handles):
        return None
    if len({h.dtype for h in handles}) > 1 or not _cover(record, handles):
        return None
    if any(h.is_source and h.need != "value" for h in handles):
        return None  # a recipe reads the values of what would be a mask
    grades = {h.grade for h in handles}
    if "score" in grades or ("sums" in grades and isinstance(codec, Usual)):
        codec = for_scores(codec)
    if codec.startswith("nonzero_quant") and not _has_zeros(handles):
        codec = for_dense(codec)
    x = _packable(record, handles, codec)
    if x is None:
        return None
    # Its values are 0 where the original's are, and nowhere else.
    has_gate = codec.startswith("nonzero_quant") and "|" not in codec
    others: dict[object, Form] = {}
    result: list[Form | None] = []
    for h in handles:
        if h.need == "value" or (has_gate and h.need == "positive"):
            result.append(None)
            continue
        key = (h.need, h.limits, h.shape, h.strides, h.offset)
        form = others.get(key) or store.form_of(h)
        if form is None:
            return None
        others[key] = form
        result.append(form)
    mask = None
    if _first(codec) not in _KEEP_ZEROS and x.dim() > 1:
        bits = [o for h, o in zip(handles, result, strict=True) if h.need == "positive"]
        if bits and isinstance(bits[0], forms.Bits) and bits[0].bytes.device == x.device:
            mask = bits[0]
    lossy = Lossy(x, codec, seed, mask)
    if lossy.nbytes + sum(f.nbytes for f in others.values()) >= record.nbytes:
        return None
    found: list[Form] = [lossy if form is None else form for form in result]
    lossy.gate = gates.of(record, handles, found)
    return found


def row(record: Record, handles: list[Handle], codec: str, seed: int) -> Lossy:
    """What `forms_of` makes where all views are read for their values, and the codec gets a row."""
    x = handles[0].tensor
    assert x is not None
    return Lossy(x.as_strided((record.nbytes // x.dtype.itemsize,), (1,), 0), codec, seed)


def is_row(forms: list[Form]) -> bool:
    first = forms[0]
    return type(first) is Lossy and len(first.shape) == 1 and all(f is first for f in forms)


def _cover(record: Record, handles: list[Handle]) -> bool:
    """Whether the views together have all values of the storage: others may not be numbers."""
    views = {(h.offset, h.shape, h.strides): h.shape.numel() * h.dtype.itemsize for h in handles}
    return sum(views.values()) >= record.nbytes


def _packable(record: Record, handles: list[Handle], codec: str) -> Tensor | None:
    """What the codec gets, or None if it takes none of it."""
    x = handles[0].tensor
    assert x is not None
    if _first(codec) not in _OF_ROWS:
        whole = next((h.tensor for h in handles if _fills(h, record)), None)
        if whole is not None:
            return whole if _takes(codec, whole.dtype, tuple(whole.shape)) else None
    length = record.nbytes // x.dtype.itemsize
    return x.as_strided((length,), (1,), 0) if _takes(codec, x.dtype, (length,)) else None


def _fills(h: Handle, record: Record) -> bool:
    return (
        h.tensor is not None
        and h.offset == 0
        and h.tensor.nbytes == record.nbytes
        and is_dense(h.tensor)
    )
