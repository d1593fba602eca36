"""Gradients that cross links between processes, packed by a codec: hooks for DDP and FSDP2."""

# Annotations are objects here: DDP compares them.
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tuckfold._spec import CodecSpec, text_of
from tuckfold.torch._activations._lossy import mixed
from tuckfold.torch._functions import layout, pack, unpack

_Bucket: Any = dist.GradBucket if dist.is_available() else object


def fixed(where: str, codec: str | CodecSpec) -> str:
    """The text of a codec whose size both ends of a link know."""
    text = text_of(codec)
    if not layout(text, torch.float32, (1 << 20,)).fixed:
        raise ValueError(f"[{where}] codec must have a fixed size, got {text}")
    return text


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
        self.codec, self.feedback, self.group = fixed("PackedGradients", codec), feedback, group
        self.sent = self.raw = 0  # bytes that this process gave to others, and that it would have
        # The parameters of each bucket, and what was lost of them.
        self._lost: dict[int, tuple[list[Tensor], Tensor]] = {}
        self._moved: dict[Tensor, Tensor] = {}  # of parameters that are in other buckets now
        self._steps: dict[int, int] = {}

    def _seed(self, index: int, rank: int) -> int:
        """Of a bucket, of a step, of a process."""
        step = self._steps[index] = self._steps.get(index, 0) + 1
        return mixed(mixed(mixed(torch.initial_seed(), rank), index), step)

    def _lost_of(self, index: int, parameters: list[Tensor], like: Tensor) -> Tensor | None:
        """What was lost of the parameters of a bucket. DDP arranges buckets anew after the first step."""
        before = self._lost.get(index)
        if before is not None and _are(before[0], parameters) and before[1].shape == like.shape:
            return before[1]
        mine = set(parameters)
        for other, (others, lost) in list(self._lost.items()):
            if other == index or not mine.isdisjoint(others):
                del self._lost[other]
                sizes = [p.numel() for p in others]
                if sum(sizes) == lost.numel():
                    self._moved |= dict(zip(others, lost.split(sizes), strict=True))
        if like.numel() != sum(p.numel() for p in parameters) or not self._moved:
            return None
        parts = [self._moved.pop(p, None) for p in parameters]
        zeros = [like.new_zeros(p.numel()) for p in parameters]
        return torch.cat([z if part is None else part.to(z) for part, z in zip(parts, zeros, strict=True)])  # fmt: skip

    def _average(self, bucket: _Bucket) -> torch.futures.Future[Tensor]:
        group = self.group if self.group is not None else dist.group.WORLD
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient, index = bucket.buffer(), bucket.index()
        parameters = bucket.parameters()
        if self.feedback:
            lost = self._lost_of(index, parameters, gradient)
            gradient = gradient if lost is None else gradient + lost
        packed = pack(gradient, self.codec, seed=self._seed(index, rank))
        if self.feedback:
            back = unpack(packed, self.codec, out=torch.empty_like(gradient))
            # A gradient that is not finite must not spoil all that follow.
            missed = torch.nan_to_num_(gradient - back, 0.0, 0.0, 0.0)
            self._lost[index] = parameters, missed
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


def _are(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def packed_gradients(state: PackedGradients, bucket: _Bucket) -> torch.futures.Future[Tensor]:
    """A communication hook: processes exchange packed gradients, and average what they decode to.

    Every process gets the same bits. ``model.register_comm_hook(PackedGradients("block_quant(bits=4)"),
    packed_gradients)``, where model is DistributedDataParallel.

    Args:
        state: the codec, and what it has lost so far.
        bucket: of gradients; DDP gives it.
    """
    return state._average(bucket)


class PackedReduceScatter:
    """How FSDP2 gives each process its part of the gradients: packed, one to one; :func:`packed_fsdp` makes them.

    Each process packs the parts of all others, sends each to its owner, and adds up what it decodes. So each sends
    what a codec leaves of its gradients once, however many processes there are.

    Args:
        codec: of a fixed size, which takes a row of values, such as ``block_quant``.
        feedback: whether what the codec loses of a gradient is added to the next one. It takes as much memory as the
            gradients of the module before they are divided.

    Raises:
        ValueError: the codec's size follows from the values.
    """

    def __init__(self, codec: str | CodecSpec, *, feedback: bool = True) -> None:
        self.codec, self.feedback = fixed("PackedReduceScatter", codec), feedback
        self.sent = self.raw = 0  # bytes that this process gave to others, and that it would have
        self._lost: Tensor | None = None
        self._steps = 0

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """FSDP2 calls it for the memory that it sends from, and receives in."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """FSDP2 calls it.

        Raises:
            NotImplementedError: the processes' values are to be neither added nor averaged.
        """
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise NotImplementedError(
                f"[packed_fsdp] gradients can be summed or averaged, got {op}; call "
                "set_force_sum_reduction_for_comms(True) of the module"
            )
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        given = input_tensor
        lost = self._lost
        if self.feedback and lost is not None and lost.shape == given.shape:
            given = given + lost
        parts = given.view(size, -1)
        self._steps += 1
        seed = mixed(mixed(torch.initial_seed(), rank), self._steps)
        packed = [pack(part, self.codec, seed=mixed(seed, i)) for i, part in enumerate(parts)]
        if self.feedback:
            back = torch.empty_like(given)
            for bytes_, out in zip(packed, back.view(size, -1), strict=True):
                unpack(bytes_, self.codec, out=out)
            # A gradient that is not finite must not spoil all that follow.
            self._lost = torch.nan_to_num_(given - back, 0.0, 0.0, 0.0)
        count = packed[0].numel()
        rows = torch.empty(size, -(-count // 16) * 16, dtype=torch.uint8, device=given.device)
        for row, bytes_ in zip(rows, packed, strict=True):
            row[:count].copy_(bytes_)  # CUDA kernels read packed bytes from multiples of 16
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows, group=group)
        self.sent += (size - 1) * count
        self.raw += (size - 1) * parts[0].nbytes
        total = torch.zeros(output_tensor.shape, dtype=torch.float32, device=given.device)
        one = torch.empty_like(output_tensor)
        for row in received:
            total += unpack(row[:count], self.codec, out=one)
        output_tensor.copy_(total.div_(size) if op == dist.ReduceOp.AVG else total)


def packed_fsdp(
    model: torch.nn.Module, codec: str | CodecSpec, *, feedback: bool = True
) -> list[PackedReduceScatter]:
    """Has the parts of a model that ``fully_shard`` was called for exchange packed gradients.

    ``packed_fsdp(fully_shard(model), "block_quant(bits=4)")``. Weights are gathered as before.

    Args:
        model: with parts of FSDP2.
        codec: of a fixed size, which takes a row of values, such as ``block_quant``.
        feedback: whether what the codec loses of a gradient is added to the next one.

    Returns:
        What each part exchanges gradients with, with the bytes that it sent.

    Raises:
        ValueError: the codec's size follows from the values, or no part of the model is sharded by FSDP2.
    """
    parts = [m for m in model.modules() if hasattr(m, "set_custom_reduce_scatter")]
    if not parts:
        raise ValueError("[packed_fsdp] no part of the model is sharded; call fully_shard before")
    links = []
    for part in parts:
        links.append(PackedReduceScatter(codec, feedback=feedback))
        part.set_custom_reduce_scatter(links[-1])
    return links
