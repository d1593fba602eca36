"""wrap, activations, plan, check, report and the files that they read and write."""

import copy
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tuckfold.torch as tt  # noqa: E402
from nets import alexnet_like, gradients, images, made, resnet_like, same, stored  # noqa: E402


def test_plan_leaves_the_model_as_it_was() -> None:
    model = made(resnet_like)
    model(images()).sum().backward()
    before = [
        t.clone()
        for t in (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))
    ]
    random = torch.get_rng_state()
    with tt.activations(model, least=0) as act:
        act.plan(images())
        tt.check(model, images())
    after = (*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))
    assert all(map(same, before, after))
    assert torch.equal(random, torch.get_rng_state())
    assert not model[0]._forward_hooks
    assert not model._forward_hooks


def test_the_plans_table() -> None:
    with tt.activations(made(alexnet_like), least=0) as act:
        plan = act.plan(images())
    text = str(plan)
    assert re.search(
        r"^2 +max_pool2d_with_indices +result1 +4x16x16x16 +int64 +pool index +128.0 KiB +4.0 KiB$",
        text,
        re.M,
    )
    assert text.splitlines()[-2].startswith(f"{plan.before / 1024:.1f} KiB are saved")
    assert plan.after == sum(row.after for row in plan.rows)


def test_a_saved_plan_does_the_same(tmp_path: Path) -> None:
    model = made(alexnet_like)
    with tt.activations(model, least=0) as act:
        first = act.plan(images())
        act.save(tmp_path / "plan.toml")
    with tt.activations(model, least=0, plan=tmp_path / "plan.toml") as act:
        assert stored(act.plan(images())) == stored(first)
    text = (tmp_path / "plan.toml").read_text()
    (tmp_path / "plan.toml").write_text(re.sub('how = ".*"', 'how = "keep"', text))
    with tt.activations(model, least=0, plan=tmp_path / "plan.toml") as act:
        assert {row.how for row in act.plan(images()).rows} == {"keep"}


def test_plans_and_reports_need_a_plan(tmp_path: Path) -> None:
    with tt.activations(made(alexnet_like)) as act:
        with pytest.raises(ValueError, match=r"\[save\] there is no plan yet"):
            act.save(tmp_path / "plan.toml")
        with pytest.raises(ValueError, match=r"\[report\] there is no plan yet"):
            act.report(tmp_path / "run.html")


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ('match = "1"', {("relu", "result"), ("max_pool2d_with_indices", "self")}),
        ('type = "MaxPool*"', {("max_pool2d_with_indices", "result1"), ("relu", "result")}),
        ('op = "max_pool2d*"', {("max_pool2d_with_indices", "result1"), ("relu", "result")}),
    ],
)
def test_rules(tmp_path: Path, rule: str, kept: set) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f'# a comment\n[[rule]]\n{rule}  # another\nstore = "keep"\n')
    with tt.activations(made(alexnet_like), least=0, rules=path) as act:
        found = stored(act.plan(images()))
    assert all("keep" in found[key] for key in kept)
    assert any(how != {"keep"} for how in found.values())


