"""Which files clang-tidy is run on: a stand-in for it notes what it was given."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "tidy_changed.py"
STAND_IN = """#!/bin/sh
for file; do :; done
echo "looked at $file"
! grep -q wrong "$file"
"""


class Tree:
    """A repository with a build folder that compiles all of its .cc files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        (root / "tidy").write_text(STAND_IN)
        (root / "tidy").chmod(0o755)
        (root / "build").mkdir()
        (root / ".gitignore").write_text("/build/\n/tidy\n")

    def git(self, *args: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *args], cwd=self.root, check=True, capture_output=True)

    def commit(self, **files: str) -> None:
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / f"{name}.cc").write_text(text)

    def tidy(self, *args: str) -> tuple[int, str]:
        files = [path.name for path in self.root.glob("*.cc") if path.name != "unbuilt.cc"]
        commands = [{"directory": str(self.root), "file": file, "command": ""} for file in files]
        (self.root / "build" / "compile_commands.json").write_text(json.dumps(commands))
        run = subprocess.run(
            [sys.executable, TOOL, "--build", "build", "--tidy", "./tidy", *args],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        return run.returncode, run.stdout + run.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_files_of_the_last_commit_and_of_the_working_tree(tree: Tree) -> None:
    tree.commit(old="1", kept="1")
    tree.commit(old="2 wrong", gone="1")
    (tree.root / "gone.cc").unlink()
    tree.write(new="1", unbuilt="wrong")
    status, text = tree.tidy()
    assert status == 1
    assert "looked at old.cc" in text
    assert "2 of 2 files" in text
    assert "found something in old.cc" in text
    assert "kept" not in text
    assert "unbuilt" not in text


def test_a_branch_is_compared_with_where_it_left_main(tree: Tree) -> None:
    tree.commit(one="1")
    tree.git("update-ref", "refs/remotes/origin/main", "HEAD")
    tree.commit(two="1")
    tree.commit(three="1")
    assert tree.tidy()[1].startswith("tidy: 2 of 2 files")
    assert tree.tidy("--base", "HEAD~1")[1].startswith("tidy: 1 of 1 files")


def test_without_a_commit_before_every_file_counts(tree: Tree) -> None:
    tree.commit(one="1", two="1")
    assert tree.tidy() == (0, "tidy: 2 of 2 files that differ from nothing\n")


def test_what_is_left_out_is_named(tree: Tree) -> None:
    tree.commit(a="1", b_test="1", c="1")
    status, text = tree.tidy("--files", "2")
    assert (status, "2 of 3 files" in text) == (0, True)
    assert "left out, see ./dev tidy --all: b_test.cc" in text
    assert "left out, see ./dev tidy --all: a.cc c.cc b_test.cc" in tree.tidy("--minutes", "-1")[1]


def test_a_base_that_is_no_commit_is_refused(tree: Tree) -> None:
    tree.commit(a="1")
    status, text = tree.tidy("--base", "nowhere")
    assert (status, "no commit 'nowhere'" in text) == (1, True)
