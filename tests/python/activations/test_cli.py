"""tuckfold activations plan, check and report."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 2, 3))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(50, 8), nn.LayerNorm(8), nn.Linear(8, 50))
    def forward(self, x):
        return self.net(x.clone())

def broken():
    return 1 / 0

def normed():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 3))

number = 3
make_number = lambda: 3
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch, capsys):
    """Runs it here; one more test runs it as a program."""
    from tuckfold.torch._activations.__main__ import main

    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(list(words))
        except SystemExit as stop:  # of argparse
            code = int(str(stop.code))
        return (code, *capsys.readouterr())

    return run


def test_the_tool_of_the_package_runs_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    code = "from tuckfold._tool import main; main()"
    words = ["activations", "check", "model.py:build", "--input", "2,3,8,8"]
    assert (
        'tuckfold-activations = "tuckfold._tool:activations"'
        in (ROOT / "pyproject.toml").read_text()
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("every bit is the same\n")


def test_plan_check_and_report(cli, tmp_path: Path) -> None:
    image = ("--input", "4,3,32,32", "--least", "0")
    code, out, error = cli("plan", "model.py:build", *image, "--out", "plan.toml")
    assert (code, error) == (0, "")
    assert "max_pool2d_with_indices" in out
    assert "pool index" in (tmp_path / "plan.toml").read_text()
    code, out, error = cli(
        "check", "model:build", *image, "--autocast", "bfloat16", "--plan", "plan.toml"
    )
    assert (code, error) == (0, "")
    assert out.endswith("every bit is the same\n")
    code, out, error = cli(
        "report", "model.py:build", *image, "--channels-last", "--out", "run.html"
    )
    assert (code, error) == (0, "")
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")
    _, out, _ = cli("plan", "model.py:Words", "--input", "4,16", "--tokens", "50", "--least", "0")
    assert "narrow" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "model.py:none", "--input", "1"), "model.py has no none"),
        (("plan", "other.py:build", "--input", "1"), "there is no file other.py"),
        (("plan", "othermodule:build", "--input", "1"), "No module named 'othermodule'"),
        (("plan", "build", "--input", "1"), "expected MODULE:FUNCTION, got 'build'"),
        (("plan", "model.py:make_number", "--input", "1"), "made a int, not a module"),
        (("plan", "model.py:build", "--input", "1,x"), "must be sizes like 64,3,224,224, got '1,x'"),
        (("report", "model.py:build", "--input", "1"), "report needs --out FILE.html"),
        (("plan", "model.py:build", "--input", "1", "--rules", "none.toml"), "No such file"),
    ],
)  # fmt: skip
def test_errors(cli, words: tuple[str, ...], message: str) -> None:
    code, _, error = cli(*words)
    assert code == 2
    assert message in error


def test_a_model_that_fails_is_not_a_difference(cli) -> None:
    code, out, error = cli("check", "model.py:build", "--input", "2,4,8,8")
    assert code == 2 and out == ""
    assert "tuckfold activations: the model failed: RuntimeError: " in error
    assert "Traceback" in error
    code, _, error = cli("check", "model.py:broken", "--input", "2,4,8,8")
    assert code == 2 and "the model failed: ZeroDivisionError" in error


def test_how_many_operators_may_be_run_again(cli) -> None:
    plans = [cli("plan", "model.py:normed", "--input", "2,3,64,64", "--recompute", n) for n in "02"]
    assert "recompute" not in plans[0][1] and "recompute" in plans[1][1]
    assert cli("plan", "model.py:build", "--input", "2,3,8,8", "--recompute", "-1")[0] == 2


def test_codecs_and_budgets(cli) -> None:
    image = ("--input", "4,3,32,32", "--least", "1024")
    code, out, error = cli("check", "model.py:normed", *image, "--codec", "block_quant(bits=8)")
    assert (code, error) == (0, "") and "by less than what is safe" in out and "cosine" in out
    code, out, error = cli("check", "model.py:normed", *image, "--codec", "block_quant(bits=1)")
    assert code == 1 and out.endswith("gradients differ, by more than what is safe\n")
    code, out, error = cli("plan", "model.py:normed", *image, "--budget", "1GiB", "--out", "p.toml")
    assert (code, error) == (0, "") and "of a budget of 1.00 GiB" in out
    code, out, error = cli("plan", "model.py:normed", *image, "--noise", "1%")
    assert (code, error) == (0, "") and "native_batch_norm.input" in out
    code, out, error = cli("plan", "model.py:normed", *image, "--budget", "10KB")
    assert code == 2 and "[wrap] budget=9.8 KiB cannot be kept: the smallest peak" in error
    code, out, error = cli("plan", "model.py:normed", *image, "--codec", "block_qant")
    assert code == 2 and "block_quant" in error


COMPRESSNN = """{"default": {"compressor": "nocompress"},
 "layer_type": {"Conv2d": {"compressor": "cuszp", "error_mode": "rel", "error_bound": 1e-3}},
 "layer_number": {"2": {"compressor": "cuszp", "error_mode": "abs", "error_bound": 0.5}, "1": {"compressor": "cpu"}}}"""


def test_tensors_in_the_memory_of_the_cpu(cli) -> None:
    common = ("model.py:build", "--input", "8,3,64,64", "--least", "1")
    code, out, _ = cli("check", *common, "--offload")
    assert code == 0 and "bit" in out
    code, out, _ = cli("plan", *common, "--offload")
    assert code == 0 and " cpu " in out
    code, _, err = cli("plan", *common, "--offload", "25GB")
    assert code == 2 and "such as 25GB/s" in err


def test_import_of_compressnn(cli, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(COMPRESSNN)
    words = ("import", "c.json", "--model", "model.py:build", "--out", "rules.toml")
    assert cli(*words) == (0, "", "")
    lines = (tmp_path / "rules.toml").read_text().splitlines()
    assert 'store = "bounded(rel=0.001)"' in lines and 'match = "2"' in lines
    assert 'store = "cpu"' in lines
    image = ("--input", "4,3,32,32", "--least", "0", "--rules", "rules.toml")
    code, out, error = cli("plan", "model.py:build", *image)
    assert (code, error) == (0, "")
    stored = {
        line.split()[0:2][-1] + line.split()[0]: line
        for line in out.splitlines()
        if line[:1].isdigit()
    }
    assert "1 bit" not in stored["max_pool2d_with_indices2"]
    assert "bounded(rel=0.001)" in stored["convolution3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "c.json: Expecting"),
        ("[]", "expected an object with default, layer_type, layer_number"),
        ('{"layers": {}}', "unknown key layers"),
        ('{"default": {"compressor": "zip"}}', "default: compressor must be cuszp, nocompress, cpu, got 'zip'"),
        ('{"default": 3}', 'default must be an object with a "compressor"'),
        ('{"default": {"compressor": "cuszp"}}', "error_bound must be above 0, got None"),
        ('{"default": {"compressor": "cuszp", "error_bound": -1}}', "error_bound must be above 0, got -1"),
        ('{"default": {"compressor": "cuszp", "error_bound": 1, "error_mode": "x"}}', "error_mode must be abs or rel"),
        ('{"layer_number": {"0": {"compressor": "cpu"}}}', "give --model MODULE:FUNCTION"),
        ('{"layer_type": 3}', "layer_type must be an object"),
    ],
)  # fmt: skip
def test_wrong_configurations_of_compressnn(cli, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.json").write_text(text)
    code, out, error = cli("import", "c.json")
    assert (code, out) == (2, "") and message in error, error


def test_layer_numbers_are_of_the_model(cli, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"layer_number": {"4": {"compressor": "cpu"}}}')
    code, _, error = cli("import", "c.json", "--model", "model.py:build")
    assert code == 2 and "layer_number must be 0..3, got '4'" in error
