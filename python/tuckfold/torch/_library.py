"""Loads the operators, and registers what torch's stable ABI leaves to Python: fake kernels, autograd
and vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tuckfold import _library as lib
from tuckfold._codec import Layout
from tuckfold._codec import layout as layout_of_name
from tuckfold._errors import error_of
from tuckfold._spec import spec_of
from tuckfold.torch import _linear

_NEEDS = (2, 10)  # TORCH_TARGET_VERSION of the operators
_OPERATORS = (
    "pack", "pack_seeded", "pack_checked", "pack_many", "unpack", "unpack_checked", "unpack_into",
    "unpack_many_into", "unpack_then", "unpack_rows", "unpack_gelu", "unpack_images", "compress", "decompress",
    "normalize_into", "normalize_rows_into", "cross_entropy_rows", "cross_entropy_grad", "_read_images",
    "_read_values", "structured", "structured_backward", "structured_kernel", "structured_kernel_backward",
)  # fmt: skip  # that the package uses
_NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint16: "u16",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
}
DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def _load() -> None:
    path = lib.library_path("libtuckfold_torch.so")
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) < _NEEDS:
        raise ImportError(f"tuckfold.torch needs torch 2.10 or later, got {torch.__version__}")
    if not path.exists():
        raise ImportError(
            f"tuckfold was built without torch: no {path}; install torch, then tuckfold again "
            "(pip install --force-reinstall --no-deps tuckfold)"
        )
    torch.ops.load_library(str(path))
    for name in _OPERATORS:
        if not hasattr(torch.ops.tuckfold, name):
            raise ImportError(lib.other_version(path, f"operator tuckfold::{name}"))


_load()


def is_transformed() -> bool:
    """Whether `torch.func` or forward-mode derivatives are at work, which know no operators of ours."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def call(op: Callable[..., Any], *arguments: object) -> Any:
    """Calls an operator; what it refuses is raised as the class for the C API's status.

    torch makes ValueError or RuntimeError of it, depending on its version. Operators clear the
    thread's status when they begin and set it where they refuse, so that it says which class it is.
    """
    try:
        return op(*arguments)
    except (RuntimeError, ValueError) as error:
        if torch.compiler.is_compiling():  # Dynamo follows Python, but not into C
            raise
        _check_kinds(op, arguments)
        status, message = lib.last_status(), lib.last_error().decode()
        lib.clear_error()
        if status == 0 or type(error) not in (RuntimeError, ValueError):
            raise
        raise error_of(status, message) from None


def check_tensor(what: str, name: str, x: object) -> None:
    """That an argument is a tensor with values in memory of its own."""
    if not isinstance(x, Tensor):
        of_numpy = (
            "use tuckfold.pack for numpy arrays"
            if name == "x"
            else "torch.as_tensor makes one of arrays"
        )
        raise TypeError(
            f"[{what}] {name} must be a torch.Tensor, got {type(x).__name__}; {of_numpy}"
        )
    if x.is_nested:
        raise ValueError(f"[{what}] {name} is a nested tensor; take the tensors of unbind()")
    if x.layout is not torch.strided:
        layout = str(x.layout).removeprefix("torch.")
        raise ValueError(f"[{what}] {name} is a tensor of layout {layout}; call to_dense() first")
    if x.is_quantized:
        raise ValueError(
            f"[{what}] {name} is a quantized tensor; call int_repr() or dequantize() first"
        )


