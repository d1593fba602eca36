"""The studies at small sizes: kernels give what they should, figures can be drawn, break-even is where it is."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch")

from bench.chart import Chart, Line  # noqa: E402
from bench.experiments import on_gpu  # noqa: E402
from bench.experiments.layers import __main__ as layers  # noqa: E402
from bench.experiments.layers import sweep  # noqa: E402
from bench.experiments.matmul import __main__ as matmul  # noqa: E402
from bench.experiments.matmul import products  # noqa: E402


def run(study, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["study", "--quick", "--out", str(out), *words])
    study.main()
    (path,) = out.glob("*.json")
    (picture,) = out.glob("*.svg")
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    return json.loads(path.read_text())


def test_charts_have_a_point_for_each_value() -> None:
    lines = [
        Line("a", [(128, 0.1), (256, 2), (512, 30)], "#333"),
        Line("b", [(128, 5)], "#f00", dots=True),
    ]
    text = Chart("t < u", "x", "y", lines, log=(True, True), marks=[(256, "here")]).svg()
    root = ElementTree.fromstring(text)
    names = {"".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")}
    assert {"t < u", "x", "y", "a", "b", "128", "512", "here"} <= names
    assert text.count("<circle") == 4 + 1  # and one in the legend


def test_products_are_right_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (products.BUILD / "build.ninja").exists():
        pytest.skip("the kernels are built in build/release, which is not there")
    said = run(matmul, monkeypatch, tmp_path)
    kernels = {(row["kind"], row["kernel"]) for row in said["rows"]}
    assert {("dense", "naive"), ("dense", "blocked"), ("dense", "vendor")} <= kernels
    assert {("sparse", name) for name in ("csr", "coo", "vendor_csr", "vendor_coo")} <= kernels
    skewed = [row for row in said["rows"] if row["kind"] == "skew"]
    assert len({row["m"] * row["n"] * row["k"] for row in skewed}) == 1
    assert {row["skew"] for row in skewed} == {1 / 16, 1 / 4, 1, 4, 16}


def test_edges_of_blocks_are_right() -> None:
    if not (products.BUILD / "build.ninja").exists():
        pytest.skip("the kernels are built in build/release, which is not there")
    blocked = products.Products("cpu").dense()["blocked"]
    for m, n, k in ((1, 1, 1), (7, 300, 65), (97, 257, 1030), (6, 256, 64)):
        a, b = torch.randn(m, n), torch.randn(n, k)
        c = torch.full((m, k), float("nan"))
        torch.testing.assert_close(blocked(a, b, c), a @ b, rtol=1e-4, atol=1e-3)


def test_break_even_is_the_least_size_from_which_all_are_faster() -> None:
    times = {"linear": (1, 4, 16, 64), "butterfly": (0.5, 5, 10, 20), "monarch": (1, 4, 16, 64)}
    rows = [
        {"layer": name, "features": 2 ** (7 + k), "batch": 16, "step_ms": ms}
        for name, all_ms in times.items()
        for k, ms in enumerate(all_ms)
    ]
    assert sweep.break_even(rows, "butterfly", 16, "step_ms") == 512
    assert sweep.break_even(rows, "monarch", 16, "step_ms") == 0


def test_sweep_measures_beside_a_roofline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--sweep", "--features", "64,128", "--batch", "16")
    said = run(layers, monkeypatch, tmp_path, *words)
    for row in said["rows"]:
        assert row["forward_ms"] > 0 and row["step_ms"] > row["forward_ms"]
        if row["layer"] != "plain butterfly":
            assert 0 < row["roofline_forward_ms"] < row["roofline_step_ms"]
    assert {figure["figure"] for figure in said["figures"]} == {
        "forward_break_even",
        "step_break_even",
    }


def test_a_study_on_a_gpu_that_fails_costs_its_own_result_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = {"bad": "none_of_that_name", "good": "layers --help", "shl": "shl --help"}
    monkeypatch.setattr(on_gpu, "STUDIES", studies)
    monkeypatch.setattr(on_gpu, "datasets", lambda: [])
    monkeypatch.setattr(
        sys, "argv", ["on_gpu", "--out", str(tmp_path), "--only", ",".join(studies)]
    )
    assert on_gpu.main() == 1
    assert "--sweep" in (tmp_path / "good.log").read_text()
    assert "none_of_that_name" in (tmp_path / "bad.log").read_text()
    assert (tmp_path / "studies.tar").exists()
    assert not (tmp_path / "shl.log").exists()  # it has no data
