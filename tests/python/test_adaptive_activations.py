"""The study of scores: its choice, its file that is gone on with, its figure; trained for some steps on Fashion-MNIST."""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL", reason="pillow is missing; ./dev demo installs it")

from bench.experiments.adaptive_activations import __main__ as study  # noqa: E402
from bench.experiments.adaptive_activations import data, scores  # noqa: E402
from bench.images import FASHION_MNIST  # noqa: E402

needs_images = pytest.mark.skipif(
    not FASHION_MNIST.exists(), reason="Debian's package dataset-fashion-mnist is missing"
)


def table() -> scores.Table:
    """Two tensors; the codecs of b have ten times the noise."""
    codecs = {f"bits={b}": (0.2 / 4**b, 10 * b) for b in range(1, 9)}
    codecs[scores.EXACT] = (0.0, 320)
    return {
        (("a", "convolution"),): codecs,
        (("b", "convolution"),): {c: (10 * noise, size) for c, (noise, size) in codecs.items()},
    }


def test_a_score_is_one_for_exact_storage_and_a_half_at_the_most_noise() -> None:
    assert scores.score(0.0, 7) == 1
    assert scores.score(scores.MOST_NOISE / 7, 7) == pytest.approx(0.5)
    assert scores.score(float("nan"), 7) == 0


def test_the_choice_has_the_average_that_is_asked_for_and_few_bytes() -> None:
    found = table()
    codecs = tuple(next(iter(found.values())))
    sizes = []
    for target in (0.5, 0.7, 0.9, 0.99):
        choice, average = scores.chosen(found, codecs, target)
        each = {g: scores.score(found[g][c][0], 2) for g, c in choice.items()}
        assert average == pytest.approx(sum(each.values()) / 2) and average >= target
        a, b = (found[g][c][1] for g, c in choice.items())
        assert a < b  # what is noisier has more bits
        sizes.append(a + b)
        # One step less for either would fall below the least score, or the average.
        for group, codec in choice.items():
            smaller = [c for c in codecs if found[group][c][1] < found[group][codec][1]]
            assert all(scores.score(found[group][c][0], 2) < each[group] for c in smaller)
    assert sizes == sorted(sizes)
    choice, average = scores.chosen(found, (), 0.7)
    assert average == 1 and set(choice.values()) == {scores.EXACT}


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *options: str) -> list[dict]:
    monkeypatch.setattr(sys, "argv", ["study", "--size", "test", "--out", str(out), *options])
    study.main()
    return json.loads(out.read_text())["rows"]


@needs_images
@pytest.mark.parametrize(
    "network", ["alexnet", pytest.param("transformer", marks=pytest.mark.slow)]
)
def test_a_run_goes_on_where_the_last_one_stopped(
    network: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scores, "FAMILIES", {"block_quant": scores.LADDERS["block_quant"][1:4:2]})
    out = tmp_path / "study.json"
    options = ("--networks", network, "--families", "exact,block_quant", "--seeds", "1")
    first = run(monkeypatch, out, *options, "--targets", "0.5")
    assert [row["family"] for row in first] == ["exact", "block_quant"]
    assert (
        first[0]["ratio"] < first[1]["ratio"] and first[0]["score"] == 1 > first[1]["score"] >= 0.5
    )
    assert any(codec.startswith("block_quant") for codec in first[1]["choice"].values())
    again = run(monkeypatch, out, *options, "--targets", "0.5,0.7")
    assert again[:2] == first and [row["target"] for row in again] == [1.0, 0.5, 0.7]
    assert run(monkeypatch, out, *options, "--minutes", "0", "--targets", "0.9") == again
    figures = json.loads(out.read_text())["figures"]
    lost = first[0]["accuracy"] - again[2]["accuracy"]
    assert [f["value"] for f in figures] == [pytest.approx(lost, abs=1e-3)]
    picture = ET.fromstring(out.with_suffix(".svg").read_text())
    assert len([e for e in picture.iter() if e.tag.endswith("polyline")]) >= 2
    out.write_text(out.read_text().replace('"steps": 24', '"steps": 25'))
    with pytest.raises(SystemExit, match="other settings"):
        run(monkeypatch, out, *options)


@pytest.mark.slow
def test_cora_is_read_without_running_what_a_pickle_names() -> None:
    found = data.data_folder()
    if found is None or not (found / "planetoid").is_dir():
        pytest.skip("no Cora; set TUCKFOLD_DATA to a folder that has planetoid/")
    x, graph, y, parts = data.cora()
    assert x.shape == (2708, 1433) and graph.shape == (2708, 2708) and len(y) == 2708
    assert torch.allclose(x.sum(1), torch.ones(2708)) and len(parts["test"]) == 1000
    assert int(graph._nnz()) == 13264  # 5278 edges, both ways, and a loop each


def test_a_pickle_that_names_others_is_refused(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "bad"
    path.write_bytes(pickle.dumps(print))
    with (
        path.open("rb") as file,
        pytest.raises(pickle.UnpicklingError, match="names builtins.print"),
    ):
        data._Reader(file).load()
