"""The study of loss curves, for some steps."""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL", reason="pillow is missing; ./dev demo installs it")

from bench.experiments.loss_curves import __main__ as study  # noqa: E402


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *options: str) -> list[dict]:
    monkeypatch.setattr(sys, "argv", ["study", "--size", "test", "--out", str(out), *options])
    study.main()
    return json.loads(out.read_text())["rows"]


def test_exact_curves_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "curves.json"
    options = ("--networks", "gpt", "--seeds", "1", "--ways")
    rows = run(monkeypatch, out, *options, "plain,exact,2 bits")
    by_way = {row["way"]: row for row in rows}
    assert by_way["plain"]["loss"] == by_way["exact"]["loss"] != by_way["2 bits"]["loss"]
    assert by_way["plain"]["test_loss"] == by_way["exact"]["test_loss"]
    assert by_way["plain"]["loss"][-1] < by_way["plain"]["loss"][0]
    assert 1 == by_way["plain"]["ratio"] < by_way["exact"]["ratio"] < by_way["2 bits"]["ratio"]
    figures = {f["way"]: f["value"] for f in json.loads(out.read_text())["figures"]}
    assert figures["exact"] == 0 and set(figures) == {"exact", "2 bits"}
    picture = ET.fromstring(out.with_suffix(".svg").read_text())
    assert len([e for e in picture.iter() if e.tag.endswith("polyline")]) == 3
    assert run(monkeypatch, out, *options, "plain,exact") == rows  # nothing is trained again


def test_processes_train_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ("--networks", "gpt", "--seeds", "1")
    alone = run(monkeypatch, tmp_path / "alone.json", *options, "--ways", "plain,2 bits")
    out = tmp_path / "curves.json"
    run(monkeypatch, out, *options, "--ways", "plain")
    rows = run(monkeypatch, out, *options, "--ways", "plain,2 bits,exact", "--jobs", "2")
    assert sorted(row["way"] for row in rows) == ["2 bits", "exact", "plain"]
    losses = {row["way"]: row["loss"] for row in rows}
    assert all(losses[row["way"]] == row["loss"] for row in alone)
