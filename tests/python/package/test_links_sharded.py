"""Packed gradients of FSDP2, and packed tensors between pipeline stages: two processes with gloo."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from test_links import EIGHT, TWO, begin, error  # noqa: E402

WIDTH, STEPS = 64, 25


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())


def sharded_gradients(codec: str | None, steps: int, rank: int, **options) -> tuple[list, list]:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model[0])
    fully_shard(model)
    links = [] if codec is None else tt.packed_fsdp(model, codec, **options)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(rank))
    found = []
    for _ in range(steps):
        model.zero_grad()
        model(x).square().mean().backward()
        found.append(torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()]))
    return found, links


def shard(rank: int, meeting: Path) -> None:
    begin(rank, 2, meeting)
    exact = sharded_gradients(None, 1, rank)[0][0]
    eight, links = sharded_gradients(EIGHT, 3, rank)
    assert len(links) == 2
    assert all(0 < error(g, exact) < 0.02 for g in eight)
    assert all(link.raw > 3.5 * link.sent > 0 for link in links)
    every = [torch.empty_like(eight[0]) for _ in range(2)]
    dist.all_gather(every, eight[-1])
    assert torch.equal(*every)
    means = {}
    for feedback in (True, False):
        found, _ = sharded_gradients(TWO, STEPS, rank, feedback=feedback)
        means[feedback] = error(torch.stack(found[1:]).mean(0), exact)
    assert means[False] > 0.1 and means[True] < 0.2 * means[False], means
    dist.destroy_process_group()


def staged(rank: int, codec: str | None, **options) -> tuple[torch.Tensor, object]:
    """The gradient of this process's stage after a step of four microbatches."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    model = net()
    part = model[:2] if rank == 0 else model[2:]
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    if codec is not None:
        assert tt.packed_stage(stage, codec, **options) is stage
    schedule = ScheduleGPipe(stage, 4, loss_fn=F.mse_loss)
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(64, 32, generator=draw)
    y = torch.randn(64, WIDTH, generator=draw)
    losses: list = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
        assert len(losses) == 4
    return torch.cat([p.grad.flatten() for p in part.parameters()]), stage


def pipe(rank: int, meeting: Path) -> None:
    begin(rank, 2, meeting)
    plain, _ = staged(rank, None)
    packed, stage = staged(rank, EIGHT)
    assert 0 < error(packed, plain) < 0.02
    assert stage.packed.raw > 3.5 * stage.packed.sent > 0
    assert type(stage).__name__ == "PipelineStage"
    coarse, _ = staged(rank, EIGHT, gradients=TWO)  # those go to the first stage
    assert (error(coarse, plain) > 5 * error(packed, plain)) == (rank == 0)
    with pytest.raises(ValueError, match="already"):
        tt.packed_stage(stage, EIGHT)
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("work", [shard, pipe])
def test_two_processes(work, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (tmp_path / "meeting",), nprocs=2)


def test_what_does_not_suit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[packed_fsdp\] no part of the model is sharded"):
        tt.packed_fsdp(net(), EIGHT)
    with pytest.raises(ValueError, match=r"\[PackedReduceScatter\] codec must have a fixed size"):
        tt.PackedReduceScatter("bounded(abs=0.1)")
    with pytest.raises(ValueError, match=r"\[packed_stage\] codec must have a fixed size"):
        tt.packed_stage(object(), "bounded(abs=0.1)")
