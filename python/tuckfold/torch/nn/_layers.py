"""Structured layers in place of ``torch.nn.Linear``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tuckfold._structure import StepMemory, Structure, step_memory, structure_of, text_of
from tuckfold.torch import _library as ops
from tuckfold.torch.nn import _ops
from tuckfold.torch.nn._init import initialize
from tuckfold.torch.nn._plain import plain

_structured = torch.ops.tuckfold.structured.default
_kernel = torch.ops.tuckfold.structured_kernel.default


class Structured(nn.Module):
    """A linear layer ``y = x W^T + b`` whose matrix has a structure.

    It stands where ``torch.nn.Linear`` does: any leading axes, a bias, device and dtype, ``state_dict``,
    autocast, ``torch.compile`` and ONNX export. Backward keeps the input alone and computes the rest again;
    gradients are the same bits on any number of threads. Second derivatives, transforms of ``torch.func``
    and forward-mode derivatives run ``torch``'s operators.

    On the CPU it runs Tuckfold's kernels, for float32, float64, float16 and bfloat16. Elsewhere it runs
    ``torch``'s operators where this build has no kernel.

    Args:
        text: the structure, as in ``"butterfly(tied=true)"``.
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        init: "default" keeps the variance of the input, in the mean over weights; "paper" is the one of the family's publication.

    Raises:
        ValueError: the text is none, or the sizes do not fit it.

    >>> layer = tuckfold.torch.nn.Structured("monarch(blocks=8)", 256, 512)
    >>> layer(torch.zeros(3, 5, 256)).shape, layer.weight_count
    (torch.Size([3, 5, 512]), 24576)
    """

    def __init__(
        self,
        text: str,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        init: str = "default",
    ) -> None:
        super().__init__()
        self.structure: Structure = structure_of(text, in_features, out_features)
        self.in_features: int = in_features
        self.out_features: int = out_features
        self.init: str = init
        self.bias: nn.Parameter | None
        for weight in self.structure.weights:
            if weight.trained:
                values = torch.empty(weight.shape, device=device, dtype=dtype)
                self.register_parameter(weight.name, nn.Parameter(values))
            else:
                places = torch.empty(weight.shape, device=device, dtype=torch.int64)
                self.register_buffer(weight.name, places)
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random weights again."""
        initialize(self, self.init)

    @property
    def text(self) -> str:
        """The structure's canonical text."""
        return self.structure.text

    @property
    def weight_count(self) -> int:
        """Numbers that are trained, without the bias."""
        return self.structure.weight_count

    def flops(self, samples: int) -> float:
        """Operations of a forward pass; a multiplication and an addition are two."""
        return self.structure.flops_per_sample * samples

    def saved_bytes(self, samples: int, dtype: torch.dtype = torch.float32) -> int:
        """What backward keeps of so many samples: the input."""
        return samples * self.in_features * dtype.itemsize

    def step_memory(
        self, samples: int, *, states: int = 1, threads: int | None = None
    ) -> StepMemory:
        """Bytes that a training step on the CPU holds because of this layer.

        Args:
            samples: rows of the input, all leading axes together.
            states: of the optimizer, for each weight: 0 for plain SGD, 1 for momentum, 2 for Adam.
            threads: that compute; by default those of torch.

        >>> memory = tuckfold.torch.nn.Butterfly(1024, 1024).step_memory(256, threads=1)
        >>> memory.weights, memory.saved, memory.peak
        (86016, 1048576, 5271552)
        """
        dtype = next(self.parameters()).dtype
        if dtype not in ops.DTYPES.values():
            raise ValueError(f"[step_memory] no kernel of the CPU takes {dtype}")
        threads = torch.get_num_threads() if threads is None else threads
        has_bias = self.bias is not None
        return step_memory(self.structure, samples, ops._NAMES[dtype], has_bias, states, threads)

    def structure_weights(self) -> list[Tensor]:
        """The weights in the order of the structure, permutations among them, without the bias."""
        return [getattr(self, weight.name) for weight in self.structure.weights]

    def to_dense(self) -> Tensor:
        """The matrix, out_features x in_features."""
        weights = [w.detach() for w in self.structure_weights()]
        unit = torch.eye(self.in_features, dtype=weights[0].dtype, device=weights[0].device)
        if self.structure.name == "pixelfly" and self.structure.option("form") == "gated":
            raise ValueError("[to_dense] a gated pixelfly has a matrix for each sample, not one")
        return plain(self.structure, unit, weights).T.contiguous()

    def to_linear(self) -> nn.Linear:
        """A ``torch.nn.Linear`` that computes the same."""
        dense = self.to_dense()
        linear = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, dense.device, dense.dtype
        )
        with torch.no_grad():
            linear.weight.copy_(dense)
            if self.bias is not None:
                linear.bias.copy_(self.bias)
        return linear

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_tracing() and x.shape[-1:] != (self.in_features,):
            raise ValueError(
                f"[{self.structure.name}] the last axis must have {self.in_features} features, "
                f"got shape {tuple(x.shape)}"
            )
        weights, bias = self.structure_weights(), self.bias
        device = x.device.type
        if device == "meta":  # has no autocast
            return plain(self.structure, x, weights, bias)
        if torch.is_autocast_enabled(device) and x.is_floating_point():
            dtype = torch.get_autocast_dtype(device)
            x = x.to(dtype)
            weights = [w.to(dtype) if w.is_floating_point() else w for w in weights]
            bias = None if bias is None else bias.to(dtype)
        if torch.onnx.is_in_onnx_export() or ops.is_transformed():
            return plain(self.structure, x, weights, bias)
        if device == "cpu" and x.dtype in ops.DTYPES.values():
            return _ops.call(_structured, x, self.text, self.out_features, weights, bias)
        if device == "cuda" and ops._NAMES.get(x.dtype) in self.structure.cuda:
            return _ops.call(_kernel, x, self.text, self.out_features, weights, bias)
        return self._by_torch(x, weights, bias)

    def _by_torch(self, x: Tensor, weights: list[Tensor], bias: Tensor | None) -> Tensor:
        """torch's operators; backward runs them again instead of keeping what is between them."""
        if not torch.is_grad_enabled() or self.structure.name == "dense":
            return plain(self.structure, x, weights, bias)

        def again(x: Tensor, *rest: Tensor) -> Tensor:
            return plain(self.structure, x, rest)

        y = checkpoint(again, x, *weights, use_reentrant=False, preserve_rng_state=False)
        return y if bias is None else y + bias

    def extra_repr(self) -> str:
        return (
            f"{self.text!r}, in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


def _fits(given: int | None, usual: int, in_features: int, out_features: int) -> int:
    """A size that was not given: as usual, or what the layer has room for."""
    return given if given is not None else max(1, min(usual, in_features, out_features))


class Butterfly(Structured):
    """A product of log2(n) sparse factors of 2 x 2 matrices, n the power of two that holds the inputs.

    Args:
        in_features: any number; inputs that lack to a power of two are zero.
        out_features: any number; more than n come from several products of the same input.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights; complex ones are for complex inputs, by torch's operators.
        tied: whether the blocks of a factor share their weights: 4 (n - 1) in all, not 2 n log2(n).
        stride: of the factors, "increasing" or "decreasing" in the order in which they are applied.
        blocks: products one after the other, every other one with its strides reversed.
        form: "free" 2 x 2 matrices, or "orthogonal" ones: rotations with one angle each.
        init: "default", "paper", "identity", or "orthogonal", which only begins so.

    >>> layer = tuckfold.torch.nn.Butterfly(1024, 1024, tied=True)
    >>> layer.weight_count, sum(p.numel() for p in layer.parameters())
    (4092, 5116)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        tied: bool = False,
        stride: str = "increasing",
        blocks: int = 1,
        form: str = "free",
        init: str = "default",
    ) -> None:
        text = text_of("butterfly", tied=tied, stride=stride, blocks=blocks, form=form)
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)


class Pixelfly(Structured):
    """A flat block butterfly and a low rank.

    Args:
        in_features: any number.
        out_features: any number.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        block: side of a block; 32 unless given, or less in a layer with fewer features.
        butterfly: size of the butterfly that is stretched over the blocks, a power of two.
        rank: of the other part; 16 unless given, or as many as there are features.
        factors: of the butterfly, from the diagonal out; 0 takes all.
        form: "sum" of both parts, "gated", mixed by a gate of each sample, or "mean".
        init: "default" or "paper".

    >>> layer = tuckfold.torch.nn.Pixelfly(1024, 1024, block=64, butterfly=16, rank=32)
    >>> sum(p.numel() for p in layer.parameters())
    394240
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        block: int | None = None,
        butterfly: int = 16,
        rank: int | None = None,
        factors: int = 0,
        form: str = "sum",
        init: str = "default",
    ) -> None:
        block, rank = (
            _fits(*pair, in_features, out_features) for pair in ((block, 32), (rank, 16))
        )
        text = text_of(
            "pixelfly", block=block, butterfly=butterfly, rank=rank, factors=factors, form=form
        )
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)


