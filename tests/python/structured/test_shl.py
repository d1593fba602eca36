"""The studies of the butterfly paper: numbers of parameters, and training that can be stopped."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bench.experiments.shl import data, networks  # noqa: E402
from bench.experiments.shl.data import Data  # noqa: E402
from bench.experiments.shl.train import accuracy, together, train, training  # noqa: E402
from tuckfold._study import _params  # noqa: E402
from tuckfold._study.__main__ import STUDIES  # noqa: E402

ROOT = Path(__file__).parents[3]


def study(*words: str, cwd: Path = ROOT, exit: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuckfold._study", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == exit, done.stderr
    return done


def test_table_4_is_printed_as_json(tmp_path: Path) -> None:
    said = json.loads(study("shl", "--params", "--json", cwd=tmp_path).stdout)
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


def test_table_5_to_the_unit(tmp_path: Path) -> None:
    rows = json.loads(study("pixelfly", "--params", "--json", cwd=tmp_path).stdout)["table_5"]
    assert [row["first"] for row in rows] == [1064970, 81930, 344074]
    assert [round(row["deviation"]) for row in rows] == [326625, 184638, 181317]
    assert [round(row["mean"]) for row in rows] == [450570, 262154, 470538]
    assert rows[1]["fixed"] == {"butterfly": 2**7, "rank": 2**1}
    for row in rows:
        assert row["first"] == row["printed_mean"]
        assert round(row["deviation"]) == row["printed_deviation"]


def test_counts_are_those_of_the_modules() -> None:
    for method, (text, _) in _params.METHODS.items():
        for features in (1024, 784):
            want = _params.count(text, features, _params.biases_of(method))
            assert networks.network(method, features).count() == want
    text = _params.SWEEPS[0].texts()[3]
    assert networks.SHL(text, biases=2).count() == _params.count(text, biases=2)


def test_counts_load_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys, tuckfold._study.__main__ as study\n"
        "study.main(['shl', '--params'])\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert time.perf_counter() - start < 10  # a second on a quiet machine; torch alone takes longer


def test_wrong_words_are_named(tmp_path: Path) -> None:
    assert "did you mean pixelfly?" in study("pixlefly", exit=2).stderr
    assert "--params counts shl and pixelfly" in study("layers", "--params", exit=2).stderr
    assert "--params takes --json alone" in study("shl", "--params", "--epochs", exit=2).stderr
    assert "in a clone" in study("shl", cwd=tmp_path, exit=2).stderr
    listed = study().stdout
    assert all(name in listed for name in STUDIES)


def test_studies_are_found_from_folders_of_the_sources() -> None:
    for name in STUDIES:
        assert "--device" in study(name, "--help", cwd=ROOT / "docs").stdout


def samples(features: int = networks.FEATURES) -> Data:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(120, features, generator=generator)
    labels = torch.randint(0, 10, (120,), generator=generator)
    return Data((x[:100], labels[:100]), (x[100:], labels[100:]), (x[100:], labels[100:]))


@pytest.mark.parametrize("method", _params.METHODS)
def test_networks_train(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = networks.network(method)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    curve = train(model, samples(), 1, 50, tmp_path / "run.pt")
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all()
        assert not torch.equal(parameter, before[name]), name
    assert 0 <= accuracy(model, *samples().test) == curve.test[0] <= 100


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    weights, curves = [], []
    for stops in ((4,), (1, 3, 4)):
        file = tmp_path / f"{len(stops)}.pt"
        for epochs in stops:
            torch.manual_seed(0)
            model = networks.network("butterfly", 256)
            curve = train(model, samples(256), epochs, 50, file)
        weights.append(model.state_dict())
        curves.append(curve)
    assert curves[0].test == curves[1].test and curves[0].loss == curves[1].loss
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name
    assert not list(tmp_path.glob("*.new"))


def test_networks_side_by_side_come_to_the_weights_that_they_come_to_alone(tmp_path: Path) -> None:
    def model(seed: int) -> networks.SHL:
        torch.manual_seed(seed)
        return networks.network("butterfly", 256)

    alone, beside = [model(0), model(1)], [model(0), model(1)]
    curves = [
        train(m, samples(256), 1 + n, 50, tmp_path / f"alone{n}.pt", n) for n, m in enumerate(alone)
    ]
    runs = [
        training(m, samples(256), 1 + n, 50, tmp_path / f"beside{n}.pt", n)
        for n, m in enumerate(beside)
    ]
    same = together(runs)
    assert [c.test for c in same] == [c.test for c in curves] and len(same[1].test) == 2
    for one, other in zip(alone, beside, strict=True):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_grey_images_travel_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the nearest; CIFAR-10 itself gives the means of three colours."""
    labels = np.arange(12, dtype=np.uint8)
    for part in data.PARTS:
        labels.tofile(tmp_path / f"{part}_labels.u8")
    colour = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), np.uint8)
    monkeypatch.setattr(data, "_colour_cifar10", lambda part: (colour, tmp_path))
    monkeypatch.setattr(data, "data_folder", lambda: None)
    exact, _ = data._grey_cifar10("train")
    data.pack_grey(tmp_path, at_once=5)
    monkeypatch.setattr(data, "data_folder", lambda: tmp_path)
    rounded, kept = data._grey_cifar10("train")
    assert exact.shape == rounded.shape == (12, 1024)
    assert np.abs(exact - rounded).max() < 0.34 and np.array_equal(rounded, np.rint(exact))
    assert np.array_equal(kept, labels)
