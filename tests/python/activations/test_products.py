"""Products of matrices that are made again: the same bits, once each, and no more of them than a share."""

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import Block, Gated, same  # noqa: E402
from tuckfold.torch._activations import _products as products  # noqa: E402
from tuckfold.torch._activations import _proof  # noqa: E402
from tuckfold.torch._activations._native import library  # noqa: E402

WAYS = ["python"] + (["cpp"] if library() is not None else [])
WARM = 5  # passes until they repeat each other, in C++ where there is a library
WIDTH, DEPTH = 32, 8


@pytest.fixture(autouse=True)
def shares(monkeypatch):
    """On the CPU, where products are not made again otherwise: a tenth of a step's flops."""
    monkeypatch.setitem(products.SHARE, "cpu", 0.1)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch) -> str:
    monkeypatch.setenv("TUCKFOLD_HOOKS", request.param)
    return request.param


def network(block=Block) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(*(block(WIDTH) for _ in range(DEPTH)))
    return model, torch.randn(4, 8, WIDTH)


def gradients(model: nn.Module, x: Tensor, enabled: bool = True) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        out = model(x)
    out.float().square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(map(same, a, b))


def remade(act, x: Tensor) -> list[str]:
    """The modules with results of products that are made again."""
    with torch.autocast("cpu", torch.bfloat16):
        rows = act.plan(x).rows
    kept = ("gelu", "scaled_dot_product_flash_attention_for_cpu", "bmm", "silu", "mul")
    return [r.module for r in rows if r.op in kept and r.how == "recompute" and r.role != "result"]


@pytest.mark.parametrize("block", [Block, Gated])
def test_gradients_keep_every_bit(block, way: str) -> None:
    model, x = network(block)
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    wanted = gradients(plain, x)
    for _ in range(WARM + 2):
        assert equal(gradients(model, x), wanted)
    assert act.problems == []
    assert act.repeats
    assert any("mm(" in text and answer for text, answer in _proof.answers())
    assert remade(act, x)