class Monarch(Structured):
    """Two block-diagonal matrices with permutations.

    Args:
        in_features: any number.
        out_features: any number.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        blocks: in each of the two matrices; 4 unless given, or as many as there are features.
        init: "default" or "paper".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        blocks: int | None = None,
        init: str = "default",
    ) -> None:
        blocks = _fits(blocks, 4, in_features, out_features)
        text = text_of("monarch", blocks=blocks)
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)


class BlockDiagonal(Structured):
    """Independent blocks along the diagonal.

    Args:
        in_features: any number.
        out_features: any number.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        blocks: how many; 4 unless given, or as many as there are features.
        init: "default" or "paper".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        blocks: int | None = None,
        init: str = "default",
    ) -> None:
        blocks = _fits(blocks, 4, in_features, out_features)
        text = text_of("block_diagonal", blocks=blocks)
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)


class LowRank(Structured):
    """A product of two narrow matrices.

    Args:
        in_features: any number.
        out_features: any number.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        rank: rows in between; 8 unless given, or as many as there are features.
        init: "default" or "paper".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rank: int | None = None,
        init: str = "default",
    ) -> None:
        rank = _fits(rank, 8, in_features, out_features)
        text = text_of("low_rank", rank=rank)
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)


class Circulant(Structured):
    """A convolution that wraps round: ``W[i, j] = kernel[(i - j) mod n]``.

    Args:
        in_features: any number.
        out_features: any number; n is the larger of the two.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        init: "default" or "paper".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        init: str = "default",
    ) -> None:
        super().__init__("circulant", in_features, out_features, bias, device, dtype, init=init)


class Fastfood(Structured):
    """Diagonals between Hadamard transforms; the permutation is a buffer, so that ``state_dict`` has it.

    Args:
        in_features: any number.
        out_features: any number.
        bias: whether there is one.
        device: where the weights are.
        dtype: of the weights.
        normalize: divide by n, so that the transforms keep lengths; False as first published.
        init: "default" or "paper".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        normalize: bool = True,
        init: str = "default",
    ) -> None:
        text = text_of("fastfood", normalize=normalize)
        super().__init__(text, in_features, out_features, bias, device, dtype, init=init)