def check_dtype(what: str, dtype: object) -> None:
    """That an argument is a dtype of torch; operators take numbers for them, too."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"[{what}] dtype must be one of torch's, such as torch.float32, got {dtype!r:.40}"
        )


def _check_kinds(op: Any, arguments: Sequence[object]) -> None:
    """Whether torch refused a call because an argument is not of the kind that the operator takes."""
    schema = getattr(op, "default", op)._schema  # a packet has one overload
    what = schema.name.partition("::")[2].removesuffix("_into").removesuffix("_seeded")
    for argument, value in zip(schema.arguments, arguments, strict=False):
        kind = str(argument.type)
        if kind == "Tensor":
            check_tensor(what, argument.name, value)
        elif kind == "List[Tensor]":
            for i, x in enumerate(value if isinstance(value, (list, tuple)) else ()):
                check_tensor(what, f"{argument.name}[{i}]", x)
        elif argument.name == "dtype":
            check_dtype(what, value)
        elif argument.name == "shape" and not (
            isinstance(value, Sequence) and all(isinstance(n, int) for n in value)
        ):
            raise TypeError(f"[{what}] shape must be a tuple of integers, got {value!r:.40}")


def dtype_name(what: str, dtype: torch.dtype) -> str:
    """Our name of a dtype of torch."""
    check_dtype(what, dtype)
    name = _NAMES.get(dtype)
    if name is None:
        known = ", ".join(str(d).removeprefix("torch.") for d in _NAMES)
        raise ValueError(f"[{what}] dtype must be one of {known}, got {dtype}")
    return name


def layout_of(what: str, spec: str, dtype: torch.dtype, shape: Sequence[int]) -> Layout:
    """The layout for a tensor."""
    return layout_of_name(spec, dtype_name(what, dtype), tuple(int(n) for n in shape))


def _is_dynamic(shape: Sequence[int]) -> bool:
    """Whether torch.compile or torch.export keeps a size open."""
    return any(isinstance(n, torch.SymInt) for n in shape)


def _check_fits(what: str, spec: str, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """What can be checked of a spec, a dtype and sizes, of which some may be open."""
    name = dtype_name(what, dtype)
    if _is_dynamic(shape):
        spec_of(spec)  # the sizes are checked when they are known
    else:
        layout_of_name(spec, name, tuple(shape))


# ---- fake kernels: shapes without values


@torch.library.register_fake("tuckfold::pack")
def _(x: Tensor, spec: str, seed: int = 0) -> Tensor:
    _check_fits("pack", spec, x.dtype, x.shape)
    # A size that follows from the values, or from sizes that are open, is a symbol until it is known.
    known = not _is_dynamic(x.shape) and (fit := layout_of("pack", spec, x.dtype, x.shape)).fixed
    size = fit.max_bytes if known else torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((size,), dtype=torch.uint8)


@torch.library.register_fake("tuckfold::pack_seeded")
def _(x: Tensor, spec: str, seed: Tensor) -> Tensor:
    return torch.ops.tuckfold.pack(x, spec, 0)


@torch.library.register_fake("tuckfold::pack_checked")
def _(x: Tensor, spec: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    _check_fits("pack", spec, x.dtype, x.shape)
    known = not _is_dynamic(x.shape)
    size = (
        layout_of("pack", spec, x.dtype, x.shape).max_bytes
        if known
        else torch.library.get_ctx().new_dynamic_size()
    )
    return x.new_empty((size,), dtype=torch.uint8), x.new_empty((1,), dtype=torch.int64)


def _check_bytes(packed: Tensor) -> None:
    if packed.dtype != torch.uint8:
        raise ValueError(f"[unpack] packed bytes must be of uint8, got {packed.dtype}")


@torch.library.register_fake("tuckfold::unpack")
def _(packed: Tensor, spec: str, shape: list[int], dtype: torch.dtype) -> Tensor:
    _check_bytes(packed)
    _check_fits("unpack", spec, dtype, shape)
    return packed.new_empty(shape, dtype=dtype)


@torch.library.register_fake("tuckfold::unpack_checked")
def _(packed: Tensor, spec: str, shape: list[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    out = torch.ops.tuckfold.unpack(packed, spec, shape, dtype)
    return out, packed.new_empty((1,), dtype=torch.int64)


@torch.library.register_fake("tuckfold::unpack_then")
def _(
    packed: Tensor,
    spec: str,
    shape: list[int],
    dtype: torch.dtype,
    scale: Tensor,
    shift: Tensor,
    inner: int,
    act: str,
    add: Tensor | None = None,
    packed_add: Tensor | None = None,
    add_scale: Tensor | None = None,
    add_shift: Tensor | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    return torch.ops.tuckfold.unpack(packed, spec, shape, dtype)


@torch.library.register_fake("tuckfold::unpack_images")
def _(
    packed: Tensor,
    spec: str,
    shape: list[int],
    dtype: torch.dtype,
    windows: Tensor,
    places: Tensor,
    scale: Tensor,
    add: Tensor,
    channels_last: bool,
    out: Tensor,
) -> None:
    _check_bytes(packed)
    _check_fits("unpack_images", spec, dtype, shape)


@torch.library.register_fake("tuckfold::unpack_into")
def _(packed: Tensor, spec: str, out: Tensor) -> None:
    _check_bytes(packed)
    _check_fits("unpack", spec, out.dtype, out.shape)


@torch.library.register_fake("tuckfold::normalize_into")
def _(
    x: Tensor, add: list[Tensor], factors: list[Tensor], inner: int, act: str, out: Tensor
) -> None:
    pass


@torch.library.register_fake("tuckfold::normalize_rows_into")
def _(x: Tensor, factors: list[Tensor], out: Tensor) -> None:
    pass


@torch.library.register_fake("tuckfold::unpack_rows")
def _(
    packed: Tensor,
    spec: str,
    shape: list[int],
    dtype: torch.dtype,
    factors: list[Tensor],
    to: torch.dtype,
) -> Tensor:
    return torch.ops.tuckfold.unpack(packed, spec, shape, dtype).to(to)


@torch.library.register_fake("tuckfold::unpack_gelu")
def _(packed: Tensor, spec: str, shape: list[int], dtype: torch.dtype) -> Tensor:
    return torch.ops.tuckfold.unpack(packed, spec, shape, dtype)


@torch.library.register_fake("tuckfold::cross_entropy_rows")
def _(logits: Tensor, classes: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    rows = logits.shape[0]
    return tuple(logits.new_empty(shape, dtype=torch.float32) for shape in ((rows,), (rows, 2)))  # type: ignore[return-value]


@torch.library.register_fake("tuckfold::cross_entropy_grad")
def _(logits: Tensor, classes: Tensor, ignored: int, sums: Tensor, scale: Tensor) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.register_fake("tuckfold::pack_many")
def _(xs: list[Tensor], spec: str, seed: int = 0) -> list[Tensor]:
    return [torch.ops.tuckfold.pack(x, spec, seed + i) for i, x in enumerate(xs)]


@torch.library.register_fake("tuckfold::unpack_many_into")
def _(packed: list[Tensor], spec: str, outs: list[Tensor]) -> None:
    for one, out in zip(packed, outs, strict=True):
        _check_bytes(one)
        _check_fits("unpack", spec, out.dtype, out.shape)


@torch.library.register_fake("tuckfold::compress")
def _(x: Tensor, spec: str) -> Tensor:
    fit = layout_of("compress", spec, x.dtype, x.shape)
    if not fit.fixed:
        raise ValueError(f"[compress] needs a codec of a fixed size; use pack, got {spec}")
    return x.new_empty(fit.shape, dtype=DTYPES[fit.dtype])


@torch.library.register_fake("tuckfold::decompress")
def _(coefs: Tensor, spec: str, shape: list[int], dtype: torch.dtype) -> Tensor:
    layout_of("decompress", spec, dtype, shape)
    return coefs.new_empty(shape, dtype=dtype)


# ---- autograd: compress and decompress are linear, their gradients the transposed maps


def _geometry(ctx) -> _linear.Geometry:
    return _linear.Geometry.of(_linear.dct_chop_params("backward", ctx.spec), ctx.shape)


def _setup_compress(ctx, inputs: tuple, output: Tensor) -> None:
    x, ctx.spec = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype


def _compress_backward(ctx, grad: Tensor) -> tuple:
    geometry = _geometry(ctx)
    if geometry.orthonormal and not geometry.padded:
        return torch.ops.tuckfold.decompress(
            grad.contiguous(), ctx.spec, ctx.shape, ctx.dtype
        ), None
    matrix = _linear.matrices(ctx.spec, grad.device)[0]
    return geometry.from_coefs(grad.float(), matrix, fold=True).to(ctx.dtype), None


def _setup_decompress(ctx, inputs: tuple, output: Tensor) -> None:
    coefs, ctx.spec, ctx.shape, _ = inputs
    ctx.dtype = coefs.dtype


def _decompress_backward(ctx, grad: Tensor) -> tuple:
    geometry = _geometry(ctx)
    if geometry.orthonormal and not geometry.padded:
        coefs = torch.ops.tuckfold.compress(grad, ctx.spec)
    else:
        matrix = _linear.matrices(ctx.spec, grad.device)[1]
        coefs = geometry.to_coefs(grad.float(), matrix, repeat_edges=False)
    return coefs.to(ctx.dtype), None, None, None


torch.library.register_autograd(
    "tuckfold::compress", _compress_backward, setup_context=_setup_compress
)
torch.library.register_autograd(
    "tuckfold::decompress", _decompress_backward, setup_context=_setup_decompress
)


# ---- writing into tensors: seen by autograd, as copy_ is


def _check_overwritable(out: Tensor) -> None:
    if torch.is_grad_enabled() and out.requires_grad:
        kind = "a leaf that requires grad" if out.is_leaf else "part of a graph"
        raise RuntimeError(
            f"[unpack] out is {kind}, and unpacking has no gradient; use torch.no_grad(), or unpack "
            "without out="
        )
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            "[unpack] out is an inference tensor; write to it in torch.inference_mode(), or clone it"
        )


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    """Those among them and in lists of them. Written out, since this is called for every unpacking."""
    found = []
    for each in arguments:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += [x for x in each if isinstance(x, Tensor)]
    return found


def _into_for_autograd(op: torch._ops.OpOverload) -> None:
    """Has autograd know that the last argument is overwritten: checked first, its version bumped."""

    name = op.name().partition("::")[2]

    def autograd(keys: torch._C.DispatchKeySet, *arguments: Any) -> None:
        for out in _tensors(arguments[-1:]):
            _check_overwritable(out)
        if torch.is_grad_enabled() and any(x.requires_grad for x in _tensors(arguments[:-1])):
            raise RuntimeError(f"[{name}] it has no gradient; use torch.no_grad(), or detach its arguments")  # fmt: skip
        op.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    def in_place(keys: torch._C.DispatchKeySet, *arguments: Any) -> None:
        op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *arguments)
        for out in _tensors(arguments[-1:]):
            if not out.is_inference():
                torch.autograd.graph.increment_version(out)

    _IMPLEMENTATIONS.impl(name, autograd, "Autograd", with_keyset=True)
    _IMPLEMENTATIONS.impl(name, in_place, "ADInplaceOrView", with_keyset=True)


def _into_for_lazy_bits(op: torch._ops.OpOverload) -> None:
    """Outputs that are negated or conjugated when they are read. Torch's own fallback ends the process."""

    def plain(x: Tensor) -> Tensor:
        return x.resolve_neg().resolve_conj()

    def filled(*arguments: Any) -> None:
        *given, outs = arguments
        given = torch.utils._pytree.tree_map_only(Tensor, plain, given)
        many = _tensors([outs])
        made = [torch.empty_like(plain(out)) if _is_lazy(out) else out for out in many]
        op(*given, made[0] if isinstance(outs, Tensor) else made)
        for out, other in zip(many, made, strict=True):
            if other is not out:
                out.copy_(other)

    name = op.name().partition("::")[2]
    for key in ("Negative", "Conjugate"):
        _IMPLEMENTATIONS.impl(name, filled, key)


