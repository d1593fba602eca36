"""Existing models with structured layers: projections, rules, budgets."""

import copy
import itertools
import json

import pytest

torch = pytest.importorskip("torch")

import tuckfold.torch as tt  # noqa: E402
from tuckfold.torch import nn as tnn  # noqa: E402
from tuckfold.torch._structured._choose import Choice, candidates, choose, curve  # noqa: E402
from tuckfold.torch._structured._factorize import FAMILIES  # noqa: E402

EXACT = ["low_rank(rank=5)", "monarch(blocks=4)", "block_diagonal(blocks=3)", "circulant", "dense"]
ALL = [
    *EXACT,
    "butterfly",
    "butterfly(stride=decreasing)",
    "pixelfly(block=4, butterfly=4, rank=3)",
]


def matrix(out: int, in_: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(out, in_, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("text", ["low_rank(rank=3)", *ALL[1:-1]])
@pytest.mark.parametrize("sizes", [(32, 32), (20, 12), (16, 40)])
def test_a_matrix_of_the_structure_is_found_again(text: str, sizes: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = tnn.Structured(text, sizes[1], sizes[0], dtype=torch.float64)
    dense = layer.to_dense()
    found = tt.project(dense, text)
    assert found.error < 1e-10
    torch.testing.assert_close(found.to_dense(), dense, rtol=1e-9, atol=1e-9)


def test_hadamard_is_a_butterfly_and_a_monarch() -> None:
    h = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(6):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    assert tt.project(h, "butterfly").error < 1e-12
    assert tt.project(h, "monarch(blocks=8)").error < 1e-12
    noise = 0.05 * matrix(64, 64)
    assert tt.project(h + noise, "butterfly").error <= float(noise.norm() / h.norm())


@pytest.mark.parametrize("text", ALL)
def test_the_bound_is_below_the_error(text: str) -> None:
    for sizes in ((32, 32), (24, 18), (16, 40)):
        found = tt.project(matrix(*sizes), text)
        dense = found.to_dense()
        error = float((matrix(*sizes) - dense).norm() / matrix(*sizes).norm())
        assert 0 <= found.bound <= found.error == pytest.approx(error, abs=1e-12)
        if text in EXACT:
            assert found.bound == pytest.approx(found.error, abs=1e-9)
        if text.startswith("butterfly") and sizes == (32, 32):
            assert found.error <= 2 * found.bound  # sqrt(4) at most


@pytest.mark.parametrize("text", EXACT[:-1])
def test_training_comes_no_nearer_than_the_bound(text: str) -> None:
    torch.manual_seed(0)
    a = matrix(12, 12)
    found = tt.project(a, text)
    layer = tnn.Structured(text, 12, 12, bias=False, dtype=torch.float64)
    with torch.no_grad():
        for place, weight in zip(layer.structure_weights(), found.weights, strict=True):
            place.copy_(weight + 0.01 * torch.randn_like(weight))
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    for _ in range(50):
        optimizer.zero_grad()
        (layer(torch.eye(12, dtype=torch.float64)).T - a).square().sum().backward()
        optimizer.step()
    assert float((layer.to_dense() - a).norm() / a.norm()) >= found.bound - 1e-9


@pytest.mark.parametrize("text", ["fastfood", "butterfly(tied=true)", "butterfly(blocks=2)"])
def test_what_has_no_projection_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="has no projection; train it, or take low_rank"):
        tt.project(matrix(8, 8), text)


def test_projections_refuse_what_is_no_matrix() -> None:
    with pytest.raises(ValueError, match="must be a matrix"):
        tt.project(torch.zeros(3), "dense")
    with pytest.raises(ValueError, match="not finite"):
        tt.project(torch.full((4, 4), torch.nan), "low_rank(rank=1)")
    assert tt.project(torch.zeros(4, 4), "low_rank(rank=1)").error == 0


# ---- rules


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 1, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def test_rules_replace_what_matches() -> None:
    model = net()
    rows = tt.structure(model, {"6": None, "4": "butterfly", "*": "monarch(blocks=2)"})
    assert [(row.name, row.text) for row in rows] == [
        ("0", "monarch(blocks=2)"),
        ("4", "butterfly"),
    ]
    y = model(torch.randn(3, 8, 8, 8))
    assert y.shape == (3, 10)
    y.sum().backward()
    assert isinstance(model[6], torch.nn.Linear)


def test_kept_weights_of_full_rank_change_nothing() -> None:
    model, x = net(), torch.randn(3, 8, 8, 8)
    want = model(x)
    rows = tt.structure(model, {"0": "low_rank(rank=8)", "4": "low_rank(rank=64)"}, keep=True)
    assert all(row.error < 1e-6 for row in rows)
    torch.testing.assert_close(model(x), want, rtol=1e-4, atol=1e-5)


def test_rules_that_do_not_fit_change_nothing() -> None:
    model = net()
    before = repr(model)
    for rules, said in [
        ({"fc*": "butterfly"}, "'fc\\*' matches no layer that can be replaced; there are: 0, 4, 6"),
        ({"4": "butterfly", "6": "low_rank(rank=11)"}, "6: .*rank must be 1..10"),
    ]:
        with pytest.raises(ValueError, match=said):
            tt.structure(model, rules)
    assert repr(model) == before


REPLACE = {
    "structure": lambda model: tt.structure(model, {"*": "low_rank(rank=4)"}, keep=True),
    "factorize": lambda model: tt.factorize(model, "50%", least=1),
}


@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_hooks_go_to_the_new_layer(how: str, kind: str) -> None:
    layer = torch.nn.Linear(64, 64) if kind == "linear" else torch.nn.Conv2d(64, 64, 1)
    model, calls = torch.nn.Sequential(layer), []

    def told(name: str):
        return lambda *_: calls.append(name)

    layer.register_forward_pre_hook(told("pre"))
    gone = layer.register_forward_hook(told("gone"))
    layer.register_forward_hook(lambda *_, **__: calls.append("first"))
    layer.register_forward_hook(lambda m, a, k, y: calls.append(k), with_kwargs=True)
    layer.register_forward_hook(told("before"), prepend=True)
    layer.register_full_backward_pre_hook(told("backward pre"))
    layer.register_full_backward_hook(told("backward"))
    REPLACE[how](model)
    assert model[0] is not layer
    gone.remove()  # the handles that users hold still work
    x = torch.randn(3, 64) if kind == "linear" else torch.randn(3, 64, 2, 2)
    model(x.requires_grad_()).sum().backward()
    assert calls == ["pre", "before", "first", {}, "backward pre", "backward"]


@pytest.mark.parametrize("tied", ["weight", "bias"])
def test_tied_layers_are_left_alone(tied: str) -> None:
    def made() -> torch.nn.Sequential:
        model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
        setattr(model[2], tied, getattr(model[0], tied))
        return model

    model = made()
    with pytest.warns(UserWarning, match="share weights with other layers: 0, 2"):
        rows = tt.structure(model, {"*": "low_rank(rank=4)"}, keep=True)
    assert [row.name for row in rows] == ["1"]
    assert getattr(model[0], tied) is getattr(model[2], tied)
    model = made()
    assert tt.factorize(model, "50%").left == ("0", "2")
    assert getattr(model[0], tied) is getattr(model[2], tied)


@pytest.mark.parametrize("layer", [torch.nn.Linear(64, 64), torch.nn.Conv2d(64, 64, 1)])
@pytest.mark.parametrize("pattern", ["*", "1"])
def test_a_layer_in_two_places_stays_one(layer: torch.nn.Module, pattern: str) -> None:
    model = torch.nn.Sequential(layer, layer)
    rows = tt.structure(model, {pattern: "low_rank(rank=4)"})
    assert [row.name for row in rows] == ["0"]
    assert model[0] is model[1] is not layer


@pytest.mark.parametrize(
    "way",
    ["weight_norm", "old weight_norm", "spectral_norm", "orthogonal", "pruned", "pruned bias"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_weights_that_hooks_make_are_left_alone_and_named(way: str) -> None:
    from torch.nn import utils
    from torch.nn.utils import parametrizations, prune

    ways = {
        "weight_norm": parametrizations.weight_norm,
        "old weight_norm": utils.weight_norm,
        "spectral_norm": utils.spectral_norm,
        "orthogonal": parametrizations.orthogonal,
        "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        "pruned bias": lambda layer: prune.l1_unstructured(layer, "bias", 0.5),
    }
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    ways[way](model[0])
    hooked = model[0]
    with pytest.warns(UserWarning, match="made in hooks: 0$"):
        tt.structure(model, {"*": "butterfly"})
    assert model[0] is hooked and type(model[2]) is not torch.nn.Linear
    model[2] = torch.nn.Linear(64, 64)
    assert tt.factorize(model, "50%", least=1).left == ("0",)


# ---- budgets


def trained() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """Weights with a decaying spectrum, as trained ones have."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
    )
    with torch.no_grad():
        for layer in model[::2]:
            u, s, v = torch.linalg.svd(layer.weight, full_matrices=False)
            layer.weight.copy_(u * (s / torch.arange(1, len(s) + 1)) @ v * 8)
    return model, [torch.randn(64, 128) + 0.5 for _ in range(2)]


def cost(report: tt.Factorized) -> float:
    return sum(row.error**2 * row.weights_before for row in report.layers)


def test_larger_budgets_cost_less_and_all_of_it_nothing() -> None:
    model, _ = trained()
    costs = []
    for budget in ("5%", "12%", "25%", "50%", "100%"):
        report = tt.factorize(copy.deepcopy(model), budget)
        assert report.weights <= report.budget
        costs.append(cost(report))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert all(row.text == "dense" for row in report.layers)


def test_the_budget_is_used() -> None:
    """Of matrices whose spectrum hardly decays, where between a low rank and dense nothing gains as much per weight."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.Linear(64, 8)
    )
    costs = []
    for percent in range(5, 101, 5):
        report = tt.factorize(copy.deepcopy(model), f"{percent}%")
        assert 0.96 * report.budget - 200 <= report.weights <= report.budget
        costs.append(cost(report))
    assert all(b < a for a, b in zip(costs, costs[1:], strict=False))
    report = tt.factorize(model, "70%")
    assert cost(report) / 8192 < 0.497**2 + 0.500**2  # what rank 29 in both costs
    assert report.left == ("3",)
    assert f"{report.weights} of 11468 weights of the budget are used" in str(report)
    assert "left alone, and not counted: 3" in str(report)


def test_the_cheapest_combination_is_found() -> None:
    """Against all combinations, where weights are told apart one by one."""
    generator = torch.Generator().manual_seed(0)
    sizes = [40, 64, 24]
    curves = []
    for size in sizes:
        weights = torch.randint(2, size, (5,), generator=generator).tolist()
        costs = torch.rand(5, generator=generator).tolist()
        curves.append([Choice(size, 0.0), *map(Choice, weights, costs, ["x"] * 5)])
    for budget in range(sum(min(c.weights for c in one) for one in curves), sum(sizes) + 1):
        chosen = choose(curves, sizes, budget)
        assert sum(c.weights for c in chosen) <= budget
        least = min(
            sum(c.cost * size for c, size in zip(each, sizes, strict=True))
            for each in itertools.product(*curves)
            if sum(c.weights for c in each) <= budget
        )
        got = sum(c.cost * size for c, size in zip(chosen, sizes, strict=True))
        assert got == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("moment", [False, True])
def test_the_costs_of_low_ranks_are_those_of_their_projections(moment: bool) -> None:
    a, x = matrix(20, 32), matrix(50, 32, 1)
    second = x.T @ x if moment else None
    choices = curve(a, ["low_rank"], second)
    assert len(choices) > 8
    whole = float((a @ (second if moment else torch.eye(32, dtype=a.dtype)) * a).sum())
    for choice in choices[1:]:
        nearest = choice.projection(a)
        lost = a - nearest.to_dense()
        want = float((lost @ second * lost).sum() if moment else lost.square().sum())
        assert nearest.structure.weight_count == choice.weights
        assert choice.cost == pytest.approx(want / whole, rel=1e-9)


def test_calibration_corrects_biases() -> None:
    model, data = trained()
    want = model(data[0]).detach()
    errors = {}
    for name, calibration in (("without", None), ("with", data)):
        made = copy.deepcopy(model)
        report = tt.factorize(made, "20%", calibration=calibration)
        errors[name] = float((made(data[0]).detach() - want).norm() / want.norm())
        assert (report.layers[0].output_error is None) == (calibration is None)
    assert errors["with"] < errors["without"] < 0.5
    assert "low_rank" in str(report)
    assert json.loads(report.to_json())["weights"] == report.weights


def test_budgets_that_nothing_reaches_are_refused() -> None:
    model, _ = trained()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for budget, said in [
        ("0.01%", "the budget must be at least \\d+ weights, which the smallest structures have"),
        ("200%", "budget must be like 25%, up to 100%, or a number of weights"),
        (0, "at least 1 weight"),
    ]:
        with pytest.raises(ValueError, match=said):
            tt.factorize(model, budget)
    with pytest.raises(ValueError, match="families are low_rank"):
        tt.factorize(model, families=["wavelet"])
    with pytest.raises(ValueError, match="no linear layers of 4096 weights"):
        tt.factorize(torch.nn.Sequential(torch.nn.Linear(3, 3)))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_weights_in_two_places_are_left_alone() -> None:
    model, _ = trained()
    model[2] = model[0]
    report = tt.factorize(model, "30%")
    assert [row.name for row in report.layers] == ["4"]
    assert model[2] is model[0]


def test_candidates_are_smaller_structures() -> None:
    for out, in_ in ((64, 64), (1000, 512), (5, 3)):
        for text in candidates(out, in_, FAMILIES):
            tnn.Structured(text, in_, out)


def encoder() -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2)


@pytest.mark.parametrize("calibrated", [False, True])
def test_encoders_call_the_layers_in_eval_mode_too(calibrated: bool) -> None:
    """torch's fused kernel reads the matrices of Linear layers."""
    model, x = encoder(), torch.randn(3, 10, 64)
    report = tt.factorize(
        model, "50%", families=["low_rank"], calibration=[x] if calibrated else None
    )
    assert "layers.0.linear1" in report.structures
    masked = torch.zeros(3, 10, dtype=torch.bool)
    masked[:, 7:] = True
    with torch.no_grad():
        for mask in (None, masked):
            trained = model.train()(x, src_key_padding_mask=mask)
            used = model.eval()(x, src_key_padding_mask=mask)
            torch.testing.assert_close(used[:, :7], trained[:, :7], rtol=1e-4, atol=1e-5)
    fresh = encoder().eval()
    tt.structure(fresh, report.structures)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))


