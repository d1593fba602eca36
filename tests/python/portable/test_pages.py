"""The pages about exported codecs and devices say what the tool does."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, TOOL

PAGE = (ROOT / "docs/portable.md").read_text()
COMMANDS = re.findall(r"^    \$ tuckfold (.+)\n((?:    (?!\$).*\n)*)", PAGE, re.MULTILINE)


def test_commands_print_what_the_page_says(tmp_path: Path) -> None:
    assert len(COMMANDS) == 3
    for command, expected in COMMANDS:
        done = subprocess.run(["bash", "-c", f"{TOOL} {command}"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.stderr == "" and done.stdout
        if expected:
            assert done.stdout == re.sub("^    ", "", expected, flags=re.MULTILINE)


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    subprocess.run(["bash", "-c", f"{TOOL} {COMMANDS[0][0]}"], cwd=tmp_path, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "codec", raising=False)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (expected,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "docs/portable.md", "exec"), {})
    assert said.getvalue() == expected


def test_the_page_of_devices_is_up_to_date() -> None:
    command = [sys.executable, ROOT / "docs/generate/devices.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_somewhere() -> None:
    for page in ROOT / "docs/portable.md", ROOT / "docs/devices.md":
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page, target)
