"""Every snippet of the documentation runs, and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from snippets import FENCE, run_snippets, snippets

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/activations.md",
    ROOT / "docs/python.md",
    ROOT / "docs/structured.md",
    *sorted((ROOT / "docs/tasks").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # else what other tests have compiled counts towards its limits
    monkeypatch.chdir(tmp_path)
    run_snippets(page, gpu=False)


def test_pages_without_python_are_known() -> None:
    assert {page.name for page in PAGES if not snippets(page)} <= {"cpp.md"}


def test_every_task_is_listed() -> None:
    listed = (ROOT / "docs/python.md").read_text()
    for page in (ROOT / "docs/tasks").glob("*.md"):
        assert f"tasks/{page.name}" in listed


def test_links_of_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "docs/api.md"]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page, target)


def test_cpp_on_its_page_is_that_of_the_example() -> None:
    example = "".join(
        (ROOT / "examples" / name).read_text() for name in ("pack.cc", "pack_tensor.cc", "train.cc")
    )
    for language, code in FENCE.findall((ROOT / "docs/tasks/cpp.md").read_text()):
        assert language != "cpp" or code in example


def test_c_on_its_page_is_that_of_the_example() -> None:
    example = (ROOT / "examples/files.c").read_text()
    found = [
        code
        for language, code in FENCE.findall((ROOT / "docs/tasks/c.md").read_text())
        if language == "c"
    ]
    assert found and all(code in example for code in found)


def test_the_reference_is_up_to_date() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, ROOT / "docs/generate/api.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_blocks_is_up_to_date() -> None:
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.11."):
        pytest.skip("what operators save is another matter in another torch")
    command = [sys.executable, ROOT / "docs/generate/blocks.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tables_of_figures_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "docs/generate/benchmarks.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
