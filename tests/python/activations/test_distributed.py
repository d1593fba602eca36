"""Two processes with gloo: gradients of wrapped models are those of plain ones, bit for bit."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def work(rank: int, meeting: Path, kind: str) -> None:
    sys.path[:0] = [str(Path(__file__).parent)]
    import torch.distributed as dist
    from torch import nn

    import tuckfold.torch as tt
    from nets import Block, alexnet_like, images, made, same

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    make = (lambda: nn.Sequential(Block(32), Block(32))) if kind == "fsdp2" else alexnet_like
    x = torch.rand(4, 6, 32) if kind == "fsdp2" else images()[rank::2]

    def steps(wrapped: bool) -> list[torch.Tensor]:
        model = made(make)
        if kind == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            for block in model:
                fully_shard(block)
            fully_shard(model)
            net = model
        else:
            net = nn.parallel.DistributedDataParallel(model)
        act = tt.wrap(net, least=0) if wrapped else None
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        if act is not None:
            assert act.problems == [], act.problems
            assert any(row.how != "keep" for row in act.plan(x).rows) or kind == "fsdp2"
            act.remove()
        return [p.to_local() if hasattr(p, "to_local") else p for p in net.parameters()]

    plain, wrapped = steps(False), steps(True)
    assert all(same(a.detach(), b.detach()) for a, b in zip(plain, wrapped, strict=True))
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes(kind: str, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (tmp_path / "meeting", kind), nprocs=2)