def _is_lazy(x: Tensor) -> bool:
    return x.is_neg() or x.is_conj()


_IMPLEMENTATIONS = torch.library.Library("tuckfold", "IMPL")
for _name in ("unpack_into", "unpack_many_into", "unpack_images", "normalize_into", "normalize_rows_into"):  # fmt: skip
    _op = getattr(torch.ops.tuckfold, _name).default
    _into_for_autograd(_op)
    _into_for_lazy_bits(_op)


# ---- vmap: one more leading axis for the linear maps, one call a tensor for bytes


@torch.library.register_vmap("tuckfold::compress")
def _(info, in_dims: tuple, x: Tensor, spec: str) -> tuple[Tensor, int]:
    return torch.ops.tuckfold.compress(x.movedim(in_dims[0], 0), spec), 0


@torch.library.register_vmap("tuckfold::decompress")
def _(info, in_dims: tuple, coefs: Tensor, spec: str, shape, dtype) -> tuple[Tensor, int]:
    all_coefs = coefs.movedim(in_dims[0], 0).contiguous()
    return torch.ops.tuckfold.decompress(all_coefs, spec, [info.batch_size, *shape], dtype), 0


@torch.library.register_vmap("tuckfold::pack")
def _(info, in_dims: tuple, x: Tensor, spec: str, seed: int = 0) -> tuple[Tensor, int]:
    each = x.unbind(in_dims[0])
    if not layout_of("pack", spec, x.dtype, each[0].shape).fixed:
        raise NotImplementedError(
            f"[pack] vmap needs a codec of a fixed size, since sizes of {spec} differ from tensor "
            "to tensor; call pack for each"
        )
    # As pack_many has it: each its own noise.
    packed = [torch.ops.tuckfold.pack(one, spec, seed + i) for i, one in enumerate(each)]
    return torch.stack(packed), 0


@torch.library.register_vmap("tuckfold::unpack")
def _(info, in_dims: tuple, packed: Tensor, spec: str, shape, dtype) -> tuple[Tensor, int]:
    each = packed.movedim(in_dims[0], 0).contiguous()
    if packed.is_cuda:  # where packed bytes start at multiples of 16, unlike rows
        each = [one.clone() for one in each]
    return torch.stack([torch.ops.tuckfold.unpack(one, spec, shape, dtype) for one in each]), 0
