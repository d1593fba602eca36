"""The bundle for a machine with a GPU, and the runner inside it, with no pytest to be found."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/release"


@pytest.fixture
def no_pytest(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing pytest fails, and the package of this tree is out of sight."""
    stub = tmp_path / "stub"
    stub.mkdir()
    (stub / "pytest.py").write_text("raise ImportError('not on this machine')\n")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TUCKFOLD_LIBRARIES")}
    return clean | {"PYTHONPATH": str(stub)}


def run(*command: object, **options) -> subprocess.CompletedProcess:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def test_the_runner_needs_no_pytest(no_pytest: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = run(sys.executable, ROOT / "tests/gpu/run.py", "--device", "cpu", "--commit", "abc",
               "--only", "mistakes", "--out", out, env=no_pytest)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(out.read_text())
    assert results["commit"] == "abc"
    assert results["counts"] == {"ok": 1, "FAILED": 0, "skipped": 0}
    assert "mistakes" in results["tests"][0]["name"]


def test_a_test_that_ends_the_process_costs_itself_alone(tmp_path: Path) -> None:
    """A copy of the runner with tests of its own: one hangs, one crashes, one fails, two are fine."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tuckfold").mkdir()
    (tmp_path / "tuckfold/__init__.py").touch()
    (tmp_path / "run.py").write_text((ROOT / "tests/gpu/run.py").read_text())
    (tmp_path / "tests/gpu.py").write_text("ON_GPU = False\nclass Skipped(Exception): pass\n")
    (tmp_path / "tests/test_gpu_x.py").write_text(
        "import gpu, os, time\n"
        "def test_a(): pass\n"
        "def test_b(): time.sleep(100)\n"
        "def test_c(): os.abort()\n"
        "def test_d(): assert 1 == 2, 'no'\n"
        "def test_e(): raise gpu.Skipped('why')\n"
        "def test_f(n): assert n == 1\n"
        "test_f.cases = [(1,)]\n"
    )
    program = (
        "import sys; sys.argv = ['run.py']; import runpy; names = runpy.run_path('run.py'); "
        "sys.path.insert(0, 'tests'); [names['show'](r) for r in names['python_tests']('', 3)]"
    )
    done = run(sys.executable, "-c", program, cwd=tmp_path)
    results = [line.split()[:2] for line in done.stdout.splitlines() if ".test_" in line]
    assert [(name[-1 if "[" not in name else -4], result) for result, name in results] == [
        ("a", "ok"), ("b", "FAILED"), ("c", "FAILED"), ("d", "FAILED"), ("e", "skipped"), ("f", "ok"),
    ], done.stdout + done.stderr  # fmt: skip
    assert "why" in done.stdout


def test_the_benchmarks_of_the_bundle_run_beside_the_package(
    no_pytest: dict[str, str], tmp_path: Path
) -> None:
    if not (BUILD / "python/libtuckfold_c.so").exists():
        pytest.skip(f"no library in {BUILD}; run ./dev build")
    bundle = tmp_path / "gpu"
    runpy.run_path(str(ROOT / "tests/gpu/bundle.py"))["benchmarks"](bundle)
    (bundle / "tuckfold").symlink_to(ROOT / "python/tuckfold")
    (bundle / "COMMIT").write_text("0123abc+\n")
    paths = {
        "PYTHONPATH": f"gpu:{no_pytest['PYTHONPATH']}",
        "TUCKFOLD_LIBRARIES": str(BUILD / "python"),
    }
    done = run(sys.executable, "-m", "bench.gpu", "--dry-run", "--quick", "--only", "raw",
               "--out", "bench.json", cwd=tmp_path, env=no_pytest | paths)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "bench.json").read_text())
    assert (record["commit"], record["dirty"]) == ("0123abc", True)
    assert record["rows"]
    done = run(sys.executable, "-m", "bench.experiments.loader", "--device", "cuda", "--dry-run", "--quick",
               "--part", "small", "--out", ".", cwd=tmp_path, env=no_pytest | paths)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "loader_cuda.json").read_text())
    assert record["dry_run"] and {f["codec"] for f in record["figures"]} >= {"raw", "bytes_of"}


def test_the_bundle_stands_alone(no_pytest: dict[str, str], tmp_path: Path) -> None:
    if not (BUILD / "tuckfold_cuda_tests").exists():
        pytest.skip("the build has no CUDA, so there is nothing to take along")
    bundle = tmp_path / "gpu"
    done = run(sys.executable, ROOT / "tests/gpu/bundle.py", "--build", BUILD, "--out", bundle)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in ("tuckfold/libtuckfold_c.so", "bin/tuckfold_cuda_tests"):
        needed = run("ldd", bundle / file).stdout
        for name in ("libhwy", "libfmt", "libzstd"):
            assert f"{name}.so" in needed
            assert str((bundle / file).parent / name) in needed
        assert "libcudart" not in needed  # linked in
        assert "not found" not in needed
    listed = run(bundle / "bin/tuckfold_cuda_tests", "--gtest_list_tests").stdout
    assert "CudaContract" in listed
    done = run(sys.executable, bundle / "run.py", "--device", "cpu", "--only", "zero_sizes",
               cwd=tmp_path, env=no_pytest)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 ok" in done.stdout
