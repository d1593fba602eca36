"""Exported Python files can be imported by Python 3.8, which SDKs of accelerators come with."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support import export

OLDEST = (3, 8)
SHAPE = (4, 3, 64, 64)
SPECS = {
    "torch": ["dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle, serialize=2, coef=f16)",
              "dct_chop(keep=4) | block_quant(bits=8)"],
    "poptorch": ["dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle)", "block_quant(bits=8)"],
    "samba": ["dct_chop(keep=4)", "dct_chop(keep=4, serialize=2)"],
    "cerebras": ["dct_chop(keep=4)", "dct_chop(keep=4, order=planes)"],
    "groq": ["dct_chop(keep=4)", "dct_chop(keep=4, serialize=2)"],
}  # fmt: skip

# Modules that have every name, so that a file's own text is what is tried.
IMPORT = """
import importlib.util, sys, types

class Anything(types.ModuleType):
    def __getattr__(self, name):
        return Anything(name)
    def __call__(self, *given, **named):
        return given[0] if given and callable(given[0]) else Anything("result")

for name in ("torch", "poptorch", "groqflow", "cerebras_pytorch", "sambaflow", "sambaflow.samba",
             "sambaflow.samba.utils", "sambaflow.samba.utils.argparser",
             "sambaflow.samba.utils.pef_utils"):
    sys.modules[name] = Anything(name)
sys.modules["torch"].nn = types.SimpleNamespace(Module=object)
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("codec", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.MODULES) == {"Pack", "Unpack"} or set(module.MODULES) == {"Unpack"}, path
print(len(sys.argv) - 1)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, written = tmp_path_factory.mktemp("codecs"), []
    for target, specs in SPECS.items():
        for number, spec in enumerate(specs):
            written.append(folder / f"{target}_{number}.py")
            export(spec, SHAPE, target, written[-1])
    written.append(folder / "decoder.py")
    export("dct_quant(rate=4)", SHAPE, "torch", written[-1], "--only", "unpack")
    return written


def evaluated(tree: ast.Module) -> list[ast.AST]:
    """All nodes but those of annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return list(ast.walk(tree))


def test_nothing_newer_is_written(files: list[Path]) -> None:
    for path in files:
        tree = ast.parse(path.read_text(), path.name, feature_version=OLDEST)
        first = tree.body[1]  # after the text that describes the file
        assert isinstance(first, ast.ImportFrom) and first.module == "__future__", path.name
        assert [name.name for name in first.names] == ["annotations"], path.name
        for node in evaluated(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                assert node.value.id not in ("tuple", "list", "dict", "type", "set"), path.name
            assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)), path.name


def old_pythons() -> dict[str, str]:
    """Of each release from the oldest on that is older than 3.10, an interpreter that runs."""
    found = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in OLDEST[1], 9:
        name = f"python3.{minor}"
        for path in (*sorted(versions.glob(f"3.{minor}.*/bin/{name}")), shutil.which(name)):
            if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                found[name] = str(path)
    return found


def test_old_pythons_import_them(files: list[Path]) -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("neither Python 3.8 nor 3.9 is here")
    for name, python in pythons.items():
        done = subprocess.run([python, "-I", "-c", IMPORT, *map(str, files)], capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr}"
        assert int(done.stdout) == len(files)
