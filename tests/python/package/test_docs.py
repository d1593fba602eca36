"""Every snippet of the documentation runs, and prints what the page says."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "docs/python.md", *sorted((ROOT / "docs/tasks").glob("*.md"))]
ON_A_GPU = "# on a GPU\n"  # the first line of a snippet that needs one
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[tuple[str, str | None]]:
    """Python code, and the text that stands right behind it, if there is one."""
    found: list[tuple[str, str | None]] = []
    blocks = FENCE.findall(page.read_text())
    for number, (language, code) in enumerate(blocks):
        if language == "python":
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            found.append((code, following[1] if following[0] == "text" else None))
    return found


def needs_gpu(page: Path) -> bool:
    return any(code.startswith(ON_A_GPU) for code, _ in snippets(page))


def run_snippets(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, gpu: bool) -> None:
    """In order, with the names that those before it have left."""
    monkeypatch.chdir(folder)
    names: dict = {"__name__": "__main__"}
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    for code, expected in snippets(page):
        if code.startswith(ON_A_GPU) and not gpu:
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), names)
        if expected is not None:
            assert said.getvalue() == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    run_snippets(page, tmp_path, monkeypatch, gpu=False)


@pytest.mark.gpu
@pytest.mark.parametrize("page", [p for p in PAGES if needs_gpu(p)], ids=lambda page: page.name)
def test_snippets_on_a_gpu_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU that torch can use")
    run_snippets(page, tmp_path, monkeypatch, gpu=True)


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
    example = (ROOT / "examples/pack_tensor.cc").read_text()
    for language, code in FENCE.findall((ROOT / "docs/tasks/cpp.md").read_text()):
        assert language != "cpp" or code in example


def test_the_reference_is_up_to_date() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, ROOT / "tools/api_docs.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
