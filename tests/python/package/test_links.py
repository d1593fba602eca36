"""Gradients that processes exchange packed: two of them with gloo, and one alone."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402

EIGHT = "block_quant(bits=8, group=64, round=stochastic)"
TWO = "block_quant(bits=2, group=64)"


def begin(rank: int, size: int, meeting: Path) -> None:
    """Processes meet in a file: a port that was free a moment ago may be another's by now."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)


def gradients(codec: str | None, steps: int, rank: int, **options) -> tuple[list, object]:
    """The flat gradient of each step, with weights that stay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 200), nn.Tanh(), nn.Linear(200, 10))
    net = nn.parallel.DistributedDataParallel(model)
    state = None
    if codec is not None:
        state = tt.PackedGradients(codec, **options)
        net.register_comm_hook(state, tt.packed_gradients)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(rank))
    found = []
    for _ in range(steps):
        net.zero_grad()
        net(x).square().mean().backward()
        found.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    return found, state


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def examine(rank: int) -> None:
    exact = gradients(None, 1, rank)[0][0]
    eight, state = gradients(EIGHT, 4, rank)
    assert all(0 < error(g, exact) < 0.02 for g in eight)
    assert not torch.equal(eight[1], eight[2]) and state.raw > 3.5 * state.sent
    every = [torch.empty_like(eight[0]) for _ in range(dist.get_world_size())]
    dist.all_gather(every, eight[-1])
    assert all(torch.equal(every[0], one) for one in every)
    # What is lost in one step comes with the next: the mean of many has hardly any error.
    means = {}
    for feedback in (True, False):
        found, _ = gradients(TWO, 25, rank, feedback=feedback)
        means[feedback] = error(torch.stack(found[1:]).mean(0), exact)
    assert means[False] > 0.1 and means[True] < 0.2 * means[False], means


class Unused(nn.Module):
    """Of two parameters, b gets no gradient but 0; DDP finds them in either order."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(4096)), nn.Parameter(torch.zeros(4096))
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        terms = {"a": (self.a * x).sum(), "b": (self.b * 0 * x).sum()}
        return terms[self.order[0]] + terms[self.order[1]]


def work(rank: int, meeting: Path) -> None:
    begin(rank, 2, meeting)
    examine(rank)
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_average_what_they_decode(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (tmp_path / "meeting",), nprocs=2)


@pytest.fixture
def alone(tmp_path: Path):
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("needs a process group of its own")
    threads = torch.get_num_threads()
    begin(0, 1, tmp_path / "meeting")
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("alone")
def test_what_is_lost_follows_its_parameter() -> None:
    """DDP arranges buckets anew after the first step: in another order, and in others of other sizes."""
    for order in ("ab", "ba"):
        for megabytes in (25, 0.01):
            torch.manual_seed(0)
            model, x = Unused(order), torch.randn(4096)
            net = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=megabytes)
            state = tt.PackedGradients("block_quant(bits=4)")
            net.register_comm_hook(state, tt.packed_gradients)
            total, losses = torch.zeros(4096), []
            for step in range(4):
                net.zero_grad()
                net(x).backward()
                assert model.b.grad.norm() == 0, (order, megabytes, step)
                total += model.a.grad
                losses.append(float((total - (step + 1) * x).norm()))
            assert losses[-1] < 1.5 * losses[0], losses  # what is owed does not grow
            assert not state._moved and len(state._lost) == (1 if megabytes == 25 else 2)


def test_one_process(alone) -> None:
    examine(0)


def test_a_gradient_that_is_not_finite_does_not_stay(alone) -> None:
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Linear(32, 200))
    net.register_comm_hook(tt.PackedGradients(TWO), tt.packed_gradients)
    x = torch.randn(16, 32)
    for y in (x, x * float("nan"), x):
        net.zero_grad()
        net(y).square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize(
    ("codec", "message"),
    [("bounded(abs=0.1)", "fixed size"), ("dct_quant", "sides"), ("blok", "blok")],
)
def test_codecs_that_do_not_suit(codec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tt.PackedGradients(codec)
