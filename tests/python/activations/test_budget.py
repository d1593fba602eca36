"""A budget of bytes, held to what torch's profiler saw steps of training allocate; and one of noise."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import NETWORKS, gradients, images, made, resnet_like, same  # noqa: E402
from test_lossy import error  # noqa: E402
from test_peak import allocated_at_most  # noqa: E402
from tuckfold.torch._activations import _budget  # noqa: E402
from tuckfold.torch._activations._lossy import error_of  # noqa: E402
from tuckfold.torch._activations._text import bytes_text  # noqa: E402


def loss(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def training(name: str, n: int = 64):
    make, batch = NETWORKS[name]
    model, x = made(make), batch(n)
    y = torch.zeros(n, dtype=torch.int64) if name != "gpt" else x
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        loss(out, y).backward()
        optimizer.step()

    return model, optimizer, (x, y), step


def measured(model, optimizer, batch, step) -> int:
    """What a step takes in all."""
    optimizer.zero_grad()
    own = sum(t.nbytes for t in (*model.parameters(), *model.buffers(), *batch))
    state = sum(v.nbytes for s in optimizer.state.values() for v in s.values())
    return allocated_at_most(step) + own + state


def plain_peak(model, batch, optimizer) -> int:
    with tt.activations(model, least=1 << 40) as act:
        return act.peak(batch, loss=loss, optimizer=optimizer).total


@pytest.mark.parametrize(("name", "least"), [("resnet", 0.6), ("gpt", 0.5)])
def test_steps_stay_within_the_budget_and_use_it(name: str, least: float) -> None:
    """With all that operators allocate, also for themselves."""
    model, optimizer, batch, step = training(name)
    plain = plain_peak(model, batch, optimizer)
    noises = []
    for part in (1.02, 0.8, least):
        act = tt.wrap(model, budget=int(plain * part), least=4096)
        fit = act.fit(batch, loss=loss, optimizer=optimizer)
        noises.append(fit.noise)
        assert fit.peak.total <= fit.budget
        for _ in range(6):  # the first one, too, and those that are watched
            took = measured(model, optimizer, batch, step)
            assert took <= fit.budget
        assert took > 0.9 * fit.budget or part > 1  # not less than there is room for
        assert abs(took / fit.peak.total - 1) < 0.01
        assert act.problems == []
        act.remove()
    assert noises == sorted(noises) and noises[-1] > 0


@pytest.mark.parametrize("part", [0.43, 0.45, 0.48])
def test_codecs_are_as_gentle_as_the_budget_allows(part: float) -> None:
    """Also where steps take much more than the solver knows, as with workspaces of the CPU's kernels."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(5):
        layers += [nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 24 * 24, 10))
    batch = torch.randn(16, 3, 24, 24), torch.arange(16) % 10
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    for _ in range(2):
        step()
    budget = int(part * measured(model, optimizer, batch, step))
    possible = []
    for bits in (8, 6, 4, 3):
        with tt.activations(model, codec=f"block_quant(bits={bits}, group=256)", least=4096):
            step()
            if measured(model, optimizer, batch, step) <= 0.97 * budget:
                possible.append(bits)
    optimizer.zero_grad()
    act = tt.wrap(model, budget=budget, least=4096)
    fit = act.fit(batch, loss=loss, optimizer=optimizer)
    assert fit.peak.total <= budget and fit.assumed and "a coarse guess" in str(fit)
    # The time of codecs counts too, so that fewer bits than possible may be chosen, but not the fewest.
    most = error_of(f"block_quant(bits={min(4, max(possible))}, group=256, round=stochastic)")
    assert possible and fit.noise <= 1.01 * most


def test_a_large_budget_changes_nothing() -> None:
    model, optimizer, batch, _ = training("resnet")
    twin = copy.deepcopy(model)
    act = tt.wrap(model, budget="1GiB", least=4096)
    fit = act.fit(batch, loss=loss, optimizer=optimizer)
    assert fit.noise == 0 and {item[1] for item in fit.items} == {"keep"}
    assert all(map(same, gradients(model, batch[0]), gradients(twin, batch[0])))


