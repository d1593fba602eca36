"""The benchmark tool: its arithmetic, and that a smoke run leaves a complete record."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is missing; ./dev bench installs it")
pytest.importorskip("PIL", reason="pillow is missing; ./dev bench installs it")

from bench.cpu import __main__ as cpu  # noqa: E402
from bench.cpu import run  # noqa: E402
from bench.record import Figure, command_line, figure_table, geometric_mean  # noqa: E402

ROOT = Path(__file__).parents[2]
TUCKFOLD = ROOT / "build/release/tuckfold"


def test_commands_read_the_same_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["x", "--out", "/a/b", "--work=/c/d", "--device", "cpu", "--names=a b"]
    monkeypatch.setattr(sys, "argv", words)
    assert command_line("run it") == "run it --out b --work=d --device cpu '--names=a b'"


def test_no_result_has_a_path_of_a_machine() -> None:
    for path in (ROOT / "bench/results").rglob("*.json"):
        commands = json.loads(path.read_text()).get("commands", [])
        found = [c for c in commands if re.search(r"(^|[\s=])/(tmp|home|root|work)\b", c)]
        assert not found, f"{path.name}: {found}"


def test_geometric_mean_of_powers_is_the_middle_power() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10.0)
    assert geometric_mean(iter([3.0])) == pytest.approx(3.0)


def test_geometric_mean_survives_products_that_overflow() -> None:
    assert geometric_mean([1e200] * 5) == pytest.approx(1e200)


def test_geometric_mean_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        geometric_mean([])


def test_a_figure_at_its_floor_passes() -> None:
    assert Figure({}, "x", 1.0, floor=1.0).verdict == "PASS"
    assert Figure({}, "x", 0.999, floor=1.0).verdict == "BELOW"
    assert Figure({}, "x", 0.999).verdict == ""


def test_floors_are_those_of_the_table() -> None:
    floors = [cpu.dct_chop_floor("pack_of_copy", 1, keep) for keep in (2, 6, 7)]
    assert floors == [1.0, 1.0, 0.85]
    floors = [cpu.dct_chop_floor("unpack_of_copy", 1, keep) for keep in (2, 6, 7)]
    assert floors == [1.15, 1.15, 0.95]
    assert cpu.dct_chop_floor("unpack_of_copy", 2, 6) == 0.95
    assert cpu.dct_chop_floor("pack_of_copy", 2, 7) == 0.80


def test_benchmarks_do_not_need_the_demo() -> None:
    for path in (ROOT / "bench").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) demo\b", path.read_text(), re.MULTILINE), path


def test_table_puts_the_figures_of_one_thing_on_one_line() -> None:
    of = {"threads": 1, "keep": 2}
    text = figure_table([Figure(of, "pack", 1.25, 1.0), Figure(of, "unpack", 0.5)])
    assert text.splitlines() == [
        "threads  keep  pack  floor        unpack",
        "      1     2  1.25   1.00  PASS    0.50",
    ]


@pytest.mark.skipif(not TUCKFOLD.exists(), reason=f"no {TUCKFOLD}; run ./dev build")
def test_quick_run_writes_a_complete_record(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.cpu", "dct_chop", "--quick", "--json-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "dct_chop_cpu.json").read_text())
    assert record["quick"]
    for key in ("date", "commit", "dirty", "cpu_target", "tuckfold"):
        assert key in record
    assert {"cpu", "cores", "kernel", "memory_gib"} <= record["machine"].keys()
    assert record["compiler"]["version"] != "unknown"
    assert len(record["commands"]) == len(run.THREADS) * len(run.QUICK_SHAPES)
    assert len(record["rows"]) == len(record["commands"]) * len(cpu.KEEPS)
    assert all(row["psnr_db"] > 20 and row["copy_gbps"] > 0 for row in record["rows"])

    assert len(record["figures"]) == 2 * len(run.THREADS) * len(cpu.KEEPS)
    figure = record["figures"][0]
    assert figure["figure"] == "pack_of_copy"
    mine = [r for r in record["rows"] if r["codec"] == "dct_chop(keep=2)" and r["threads"] == 1]
    expected = geometric_mean(r["pack_of_copy"] for r in mine)
    assert figure["value"] == pytest.approx(expected, rel=1e-4)
    assert figure["floor"] == 1.0
    assert isinstance(figure["pass"], bool)
    assert "PASS" in done.stdout or "BELOW" in done.stdout


def test_quick_run_of_op_judges_the_operators(tmp_path: Path) -> None:
    library = ROOT / "build/release/python/libtuckfold_torch.so"
    if not library.exists():
        pytest.skip(f"no {library}; run ./dev test, which installs torch")
    command = [sys.executable, "-m", "bench.cpu", "op", "--quick", "--json-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "op_cpu.json").read_text())
    assert record["torch"]
    judged = [figure["call"] for figure in record["figures"] if "floor" in figure]
    functions = ["tuckfold.torch.pack", "tuckfold.torch.unpack"]
    assert judged == ["ops.pack", "ops.unpack", "ops.unpack_into", *functions]
    assert all(row["call_s"] > 0 and row["clone_s"] > 0 for row in record["rows"])


def test_an_unknown_experiment_is_named(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "dct"])
    with pytest.raises(SystemExit) as stop:
        cpu.main()
    assert stop.value.code == 2
    assert "no experiment 'dct'; there are dct_chop" in capsys.readouterr().err
