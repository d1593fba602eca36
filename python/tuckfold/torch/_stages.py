"""Activations and their gradients that cross from one pipeline stage to the next, packed by a codec."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tuckfold._spec import CodecSpec
from tuckfold.torch._activations._lossy import mixed
from tuckfold.torch._functions import layout, pack, takes, unpack
from tuckfold.torch._links import fixed

_LEAST = 1 << 12  # bytes: smaller tensors are sent as they are
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Stage = TypeVar("Stage")


def packed_stage(
    stage: Stage, codec: str | CodecSpec, *, gradients: str | CodecSpec | None = None
) -> Stage:
    """Has a stage of ``torch.distributed.pipelining`` send and receive packed activations and gradients.

    Call it for the stages of all processes, with the same codecs, before the schedule is made. Samples differ from step
    to step, so what a codec loses is not added to later ones.

    Args:
        stage: a PipelineStage, made by hand or by a pipe's build_stage.
        codec: of a fixed size, which takes a row of values, such as ``block_quant``; for activations.
        gradients: the codec for gradients, which go back; else the same.

    Returns:
        The stage. ``stage.packed.sent`` and ``stage.packed.raw`` are the bytes that it sent, and that it would have.

    Raises:
        ValueError: a codec's size follows from the values, or the stage is packed already.

    ``stage = tuckfold.torch.packed_stage(PipelineStage(part, 0, 2, device), "block_quant(bits=8)")``
    """
    forward = fixed("packed_stage", codec)
    backward = forward if gradients is None else fixed("packed_stage", gradients)
    if hasattr(stage, "packed"):
        raise ValueError("[packed_stage] the stage sends packed tensors already")
    stage.packed = Link(forward, backward)  # type: ignore[attr-defined]
    stage.__class__ = _packed_class(type(stage))
    return stage


class Link:
    """Of one stage to its neighbours: packed bytes in place of values.

    Args:
        forward: the codec of activations.
        backward: that of gradients.
    """

    def __init__(self, forward: str, backward: str) -> None:
        self.codecs = {"forward": forward, "backward": backward}
        self.sent = self.raw = 0  # bytes that were given to others, and that would have been
        self._arriving: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = {}
        self._number = 0

    def suits(self, x: Tensor, way: str) -> bool:
        """Both ends of a link come to the same answer."""
        size = math.prod(x.shape)
        return (
            x.dtype in _FLOATS
            and size * x.dtype.itemsize >= _LEAST
            and takes(self.codecs[way], x.dtype, (size,))
        )

    def to_send(self, ops: list[Any], way: str) -> list[Any]:
        found = []
        for op in ops:
            x = op.tensor.detach()
            self.raw += x.nbytes
            if self.suits(x, way):
                self._number += 1
                seed = mixed(mixed(torch.initial_seed(), dist.get_rank()), self._number)
                x = pack(x.reshape(-1), self.codecs[way], seed=seed)
                op = dist.P2POp(op.op, x, op.peer, op.group)
            self.sent += x.nbytes
            found.append(op)
        return found

    def to_receive(self, ops: list[Any], way: str, chunk: int) -> list[Any]:
        found, arriving = [], []
        for op in ops:
            x = op.tensor
            if self.suits(x, way):
                size = layout(self.codecs[way], x.dtype, (x.numel(),)).max_bytes
                bytes_ = torch.empty(size, dtype=torch.uint8, device=x.device)
                arriving.append((x, bytes_))
                op = dist.P2POp(op.op, bytes_, op.peer, op.group)
            found.append(op)
        self._arriving[way, chunk] = arriving
        return found

    def unpack(self, way: str, chunk: int) -> None:
        for x, bytes_ in self._arriving.pop((way, chunk), ()):
            unpack(bytes_, self.codecs[way], out=x.detach().view(-1))


def _packed_class(kind: type) -> type:
    """A stage's class with the same operations, on packed bytes."""

    class Packed(kind):  # type: ignore[misc,valid-type]
        def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[Any]:
            return self.packed.to_send(super().get_fwd_send_ops(fwd_chunk_id), "forward")

        def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[Any]:
            return self.packed.to_send(super().get_bwd_send_ops(bwd_chunk_id), "backward")

        def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[Any]:
            ops = super().get_fwd_recv_ops(fwd_chunk_id)
            return self.packed.to_receive(ops, "forward", fwd_chunk_id)

        def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[Any]:
            ops = super().get_bwd_recv_ops(bwd_chunk_id)
            return self.packed.to_receive(ops, "backward", bwd_chunk_id)

        def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
            self.packed.unpack("forward", fwd_chunk_id)
            return super()._retrieve_recv_activations(fwd_chunk_id)

        def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
            self.packed.unpack("backward", bwd_chunk_id)
            return super()._retrieve_recv_grads(bwd_chunk_id)

    Packed.__name__, Packed.__qualname__ = kind.__name__, kind.__qualname__
    return Packed
