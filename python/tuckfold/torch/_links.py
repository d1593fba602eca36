"""Gradients that cross links between processes, packed by a codec: a communication hook for DDP."""

# Annotations are objects here: DDP compares them.
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tuckfold._spec import CodecSpec, text_of
from tuckfold.torch._activations._lossy import mixed
from tuckfold.torch._functions import layout, pack, unpack

_Bucket: Any = dist.GradBucket if dist.is_available() else object


class PackedGradients:
    """The state of :func:`packed_gradients`.

    Args:
        codec: of a fixed size, which takes a row of values, such as ``block_quant``.
        feedback: whether what a codec loses of a gradient is added to the next one. It takes as much memory as
            the gradients.
        group: of processes; else all of them.

    Raises:
        ValueError: the codec's size follows from the values.

    >>> state = tuckfold.torch.PackedGradients("block_quant(bits=8, round=stochastic)")
    >>> state.codec
    'block_quant(bits=8, round=stochastic)'
    """

    def __init__(self, codec: str | CodecSpec, *, feedback: bool = True, group: Any = None) -> None:
        self.codec, self.feedback, self.group = text_of(codec), feedback, group
        if not layout(self.codec, torch.float32, (1 << 20,)).fixed:
            raise ValueError(f"[PackedGradients] codec must have a fixed size, got {self.codec}")
        self.sent = self.raw = 0  # bytes that this process gave to others, and that it would have
        self._lost: dict[int, Tensor] = {}
        self._steps: dict[int, int] = {}

    def _seed(self, index: int, rank: int) -> int:
        """Of a bucket, of a step, of a process."""
        step = self._steps[index] = self._steps.get(index, 0) + 1
        return mixed(mixed(mixed(torch.initial_seed(), rank), index), step)

    def _average(self, bucket: _Bucket) -> torch.futures.Future[Tensor]:
        group = self.group if self.group is not None else dist.group.WORLD
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient, index = bucket.buffer(), bucket.index()
        lost = self._lost.get(index)
        if self.feedback and lost is not None and lost.shape == gradient.shape:
            gradient = gradient + lost  # buckets are arranged anew after the first step
        packed = pack(gradient, self.codec, seed=self._seed(index, rank))
        if self.feedback:
            back = unpack(packed, self.codec, out=torch.empty_like(gradient))
            # A gradient that is not finite must not spoil all that follow.
            self._lost[index] = torch.nan_to_num_(gradient - back, 0.0, 0.0, 0.0)
        self.sent += packed.nbytes
        self.raw += gradient.nbytes
        parts = torch.empty(size * packed.numel(), dtype=torch.uint8, device=packed.device)
        work = dist.all_gather_into_tensor(parts, packed, group=group, async_op=True)
        out = bucket.buffer()

        def averaged(_: torch.futures.Future[Any]) -> Tensor:
            total = torch.zeros_like(out)
            one = torch.empty_like(out)
            for part in parts.chunk(size):
                # CUDA kernels read packed bytes from multiples of 16.
                total += unpack(part.clone(), self.codec, out=one)
            return out.copy_(total.div_(size))

        return work.get_future().then(averaged)


def packed_gradients(state: PackedGradients, bucket: _Bucket) -> torch.futures.Future[Tensor]:
    """A communication hook: processes exchange packed gradients, and average what they decode to.

    Every process gets the same bits. ``model.register_comm_hook(PackedGradients("block_quant(bits=4)"),
    packed_gradients)``, where model is DistributedDataParallel.

    Args:
        state: the codec, and what it has lost so far.
        bucket: of gradients; DDP gives it.
    """
    return state._average(bucket)
