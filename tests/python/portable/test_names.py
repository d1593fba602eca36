"""Names of exported Python files: none is taken for another module, and each can be imported."""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import run

IMPORTED = """
import importlib.util, sys
for name in "torch", "numpy", "onnx", "onnxruntime":
    if importlib.util.find_spec(name):
        __import__(name)
print(*{name.split(".")[0] for name in sys.modules})
"""


def refusals(names: list[str], target: str, folder: Path) -> dict[str, str]:
    """What is said of each name, which must not be written."""
    said = {}
    for name in names:
        done = run("export", "codec", "dct_chop(keep=4)", "--shape", "1,8,8", "--target", target,
                   "-o", folder / f"{name}.py")  # fmt: skip
        assert done.returncode == 2, name
        said[name] = done.stderr
    assert not list(folder.iterdir())
    return said


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python does not list its modules")
def test_modules_of_python_are_refused(tmp_path: Path) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("the list is of Python 3.8 to 3.13")
    names = sorted(set(sys.stdlib_module_names) | {"parser", "symbol", "dummy_threading"})
    for name, said in refusals(names, "torch", tmp_path).items():
        assert f"a file {name}.py would be imported instead of the module {name};" in said


def test_what_torch_and_onnx_import_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)  # fmt: skip
    private = re.compile(r"_|sitecustomize$|usercustomize$")  # such as finders of editable packages
    names = [name for name in done.stdout.split() if not private.match(name)]
    assert {"torch", "numpy", "os"} <= set(names)
    for said in refusals(names, "torch", tmp_path).values():
        assert "instead of the module" in said


def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    names = [*keyword.kwlist, "my-codec", "my codec", "3", "4k", "a.b", "__main__"]
    for name, said in refusals(names, "groq", tmp_path).items():
        assert f"{name}.py cannot be imported under that name" in said
        proposed = Path(re.search(r"; use -o (.*)\n", said).group(1))
        assert proposed.parent == tmp_path
        assert proposed.stem.isidentifier() and not keyword.iskeyword(proposed.stem)
        assert proposed.stem not in sys.stdlib_module_names