def test_the_first_ones_of_a_pass_and_no_more_than_a_share() -> None:
    model, x = network()
    act = tt.wrap(model, least=0)
    found = remade(act, x)
    assert found and set(found) <= {str(i) for i in range(DEPTH // 2)}
    act.remove()
    more = remade(tt.wrap(model, least=0, recompute=8), x)
    assert len(more) > len(found)


def test_none_with_cheap_operators_alone_nor_on_the_cpu(monkeypatch) -> None:
    model, x = network()
    act = tt.wrap(model, least=0, recompute=2)
    assert remade(act, x) == []
    act.remove()
    monkeypatch.undo()
    assert remade(tt.wrap(model, least=0), x) == []


def test_not_where_the_weight_itself_was_read(way: str) -> None:
    """It may be changed through .data between forward and backward; a copy of autocast's may not."""
    model, x = network()
    model = model.to(torch.bfloat16)
    _proof.forget()
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        model(x.bfloat16()).float().square().mean().backward()
    assert not any("mm(" in text for text, _ in _proof.answers())
    assert act.problems == []


def calls(step) -> dict[str, int]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    return {e.key: e.count for e in profile.key_averages()}


def test_each_is_made_once_in_a_step(way: str) -> None:
    model, x = network()
    plain = copy.deepcopy(model)
    before = calls(lambda: gradients(plain, x))
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    after = calls(lambda: gradients(model, x))
    rows = [r for r in act._learning._states.values() if r.program is not None][0].program.groups
    makers = [g.recomputation.template.op[0] for g in rows if g.recomputation is not None]
    assert makers.count("addmm") > 0
    assert after["aten::addmm"] - before["aten::addmm"] == makers.count("addmm")
    norms = "aten::native_layer_norm"
    assert after[norms] - before[norms] == makers.count("to")  # one for each layer normalization


def test_another_batch_has_a_share_of_its_own() -> None:
    model, x = network()
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, torch.cat([x] * 4))
    assert len(remade(act, x)) <= len(remade(act, torch.cat([x] * 4)))


def test_weights_and_biases_that_change_between_forward_and_backward(way: str) -> None:
    model, x = network()
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    found = []
    for net in (model, plain):
        net.zero_grad()
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            out = net(x)
        for p in net.parameters():
            p.data.mul_(1.5)
        out.float().square().mean().backward()
        found.append([p.grad.clone() for p in net.parameters()])
    assert equal(*found)
    assert act.problems == []


def test_a_bias_that_is_replaced_between_passes(way: str) -> None:
    model, x = network()
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    for net in (model, plain):
        for block in net:
            for layer in (block.qkv, block.up):
                layer.bias = nn.Parameter(torch.full_like(layer.bias, 0.25))
    for _ in range(WARM):
        assert equal(gradients(model, x), gradients(plain, x))
    assert act.problems == []


def test_settings_of_products_that_change_between_passes(way: str) -> None:
    model, x = network()
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    cuda = torch.backends.cuda.matmul
    before = cuda.allow_bf16_reduced_precision_reduction
    cuda.allow_bf16_reduced_precision_reduction = not before
    try:
        for _ in range(WARM):
            assert equal(gradients(model, x), gradients(plain, x))
    finally:
        cuda.allow_bf16_reduced_precision_reduction = before
    assert act.problems == []


def test_a_graph_that_is_kept_and_one_of_which_a_part_is_read(way: str) -> None:
    model, x = network()
    plain = copy.deepcopy(model)
    tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    found = []
    for net in (model, plain):
        given = x.clone().requires_grad_()
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(given).float().square().mean()
        one = list(torch.autograd.grad(loss, [given], retain_graph=True))
        two = list(torch.autograd.grad(loss, [given, *net.parameters()], retain_graph=True))
        three = list(torch.autograd.grad(loss, list(net.parameters())))
        found.append([*one, *two, *three])
    assert equal(*found)


def test_nothing_outlives_the_graph(way: str) -> None:
    model, x = network()
    tt.wrap(model, least=0)
    for _ in range(WARM):
        gradients(model, x)
    given = x.clone().requires_grad_()  # the graph holds it
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(given).float().square().mean()
    alive = weakref.ref(given)
    del given
    held = torch.autograd.grad(loss, [next(model.parameters())], retain_graph=True)
    assert alive() is not None
    del loss, held
    gc.collect()
    assert alive() is None


FOUR = "block_quant(bits=4, group=64, round=stochastic)"


def error(got: list[Tensor], wanted: list[Tensor]) -> float:
    a, b = (torch.cat([g.flatten().double() for g in each]) for each in (got, wanted))
    return float((a - b).norm() / b.norm())


def test_with_a_codec_scores_follow_from_what_is_stored_as_well(way: str, monkeypatch) -> None:
    model, x = network()
    wanted = gradients(model, x)
    found: dict[float, list[list[Tensor]]] = {}
    for share in (0.0, 1.0):
        monkeypatch.setitem(products.SHARE_OF_SCORES, "cpu", share)
        with tt.activations(model, least=0, codec=FOUR) as act:
            found[share] = [gradients(model, x) for _ in range(WARM + 2)]
            with torch.autocast("cpu", torch.bfloat16):
                rows = {(r.module, r.op, r.role): r.how for r in act.plan(x).rows}
            assert act.problems == [] and act.repeats
        scores = rows["1", "scaled_dot_product_flash_attention_for_cpu", "query"]
        norm = rows["1.norm1", "native_layer_norm", "input"]
        assert ("bits=8" in norm, "bits=8" in scores) == (share == 1.0, share == 0.0)
        assert rows["1", "gelu", "self"] == FOUR  # its product is not made again
    assert all(error(one, wanted) < 1.1 * error(found[0.0][-1], wanted) for one in found[1.0])