def test_a_model_is_as_it_was_if_calibration_fails() -> None:
    class Fails(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = encoder(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls == 4:
                raise RuntimeError("no more")
            return self.inner(x)

    model, x = Fails(), torch.randn(3, 10, 64)
    before = {name: id(module) for name, module in model.named_modules()}
    with pytest.raises(RuntimeError, match="no more"):
        tt.factorize(model, "50%", families=["low_rank"], calibration=[x])
    assert {name: id(module) for name, module in model.named_modules()} == before
    assert model.training and model.inner.use_nested_tensor
    assert all(layer.activation_relu_or_gelu == 1 for layer in model.inner.layers)


def test_what_is_one_layer_says_so() -> None:
    with pytest.raises(ValueError, match="put it into a Sequential"):
        tt.factorize(torch.nn.Linear(128, 128))
    with pytest.raises(ValueError, match="a part such as '25%', got 0.25"):
        tt.factorize(torch.nn.Sequential(torch.nn.Linear(128, 128)), 0.25)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("how", ["structure", "keep", "factorize"])
def test_what_is_frozen_stays_so(how: str, frozen: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Linear(128, 128))
    getattr(model[0], frozen).requires_grad_(False)
    if how == "factorize":
        tt.factorize(model, "25%")
    else:
        tt.structure(model, {"*": "low_rank(rank=8)"}, keep=how == "keep")
    flags = {name: p.requires_grad for name, p in model[0].named_parameters()}
    assert flags.pop("bias") is (frozen != "bias")
    assert set(flags.values()) == {frozen != "weight"}
    assert all(p.requires_grad for p in model[1].parameters())
