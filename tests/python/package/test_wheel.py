"""The wheel: built, installed where nothing else is, and used from another folder."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/release"
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONPATH", "TUCKFOLD_LIBRARIES")
}
NUMPY = "numpy==2.4.6"
USE = """
import sys, numpy as np, tuckfold
x = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)
for spec in ("dct_chop(keep=4)", "bounded(abs=0.001) | zstd", "block_quant(bits=8)"):
    packed = tuckfold.pack(x, spec)
    back = tuckfold.unpack(packed, spec, shape=x.shape)
    assert abs(back - x).max() < 0.01, spec
print(tuckfold.__version__, tuckfold.__file__)
"""
USE_TORCH = """
import torch, tuckfold.torch
x = torch.rand(64, 64)
packed = tuckfold.torch.pack(x, "dct_chop(keep=4)")
assert torch.equal(packed, torch.from_numpy(tuckfold.pack(x.numpy(), "dct_chop(keep=4)")))
print(tuckfold.__file__)
"""


def run(*command: object, **options) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=CLEAN,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cached(name: str) -> str:
    """What the release build was configured with, so that ccache knows its objects again."""
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("wheel")
    settings = {
        "build-dir": ROOT / "build/wheel-test",  # CMake forgets a build whose compiler changes
        "cmake.define.CMAKE_CXX_COMPILER": cached("CMAKE_CXX_COMPILER"),
        "cmake.define.TUCKFOLD_WERROR": cached("TUCKFOLD_WERROR"),
        "cmake.define.TUCKFOLD_CUDA": cached("TUCKFOLD_CUDA"),
    }
    words = [f"--config-settings={name}={value}" for name, value in settings.items()]
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-build-isolation", "--no-deps", "-w", folder, *words)  # fmt: skip
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_is_for_every_python(wheel: Path) -> None:
    assert re.fullmatch(r"tuckfold-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist()}
    assert {
        "libtuckfold_c.so",
        "libtuckfold_torch.so",
        "libh5z_tuckfold.so",
        "py.typed",
        "LICENSE",
    } <= names
    torch = importlib.metadata.version("torch").partition("+")[0]
    hooks = f"libtuckfold_hooks-{torch}.so"  # for one torch alone
    assert hooks in names or not (ROOT / "build/release/python" / hooks).exists()
    assert {"libhwy.txt", "libfmt.txt", "libzstd.txt"} <= names  # their licences


def test_a_clean_environment_with_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", NUMPY)
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)
    (tmp_path / "elsewhere").mkdir()
    printed = run(python, "-c", USE, cwd=tmp_path / "elsewhere").split()
    assert Path(printed[1]).is_relative_to(tmp_path / "venv")
    assert printed[0] == (ROOT / "VERSION").read_text().strip()

    package = Path(printed[1]).parent
    needed = run("ldd", package / "libtuckfold_c.so")
    for name in ("libhwy", "libfmt", "libzstd"):
        assert re.search(rf"{name}\.so\.\d+ => {re.escape(str(package))}/", needed), needed
    assert "cudart" not in needed  # users need the driver alone

    program = tmp_path / "venv/bin/tuckfold"
    assert run(program, "--version").split()[-1] == printed[0]
    np_file = tmp_path / "elsewhere/x.npy"
    run(python, "-c", f"import numpy; numpy.save({str(np_file)!r}, numpy.zeros((4, 8)))")
    run(program, "pack", np_file, "-o", tmp_path / "x.tuck")
    assert "4 samples" in run(program, "info", tmp_path / "x.tuck")

    program = "import tuckfold.torch"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, env=CLEAN)
    assert "ModuleNotFoundError: tuckfold.torch needs PyTorch; install torch" in done.stderr


def test_the_operators_of_an_installed_package(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    target = tmp_path / "site"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        target,
        wheel,
    )
    program = f"import sys; sys.path.insert(0, {str(target)!r})" + USE_TORCH
    assert run(sys.executable, "-c", program, cwd=tmp_path).strip().startswith(str(target))

    (target / "tuckfold/libtuckfold_torch.so").unlink()  # as where it was built without torch
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=CLEAN, cwd=tmp_path
    )
    assert "ImportError: tuckfold was built without torch" in done.stderr
    assert "install torch, then tuckfold again" in done.stderr
