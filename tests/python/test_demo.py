"""The demo, run once on few images; and its check, against pages that must not pass."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is missing; ./dev demo installs it")
pytest.importorskip("PIL", reason="pillow is missing; ./dev demo installs it")
pytest.importorskip("skimage", reason="scikit-image is missing; ./dev demo installs it")

from bench import images  # noqa: E402
from demo import DemoError, training  # noqa: E402
from demo import __main__ as demo  # noqa: E402
from demo.report import check, plots  # noqa: E402

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("TUCKFOLD", ROOT / "build/release/tuckfold")).absolute().parent
LOADING = {"img", "script", "link", "iframe", "source", "image", "use", "object", "embed"}
CANNOT_TRAIN = training.missing(BUILD / "python")
needs_training = pytest.mark.skipif(bool(CANNOT_TRAIN), reason=CANNOT_TRAIN or "-")
needs_browser = pytest.mark.skipif(check.find_browser() is None, reason="chromium is not installed")


class Page(HTMLParser):
    """What the tests ask of a report."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.alts: list[str] = []
        self.rows: list[tuple[int, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADING:
            self.loads += [given[key] or "" for key in ("src", "href", "data") if key in given]
        if tag == "img":
            self.alts.append(given.get("alt") or "")
        if tag == "tr" and "data-keep" in given:
            keep, shape, coef = (given[f"data-{key}"] or "" for key in ("keep", "shape", "coef"))
            self.rows.append((int(keep), shape, coef))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that a quick demo wrote, and what it printed."""
    if not (BUILD / "tuckfold").exists():
        pytest.skip(f"{BUILD}/tuckfold is not built; ./dev build builds it, TUCKFOLD names another")
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "demo", "--quick", "--build", BUILD, "--out", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.fixture(scope="module")
def page(made: tuple[Path, str]) -> Page:
    return Page((made[0] / "codecs.html").read_text())


@needs_training
def test_training_prints_memory_accuracy_and_time(made: tuple[Path, str]) -> None:
    lines = {line[:22].strip(): line[22:].split() for line in made[1].splitlines()}
    assert float(lines["stored for backward"][0]) > 1.5 * float(lines["stored for backward"][2])
    assert float(lines["peak of a step"][0]) > float(lines["peak of a step"][2])
    assert lines["accuracy"][0] == lines["accuracy"][1]
    assert float(lines["time"][0]) > 0


@needs_training
def test_first_page_compares_and_leads_to_the_second(made: tuple[Path, str]) -> None:
    first, second = ((made[0] / name).read_text() for name in ("report.html", "codecs.html"))
    assert "<table id=training>" in first
    assert "<td>stored for backward</td>" in first
    assert 'href="codecs.html"' in first
    assert 'href="report.html"' in second
    assert check.outside_loads(first) == []


def test_training_that_cannot_be_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tuckfold_python" in training.missing(tmp_path)
    monkeypatch.setattr(training, "find_spec", lambda _: None)
    assert training.missing(tmp_path) == "torch is missing"


def test_different_weights_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Path, *arguments: str) -> dict[str, object]:
        weights = "a" if "--wrapped" in arguments else "b"
        return dict(
            zip(training.Trained.__annotations__, (1, 1, 1, 1, weights, 1, 1, 1, 1), strict=True)
        )

    monkeypatch.setattr(training, "run", run)
    with pytest.raises(DemoError, match="different weights"):
        training.compare(tmp_path, True, tmp_path / "report.html")


def test_report_loads_nothing_from_outside(page: Page) -> None:
    assert page.loads
    assert [load[:60] for load in page.loads if not load.startswith("data:")] == []


def test_style_loads_nothing_from_outside(made: tuple[Path, str]) -> None:
    assert check.outside_loads((made[0] / "codecs.html").read_text()) == []


def test_every_picture_has_an_alt_text(page: Page) -> None:
    assert len(page.alts) >= 8
    assert all(page.alts)


def test_table_has_a_row_for_every_keep(page: Page) -> None:
    squares = [keep for keep, shape, coef in page.rows if (shape, coef) == ("square", "f32")]
    assert squares == list(range(1, 9))
    assert any(shape == "triangle" for _, shape, _ in page.rows)
    assert any(coef == "f16" for _, _, coef in page.rows)


def test_terminal_table_is_narrow_and_ends_with_the_report(made: tuple[Path, str]) -> None:
    out, printed = made
    lines = printed.splitlines()
    table = [line for line in lines if str(out) not in line]
    assert max(map(len, table)) <= 100
    assert sum(line.startswith("dct_chop(keep=") for line in table) >= 10
    first = "codecs.html" if CANNOT_TRAIN else "report.html"
    assert lines[-1].endswith(str(out / first))


@needs_browser
def test_report_is_photographed(made: tuple[Path, str]) -> None:
    assert (made[0] / "codecs.png").stat().st_size > 100_000


def test_missing_browser_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_browser", lambda: None)
    demo.check(tmp_path / "report.html")
    assert capsys.readouterr().out == "report not checked: chromium is not installed\n"


GOOD = f"<!doctype html><title>t</title><script>{(ROOT / 'demo/report/report.js').read_text()}</script>"
BAD = {
    "<script>throw new Error('thrown')</script>": "thrown",
    "<script>console.error('complaint')</script>": "complaint",
    "<img src='data:image/png;base64,AAAA' alt='torn'>": "cannot decode: torn",
    "<img src='https://example.org/a.png' alt='far'>": "loads https://example.org/a.png",
    "<div style='width: 3000px'>wide</div>": "wider than its window",
}


def found_in(tmp_path: Path, text: str) -> list[str]:
    browser = check.find_browser()
    assert browser is not None
    file = tmp_path / "page.html"
    file.write_text(text)
    return check.problems(file, browser)[0]


@needs_browser
def test_check_passes_a_good_page(tmp_path: Path) -> None:
    assert found_in(tmp_path, GOOD) == []


@needs_browser
def test_check_names_every_problem(tmp_path: Path) -> None:
    found = "\n".join(found_in(tmp_path, GOOD + "".join(BAD)))
    assert [words for words in BAD.values() if words not in found] == []


@needs_browser
def test_check_fails_a_page_whose_script_is_broken(tmp_path: Path) -> None:
    found = found_in(tmp_path, GOOD.replace("const root", "const const root"))
    assert any("did not run to its end" in words for words in found)


def test_missing_program_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="./dev build"):
        demo.Tool(tmp_path / "tuckfold")


def test_wrong_data_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUCKFOLD_DATA", "/no/such/folder")
    with pytest.raises(images.ImagesError, match="/no/such/folder"):
        images.data_folder()


@pytest.mark.parametrize("top", [0.03, 1.0, 9.9, 27.4, 74.0, 2000.0])
def test_axis_reaches_the_largest_value(top: float) -> None:
    end, ticks = plots.ticks_to(top)
    assert top <= end <= 1.5 * top
    assert 3 <= len(ticks) <= 7