def test_without_noise_where_that_fits() -> None:
    model, optimizer, batch, _ = training("gpt")
    twin = copy.deepcopy(model)
    with tt.activations(model, least=4096) as act:
        exact = act.peak(batch, loss=loss, optimizer=optimizer).total
    act = tt.wrap(model, budget=int(exact * 1.05), least=4096)
    fit = act.fit(batch, loss=loss, optimizer=optimizer)
    assert fit.noise == 0 and "recompute" in {item[1] for item in fit.items}
    for _ in range(4):
        assert all(map(same, gradients(model, batch[0]), gradients(twin, batch[0])))


def test_an_impossible_budget_says_what_is_possible() -> None:
    model, optimizer, batch, step = training("resnet")
    act = tt.wrap(model, budget="100KiB", least=4096)
    with pytest.raises(tt.PlanError) as caught:
        act.fit(batch, loss=loss, optimizer=optimizer)
    text = str(caught.value)
    assert "budget=100.0 KiB cannot be kept: the smallest peak that was found is" in text
    assert "of what is not stored for backward" in text and "native_batch_norm.input" in text
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(tt.PlanError):
        model(batch[0])  # the first pass tries by itself
    assert all(map(same, before, model.parameters()))
    act.remove()
    step()
    possible = text.partition("found is ")[2].partition(", ")[0].replace(" ", "")
    act = tt.wrap(model, budget=tt_bytes(possible), least=4096)
    assert act.fit(batch, loss=loss, optimizer=optimizer).peak.total <= tt_bytes(possible)


def tt_bytes(text: str) -> int:
    from tuckfold.torch._activations._budget import bytes_of_text

    return int(bytes_of_text(text) * 1.06)  # what was rounded, and what trying it adds


def test_the_first_pass_fits_by_itself_and_larger_inputs_again() -> None:
    model, optimizer, batch, _ = training("resnet", 16)
    plain = plain_peak(model, batch, optimizer)
    act = tt.wrap(model, budget=int(plain * 0.8), least=4096)
    state = torch.get_rng_state()
    buffers = [b.clone() for b in model.buffers()]
    model.train()
    out = model(batch[0])
    assert same(torch.get_rng_state(), state)
    first = act.goal.fitted
    assert first is not None and first.peak.total <= first.budget
    loss(out, batch[1]).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert any(not same(a, b) for a, b in zip(buffers, model.buffers(), strict=True))  # one pass
    assert {int(b) for n, b in model.named_buffers() if n.endswith("tracked")} == {1}
    model(images(8))
    assert act.goal.fitted is first
    with pytest.raises(tt.PlanError):
        model(images(256))
    assert act.goal.fitted is first


