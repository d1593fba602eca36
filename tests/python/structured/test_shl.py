"""The numbers of parameters of the butterfly paper, and that its networks train."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from bench.experiments.shl import __main__ as shl  # noqa: E402
from bench.experiments.shl import networks  # noqa: E402

ROOT = Path(__file__).parents[3]


def test_params_are_printed_as_json() -> None:
    command = [sys.executable, "-m", "bench.experiments.shl", "--params", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert [row["params"] for row in said["table_4"]] == [
        1059850,
        16390,
        14346,
        12298,
        13322,
        404490,
    ]
    assert all(row["params"] == row["printed"] for row in said["table_4"])
    assert said["butterfly_without_second_bias"] == 15366
    for row in said["table_5"]:
        assert row["first"] == row["printed_mean"]
        assert round(row["deviation"]) == row["printed_deviation"]


@pytest.mark.parametrize("method", networks.METHODS)
def test_networks_train(method: str) -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(100, networks.FEATURES), torch.randint(0, 10, (100,))
    model = networks.network(method)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    shl.train(model, x, labels, epochs=1, batch=50)
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all()
        assert not torch.equal(parameter, before[name]), name
    assert 0 <= shl.accuracy(model, x, labels) <= 100