def test_pack_means_no_recompute(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nstore = "pack"\n')
    with tt.activations(made(resnet_like), least=0, rules=path) as act:
        hows = {row.how for row in act.plan(images()).rows}
    assert "pool index" in hows
    assert "recompute" not in hows


def test_a_rule_that_fits_nothing_warns_with_the_nearest_names(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nmatch = "layer1.cnv1"\nstore = "keep"\n[[rule]]\ntype = "Conv3d"\n')
    model = nn.Sequential()
    model.add_module("layer1", nn.Sequential())
    model.layer1.add_module("conv1", nn.Conv2d(3, 3, 1))
    with pytest.warns(UserWarning) as warned, tt.activations(model, rules=path):
        pass
    assert 'match = "layer1.cnv1" fits no module; nearest: layer1.conv1' in str(warned[0].message)
    assert 'type = "Conv3d" fits no module; nearest: Conv2d' in str(warned[1].message)
    with pytest.warns(UserWarning) as wrapped:
        tt.wrap(model, rules=path)
    assert {w.filename for w in (*warned, *wrapped)} == {__file__}  # not a line of ours


def test_a_rule_for_an_operator_that_is_not_there_warns_once(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nop = "max_pol2d*"\nstore = "keep"\n[[rule]]\nop = "relu"\n')
    model = made(alexnet_like)
    tt.wrap(model, least=0, rules=path)
    with pytest.warns(UserWarning) as warned:
        model(images())
        model(images())
    assert {w.filename for w in warned} == {__file__}
    (message,) = {str(w.message) for w in warned}
    assert 'op = "max_pol2d*" fits no operator that saved a tensor; nearest: max_pool2d' in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[rule]]\nmatch = ""\n', '2:1: match must be text in quotes, "*" for any, got \'\''),
        ('[[rule]]\nop = ""\n', '2:1: op must be text in quotes, "*" for any, got \'\''),
        ("[[rule]]\nop = 3\n", "2:1: op must be text in quotes"),
        ("[[rule]]\nstore = keep\n", "2:9: expected a value: text in quotes, a whole number, true or false\n  store = keep\n          ^"),
        ('[[rule]]\nstore = "keep\n', '2:9: the text has no closing quote\n  store = "keep\n          ^'),
        ("[[rule]]\nstore\n", "2:1: expected a line like"),
        ('store = "keep"\n', "1:1: values come after a line"),
        ("[rule]\n", "1:1: a table is written [[rule]] or [[tensor]]\n  [rule]\n  ^"),
        ("[[rulle]]\n", "1:1: unknown table rulle, expected rule"),
        ('[[rule]]\nstroe = "keep"\n', "2:1: unknown key stroe, expected one of match, type, op, store"),
        ("[[rule]]\nstore = 3\n", "2:1: store must be one of auto, pack, keep, cpu, or a codec, got 3"),
        (
            '[[rule]]\ntype = "ReLU"\nstore = "zip"\n',
            "3:1: store must be one of auto, pack, keep, cpu, or a codec, got 'zip': unknown codec 'zip'; did you mean 'zfp'?",
        ),
        ('[[rule]]\nop = "a"\nop = "b"\n', "3:1: op is given twice"),
        ('[[rule]]\nop = "a" b\n', "2:10: nothing may follow a value on its line"),
        ('[[rule]]\nop = "\\q"\n', "2:7: an escape is one of"),
    ],
)  # fmt: skip
def test_malformed_files_show_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    model = made(alexnet_like)
    with pytest.raises(tt.PlanError) as caught:
        tt.wrap(model, rules=path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    tt.wrap(model).remove()  # no hook is left


def test_plans_and_rules_are_utf_8(tmp_path: Path) -> None:
    model, path = made(alexnet_like), tmp_path / "rules.toml"
    path.write_bytes(b'[[rule]]\nstore = "k\xff"\n')
    with pytest.raises(tt.PlanError, match="not UTF-8"):
        tt.wrap(model, rules=path)
    path.write_bytes(b'\xef\xbb\xbf[[rule]]\nstore = "keep"\n')  # as some editors begin a file
    tt.wrap(model, rules=path).remove()


def test_a_plan_with_an_unknown_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('[[tensor]]\nmodule = "0"\nhow = "bogus"\n')
    with pytest.raises(tt.PlanError, match="3:1: how must be one of keep, nothing"):
        tt.wrap(made(alexnet_like), plan=path)


def test_bad_calls() -> None:
    model = made(alexnet_like)
    for least in ("a", -1, 1.5):
        with pytest.raises(ValueError, match=r"\[wrap\] least must be a number of bytes"):
            tt.wrap(model, least=least)
    act = tt.wrap(model)
    with pytest.raises(ValueError, match=r"\[wrap\] the model is wrapped already"):
        tt.wrap(model)
    act.remove()
    act.remove()
    tt.wrap(model).remove()
    with pytest.raises(ValueError, match=r"\[wrap\] model must be a torch.nn.Module, got function"):
        tt.wrap(gradients)
    for recompute in (-1, "cheap", None, 1.5):
        with pytest.raises(ValueError, match=r"\[wrap\] recompute must be True, False or a number"):
            tt.wrap(model, recompute=recompute)
    with pytest.raises(ValueError, match="not both"):
        tt.wrap(model, plan="a", rules="b")


def test_a_model_that_saves_nothing_is_said_to() -> None:
    model = made(alexnet_like).requires_grad_(False)
    with tt.activations(model) as act, pytest.warns(UserWarning, match="saved no tensors"):
        assert act.plan(images()).rows == []


def test_a_wrapped_part_of_a_wrapped_model() -> None:
    model = made(resnet_like)
    plain = copy.deepcopy(model)
    inner, outer = tt.wrap(model[4], least=0), tt.wrap(model, least=0)
    assert all(map(same, gradients(model, images()), gradients(plain, images())))
    outer.remove()
    assert all(map(same, gradients(model, images()), gradients(plain, images())))
    inner.remove()


def test_check() -> None:
    model = made(resnet_like)
    result = tt.check(model, (images(), torch.arange(4)), loss=nn.functional.cross_entropy, least=0)
    assert result.ok
    assert result.repeatable
    assert [p.name for p in result.parameters] == [name for name, _ in model.named_parameters()]
    assert result.loss == result.wrapped_loss
    assert result.stored < result.saved
    assert "every bit is the same" in str(result)


def test_check_sees_a_wrong_gradient(monkeypatch) -> None:
    from tuckfold.torch._activations import _forms

    monkeypatch.setenv("TUCKFOLD_HOOKS", "python")  # where there is something to break
    right = _forms.Bits.decode
    monkeypatch.setattr(_forms.Bits, "decode", lambda self, handle: right(self, handle).flip(0))
    result = tt.check(made(alexnet_like), images(), least=0)
    assert not result.ok
    assert min(p.cosine for p in result.parameters) < 0.999
    assert "gradients differ" in str(result)


def test_report(tmp_path: Path) -> None:
    from demo.report import check

    with tt.activations(made(resnet_like), least=0) as act:
        plan = act.plan(images())
        act.report(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert page.count("<tr><td>") > len(plan.rows)
    assert (
        f"A training step takes {str(plan.step).partition('takes ')[2]}." in page
    )  # KiB stays KiB
    assert check.outside_loads(page) == []
    browser = check.find_browser()
    if browser is None:
        pytest.skip("chromium is not installed")
    assert check.problems(tmp_path / "run.html", browser)[0] == []
    document, _ = check.browse(browser, tmp_path / "run.html", "--dump-dom")
    assert check.root_facts(document)["rows"] == str(len(plan.rows))