def test_watched_passes_do_not_make_the_choice_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, batch, _ = training("resnet", 16)
    budget = int(plain_peak(model, batch, optimizer) * 0.8)
    act = tt.wrap(model, budget=budget, least=4096)
    # As a GPU would count: the first passes hold more than those that repeat.
    taken = [budget + 1000]
    monkeypatch.setattr(type(act), "is_on_gpu", property(lambda self: True))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: taken[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    model.train()

    def step() -> None:
        loss(model(batch[0]), batch[1]).backward()

    while not act.repeats:
        step()
        assert act.goal.margin == 0
    first = act.goal.fitted
    taken[0] = budget
    step()
    step()
    assert act.goal.fitted is first
    taken[0] = budget + 1000
    step()
    assert act.goal.margin == 1000
    assert act.goal.fitted is not first
    for _ in range(40):
        step()
    assert act.goal.margin == 3000  # it gives up then


def test_gradients_are_near_those_of_the_plain_model() -> None:
    model, optimizer, batch, _ = training("resnet")
    plain = plain_peak(model, batch, optimizer)
    twin = copy.deepcopy(model)
    act = tt.wrap(model, budget=int(plain * 0.6), least=4096)
    fit = act.fit(batch, loss=loss, optimizer=optimizer)
    expected = gradients(twin, batch[0])
    for _ in range(4):
        assert error(gradients(model, batch[0]), expected) < 0.2
    text = str(fit)
    assert "of a budget of" in text and "block_quant(bits=" in text and "keep" in text


def test_more_noise_takes_less() -> None:
    model, _, batch, _ = training("resnet")
    peaks, noises = [], []
    for noise in (0, "0.01%", "1%", 0.5):
        act = tt.wrap(model, noise=noise, least=4096)
        fit = act.fit(batch, loss=loss)
        peaks.append(fit.peak.total)
        noises.append(fit.noise)
        act.remove()
    assert peaks == sorted(peaks, reverse=True) and peaks[0] > 1.05 * peaks[-1], peaks
    assert noises[0] == 0 and noises[1] <= 1e-4 and noises[2] <= 0.01 and noises[3] <= 0.5


def test_probes_find_the_tensors_that_matter() -> None:
    """Two branches, of which one hardly moves the loss."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = (
                nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.large(x) + 1e-3 * self.small(x)

    model = made(Net)
    batches = [torch.randn(256, 64) for _ in range(3)]
    act = tt.wrap(model, noise="1%", least=4096)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    state = torch.get_rng_state()
    found = act.probe(lambda x: model(x).square().sum().backward(), batches, probes=12)
    assert same(torch.get_rng_state(), state)
    assert all(bool((p.grad == 1).all()) for p in model.parameters())
    parts = dict(found.parts)
    assert len(parts) == 2 and found.probes == 12 and found.variance > 0
    assert parts["large.1.tanh.result"] > 20 * parts["small.1.tanh.result"]
    fit = act.fit(batches[0])
    assert 0 < fit.noise <= 0.01
    # What the model of noise says is what 4 bits do.
    codec = "block_quant(bits=4, group=256, round=stochastic)"
    act.remove()
    result = tt.check(model, batches[0], more=batches[1:], codec=codec, least=4096)
    assert result.quality.variance is not None
    total = sum(parts.values())
    assert 0.3 < total / result.quality.variance < 3, (total, result.quality)


def test_one_codec_may_be_given() -> None:
    model, optimizer, batch, _ = training("resnet")
    plain = plain_peak(model, batch, optimizer)
    only = "block_quant(bits=5, group=64)"
    act = tt.wrap(model, budget=int(plain * 0.6), codec=only, least=4096)
    fit = act.fit(batch, loss=loss, optimizer=optimizer)
    assert {item[1] for item in fit.items} <= {"keep", "recompute", only}
    assert only in {item[1] for item in fit.items}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "4 gigs"}, r"\[wrap\] budget must be a number of bytes, such as 4GiB or 800MB, got '4 gigs'"),
        ({"budget": ""}, "budget must be"),
        ({"budget": 0}, "at least one byte"),
        ({"budget": -5}, "budget must be"),
        ({"budget": True}, "budget must be"),
        ({"budget": "1.2.3GB"}, "budget must be"),
        ({"noise": "-1%"}, r"noise must be a part of the gradient's variance, such as 1%, got '-1%'"),
        ({"noise": "nan"}, "noise must be"),
        ({"noise": "much"}, "noise must be"),
        ({"noise": "1%", "budget": "1GiB"}, "a budget or noise, not both"),
    ],
)  # fmt: skip
def test_what_is_no_budget_is_refused(options: dict, message: str) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=message):
        tt.wrap(model, **options)
    assert type(model) is nn.Linear


def test_fit_needs_a_budget() -> None:
    model = made(resnet_like)
    with pytest.raises(ValueError, match="neither budget nor noise"):
        tt.wrap(model).fit(images())


def test_sizes_as_text() -> None:
    from tuckfold.torch._activations._budget import bytes_of_text

    sizes = {"4GiB": 4 << 30, "1.5 MB": 1_500_000, "12": 12, "3kib": 3072, "2 TiB": 2 << 40}
    assert {text: bytes_of_text(text) for text in sizes} == sizes


def test_noise_that_was_probed_is_kept_by_measurement() -> None:
    """Fewer probes than tensors leave open which of them matter; the choice is measured before it is taken."""
    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 64, 4, 4)
            layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True, norm_first=True)  # fmt: skip
            self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layers(self.patches(x).flatten(2).mT).mean(1))

    model, cross_entropy = Net(), nn.functional.cross_entropy
    batches = [(torch.randn(16, 3, 32, 32), torch.randint(10, (16,))) for _ in range(4)]
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(40):
        x, y = batches[step % 4]
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    limit = 0.001
    act = tt.wrap(model, noise=limit, least=4096)
    found = act.probe(lambda batch: cross_entropy(model(batch[0]), batch[1]).backward(), batches)
    fit = act.fit(batches[0], loss=cross_entropy)
    assert 0 < fit.noise <= limit

    def gradients(batch: tuple[Tensor, Tensor]) -> Tensor:
        grads = torch.autograd.grad(
            cross_entropy(model(batch[0]), batch[1]), list(model.parameters())
        )
        return torch.cat([g.flatten().double() for g in grads])

    got = [[gradients(batch) for _ in range(4)] for batch in batches]
    act.remove()
    noise, square = 0.0, 0.0
    for batch, passes in zip(batches, got, strict=True):
        exact = gradients(batch)
        noise += sum(float((g - exact).square().sum()) for g in passes) / 4
        square += float(exact.square().sum())
    assert found.variance is not None
    assert noise / square / found.variance <= 2 * limit  # other batches than the one of fit, too


def test_an_impossible_budget_names_what_inputs_hold() -> None:
    """A slice holds the whole data set, which no codec makes smaller."""
    model, optimizer, (x, y), _ = training("resnet")
    data = torch.cat([x] * 16)
    act = tt.wrap(model, budget="100KiB", least=4096)
    with pytest.raises(tt.PlanError) as caught:
        act.fit((data[: len(x)], y), loss=loss, optimizer=optimizer)
    text = str(caught.value)
    held, own = bytes_text(data.nbytes + 512), bytes_text(x.nbytes + 512)  # with the target
    assert ", with model " in text and f"inputs {held}" in text and "optimizer " in text
    assert f"the inputs have {own} of values and hold {held}" in text and "clone()" in text
    with pytest.raises(tt.PlanError) as caught:
        act.fit((data[: len(x)].clone(), y), loss=loss, optimizer=optimizer)
    assert f"inputs {own}" in str(caught.value) and "clone()" not in str(caught.value)


@pytest.mark.parametrize("way", ["fit", "first pass"])
def test_what_a_fit_has_chosen_is_saved(way: str, tmp_path) -> None:
    model, optimizer, batch, step = training("resnet")
    plain = plain_peak(model, batch, optimizer)
    act = tt.wrap(model, budget=int(0.6 * plain), least=4096)
    if way == "fit":
        act.fit(batch, loss=loss, optimizer=optimizer)
    step()
    act.save(tmp_path / "plan.toml")
    act.report(tmp_path / "run.html")
    expected = [row.how for row in act.plan(batch[0]).rows]
    assert any(how.startswith("block_quant") for how in expected)
    act.remove()
    again = tt.wrap(model, plan=tmp_path / "plan.toml", least=4096)
    assert [row.how for row in again.plan(batch[0]).rows] == expected


@pytest.mark.parametrize("noise", [0, "0.1%", "100%"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(8, 8),
        lambda: nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8)),
        lambda: nn.Embedding(8, 8),
    ],
)
def test_with_nothing_to_pack_a_limit_of_noise_keeps_all(make, noise) -> None:
    """And names no budget, which nobody gave."""
    model = made(make)
    plain = copy.deepcopy(model)
    x = torch.randn(16, 8) if not isinstance(model, nn.Embedding) else torch.arange(8)
    act = tt.wrap(model, noise=noise)
    for _ in range(6):
        assert torch.equal(model(x), plain(x))
        assert all(map(same, gradients(model, x), gradients(plain, x)))
    fit = act.fit(x)
    assert fit.noise == 0 and fit.budget is None and "noise 0.0e+00" in str(fit)


def test_a_limit_of_noise_that_the_solver_finds_nothing_for_keeps_every_bit(monkeypatch) -> None:
    model = made(resnet_like)
    plain, x = copy.deepcopy(model), images()
    solve = _budget._solved
    monkeypatch.setattr(_budget, "_solved", lambda problem: solve(problem) | {"fits": False})
    act = tt.wrap(model, noise="1%", least=4096)
    assert all(map(same, gradients(model, x), gradients(plain, x)))
    assert {how for _, how, *_ in act.goal.fitted.items} <= {"keep", "recompute"}
    assert act.goal.fitted.noise == 0
