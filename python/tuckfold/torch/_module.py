"""dct_chop as a layer: a linear map to fewer values, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tuckfold._spec import CodecSpec, list_codecs, spec_of
from tuckfold.torch import _library as ops
from tuckfold.torch import _linear


class Codec(nn.Module):
    """``dct_chop`` inside a network, differentiable both ways.

    ``compress`` gives the coefficients as a tensor that other programs can read, the paper's compressed
    matrix ``Y = LHS · A · RHS`` (eq. 4), and ``decompress`` is ``A' = RHS · Y · LHS`` (eq. 6). Both
    are linear, so that their gradients are the transposed maps, and for the orthonormal DCT each is
    the other's: a network can be trained through decompression. Rounding of coefficients to ``coef``
    counts as the identity.

    On the CPU and on CUDA devices the library's kernels run, in f32, with the bytes of ``pack``.
    Elsewhere, for f64, under transforms of ``torch.func`` and for forward-mode derivatives the same products are torch's own; a
    tensor of f64 has coefficients of f64.

    Args:
        spec: one ``dct_chop``, square or triangle.

    >>> codec = tuckfold.torch.Codec("dct_chop(keep=4)")
    >>> x = torch.rand(8, 3, 32, 32, requires_grad=True)
    >>> y = codec.compress(x)
    >>> y.shape
    torch.Size([8, 3, 16, 16])
    >>> codec.decompress(y).shape
    torch.Size([8, 3, 32, 32])
    >>> codec(x).sum().backward()
    >>> x.grad.shape
    torch.Size([8, 3, 32, 32])
    """

    _forward: Tensor
    _back: Tensor

    def __init__(self, spec: str | CodecSpec) -> None:
        super().__init__()
        self._params = _linear.dct_chop_params("Codec", str(spec_of(spec)))
        self._text = str(spec_of(spec))
        self._on_cuda = any(codec.name == "dct_chop" and codec.cuda for codec in list_codecs())
        forward, back = _linear.matrices(self._text)
        self.register_buffer("_forward", forward, persistent=False)
        self.register_buffer("_back", back, persistent=False)

    @property
    def spec(self) -> CodecSpec:
        """The codec."""
        return spec_of(self._text)

    def compress(self, x: Tensor) -> Tensor:
        """The coefficients of every block that are kept.

        Returns:
            For a square: […, keep·h/block, keep·w/block]; for a triangle: […, blocks,
            keep (keep + 1) / 2]. Of the dtype ``coef`` says, but of f64 for f64.
        """
        if self._by_kernel(x):
            return ops.call(torch.ops.tuckfold.compress, x, self._text)
        dtype = ops.DTYPES[self._params["coef"]]
        geometry = _linear.Geometry.of(self._params, x.shape)
        values, matrix = self._arithmetic(x, self._forward)
        coefs = geometry.to_coefs(values, matrix, repeat_edges=True)
        return coefs if x.dtype == torch.float64 else coefs.to(dtype)

    def decompress(
        self, coefs: Tensor, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """The tensor from its coefficients.

        Args:
            coefs: what compress gave, or something like it.
            shape: of the tensor; needed where compress padded or folded it, and for a triangle.
                Without it sides are block/keep times those of coefs.
            dtype: of the tensor; f32 unless given, f64 for coefficients of f64.

        Raises:
            ValueError: coefs has not the shape that compress gives for a tensor of this shape.
        """
        shape = self._shape_for(coefs) if shape is None else tuple(shape)
        geometry = _linear.Geometry.of(self._params, shape)
        if tuple(coefs.shape) != geometry.coefs_shape:
            raise ValueError(
                f"[decompress] the coefficients of {shape} must be of shape {geometry.coefs_shape}, got "
                f"{tuple(coefs.shape)}; give the shape of the tensor that was compressed"
            )
        if dtype is None:
            dtype = torch.float64 if coefs.dtype == torch.float64 else torch.float32
        if coefs.dtype != torch.float64 and self._by_kernel(coefs):
            stored = coefs.to(ops.DTYPES[self._params["coef"]]).contiguous()
            return ops.call(torch.ops.tuckfold.decompress, stored, self._text, shape, dtype)
        values, matrix = self._arithmetic(coefs, self._back)
        return geometry.from_coefs(values, matrix, fold=False).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """What is left of x: decompress(compress(x))."""
        return self.decompress(self.compress(x), x.shape, x.dtype)

    def extra_repr(self) -> str:
        return self._text

    def _by_kernel(self, tensor: Tensor) -> bool:
        if ops.is_transformed():
            return False
        device = tensor.device.type
        there = device == "cpu" or (device == "cuda" and self._on_cuda)
        # The library's layout of an empty tensor has no axes left to tell its shape by.
        return there and tensor.dtype != torch.float64 and tensor.numel() > 0

    def _arithmetic(self, values: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Both in f32, or in f64 for values of f64."""
        dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
        return values.to(dtype), matrix.to(dtype)

    def _shape_for(self, coefs: Tensor) -> tuple[int, ...]:
        block, keep = self._params["block"], self._params["keep"]
        whole = coefs.dim() >= 2 and all(side % keep == 0 for side in coefs.shape[-2:])
        if self._params["shape"] == "triangle" or not whole:
            raise ValueError(
                f"[decompress] {self._text} needs the shape of the tensor to make of "
                f"{tuple(coefs.shape)} coefficients"
            )
        return (*coefs.shape[:-2], *(side // keep * block for side in coefs.shape[-2:]))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Codec:
        """Moves to other devices, but never rounds the matrices, as half() would."""
        device = fn(self._forward).device
        if device != self._forward.device:  # made anew, since those of meta have no values
            self._forward, self._back = _linear.matrices(self._text, device)
        return self
