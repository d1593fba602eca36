"""What a step is said to take, held to what torch's profiler saw it allocate."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import NETWORKS, images, made, resnet_like  # noqa: E402


def allocated_at_most(step: object) -> int:
    """The most bytes above what was there before, by every allocation and free of a step."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    sizes = []
    stack = list(profiler.profiler.kineto_results.experimental_event_tree())
    while stack:
        event = stack.pop()
        stack += event.children
        if event.name == "[memory]":
            sizes.append((event.start_time_ns, event.extra_fields.alloc_size))
    live = most = 0
    for _, size in sorted(sizes, key=lambda item: item[0]):
        live += size
        most = max(most, live)
    return most


@pytest.mark.parametrize("name", ["alexnet", "resnet", "gpt"])
@pytest.mark.parametrize("wrapped", [True, False])
@torch.backends.mkldnn.flags(enabled=False)  # its workspaces are seen by the allocator alone
def test_the_peak_of_a_step_is_known_before(name: str, wrapped: bool) -> None:
    make, batch = NETWORKS[name]
    model, x = made(make), batch(64)
    y = torch.zeros(64, dtype=torch.int64) if name != "gpt" else x

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, -2), y.flatten())

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    act = tt.wrap(model, least=4096 if wrapped else 1 << 40)
    expected = act.peak((x, y), loss=loss, optimizer=optimizer)
    own = sum(t.nbytes for t in (*model.parameters(), *model.buffers(), x, y))

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        loss(out, y).backward()
        optimizer.step()

    for _ in range(5):
        step()
    state = sum(v.nbytes for s in optimizer.state.values() for v in s.values())
    optimizer.zero_grad()
    measured = allocated_at_most(step) + own + state
    assert abs(expected.total / measured - 1) < 0.01, (expected.total, measured)


@torch.backends.mkldnn.flags(enabled=False)
def test_autocasts_copies_of_weights_count() -> None:
    """They are made anew in each step, also where one autocast is around all passes of the prediction."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)), nn.Linear(256, 8))
    act = tt.wrap(model, least=1 << 40)
    x = torch.rand(512, 256)
    with torch.autocast("cpu", torch.bfloat16):
        expected = act.peak(x).passes

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
            loss = out.float().square().mean()
        loss.backward()

    step()
    model.zero_grad()
    assert abs(expected / allocated_at_most(step) - 1) < 0.02


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: torch.optim.Adam(p), 2),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), 3),
        (lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True), 3),
        (lambda p: torch.optim.NAdam(p), 2),
        (lambda p: torch.optim.RAdam(p), 2),
        (lambda p: torch.optim.Adamax(p), 2),
    ],
)
def test_the_state_of_an_optimizer_is_known_before_its_first_step(make, copies: int) -> None:
    model = nn.Linear(256, 256)
    frozen = nn.Linear(256, 256).requires_grad_(False)
    optimizer = make([*model.parameters(), *frozen.parameters()])
    act = tt.wrap(model)
    x = torch.rand(2, 256)
    before = act.peak(x, optimizer=optimizer).optimizer
    assert before == copies * (256 * 256 + 256) * 4
    model(x).sum().backward()
    optimizer.step()
    after = act.peak(x, optimizer=optimizer).optimizer
    assert before <= after <= before + 2 * 2 * 512  # numbers of steps


def test_an_unknown_optimizer_must_have_made_a_step() -> None:
    model = nn.Linear(8, 8)
    act = tt.wrap(model)
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ValueError, match=r"\[peak\] the state of LBFGS is not known"):
        act.peak(torch.rand(2, 8), optimizer=optimizer)


def test_a_plan_has_the_peak_of_a_step() -> None:
    model = made(resnet_like)
    act = tt.wrap(model, least=0)
    plan = act.plan(images(32))
    exact = act.peak(images(32))
    assert abs(plan.step.total / exact.total - 1) < 0.05
    assert str(plan.step) in str(plan)


def test_nothing_of_the_model_changes() -> None:
    model = made(resnet_like)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    tt.wrap(model, least=0).peak(images())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
