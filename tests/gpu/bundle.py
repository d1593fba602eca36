#!/usr/bin/env python3
"""Gathers in one folder what a machine with a GPU needs that can install nothing.

  tests/gpu/bundle.py [--build build/release] [--out build/gpu]
  tests/gpu/bundle.py --studies [--out build/gpu_studies]

The Python package with its libraries, the tests, the benchmarks, and what is not on every machine
beside what needs it. Copy the folder there, then `python3 gpu/run.py`. With --studies: what
`bench.experiments.on_gpu` runs instead of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 60 << 20  # what is still quick to send
# What every Linux with a Python has, and what comes with torch.
THERE = re.compile(
    r"(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libtorch\w*|libc10\w*)\.so"
)
OURS = re.compile(r"libtuckfold")


def libraries_of(file: Path) -> list[Path]:
    """Those that it is linked with and another machine may lack."""
    found = []
    for line in subprocess.check_output(["ldd", file], text=True).splitlines():
        name, _, where = line.strip().partition(" => ")
        if THERE.match(name) or OURS.match(name) or not where:
            continue
        if where.startswith("not found"):
            sys.exit(f"gpu_bundle: {file} needs {name}, which is not here")
        found.append(Path(where.split(" (")[0]))
    return found


def copy(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file.resolve(), folder / file.name)  # under the name that is asked for


def with_libraries(files: list[Path], folder: Path) -> None:
    """They look beside themselves first."""
    copy(files, folder)
    for file in files:
        if "$ORIGIN" not in subprocess.check_output(["objdump", "-p", file], text=True):
            sys.exit(f"gpu_bundle: {file} does not look for libraries beside itself")
        copy(libraries_of(file), folder)


def package(build: Path, out: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so*")
    shutil.copytree(ROOT / "python/tuckfold", out / "tuckfold", ignore=ignored)
    with_libraries(sorted((build / "python").glob("libtuckfold_*.so")), out / "tuckfold")


def tests(build: Path, out: Path) -> None:
    folder = ROOT / "tests/python/package"
    copy([folder / "gpu.py", folder / "snippets.py", *folder.glob("test_gpu_*.py")], out / "tests")
    copy(sorted((ROOT / "docs/tasks").glob("*.md")), out / "docs/tasks")
    copy([ROOT / "tests/gpu/run.py"], out)
    with_libraries([build / "tuckfold_cuda_tests"], out / "bin")
    exported(build, out / "tests/exported")


def exported(build: Path, out: Path) -> None:
    """The files of test_gpu_portable.py, which the tool writes."""
    if not (build / "tuckfold").exists():
        print(f"gpu_bundle: {build} has no tool, so exported files are not tested", file=sys.stderr)
        return
    sys.path[:0] = [str(ROOT / "tests/python/package"), str(ROOT / "python")]
    os.environ["TUCKFOLD_LIBRARIES"] = str(build / "python")
    from test_gpu_portable import export

    export(build / "tuckfold", out)


def benchmarks(out: Path) -> None:
    for folder in ("bench", "bench/gpu", "bench/experiments", "bench/experiments/loader"):
        copy(sorted((ROOT / folder).glob("*.py")), out / folder)


# Studies that run on a GPU, and what they share.
EXPERIMENTS = ("layers", "matmul", "memory", "pixelfly", "shl")


def studies(build: Path, out: Path) -> None:
    copy(sorted((ROOT / "bench").glob("*.py")), out / "bench")
    for folder in ("bench/experiments", *(f"bench/experiments/{name}" for name in EXPERIMENTS)):
        copy(sorted((ROOT / folder).glob("*.py")), out / folder)
    copy(sorted((ROOT / "devices").glob("*.json")), out / "devices")
    target = ["cmake", "--build", str(build), "--target", "study_matmul_cuda"]
    subprocess.run(target, check=True, stdout=subprocess.DEVNULL)
    copy([build / "studies/libmatmul_cuda.so"], out / "build/release/studies")


def commit() -> str:
    """HEAD, marked where the tree has changes on top of it."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    changed = subprocess.run([*git, "status", "--short"], capture_output=True, text=True).stdout
    return (head.strip() or "unknown") + ("+" if changed else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--studies", action="store_true")
    arguments = parser.parse_args()
    build = arguments.build
    out = arguments.out or ROOT / ("build/gpu_studies" if arguments.studies else "build/gpu")
    if not arguments.studies and not (build / "tuckfold_cuda_tests").exists():
        sys.exit(f"gpu_bundle: {build} was built without CUDA; it needs nvcc")
    if not (build / "python/libtuckfold_torch.so").exists():
        sys.exit(f"gpu_bundle: {build} was built without torch; ./dev build torch installs it")
    shutil.rmtree(out, ignore_errors=True)
    package(build, out)
    if arguments.studies:
        studies(build, out)
    else:
        tests(build, out)
        benchmarks(out)
    (out / "COMMIT").write_text(commit() + "\n")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if size > LARGEST_BYTES:
        print(f"gpu_bundle: {out} has more than {LARGEST_BYTES >> 20} MiB", file=sys.stderr)
    print(f"{out}: {size / (1 << 20):.1f} MiB. On a machine with a GPU, torch and numpy:")
    if arguments.studies:
        print(f"  PYTHONPATH={out.name} python3 -m bench.experiments.on_gpu --out results")
        return 0
    print(f"  python3 {out.name}/run.py --out results.json")
    print(f"  PYTHONPATH={out.name} python3 -m bench.gpu --out bench.json")
    print(f"  PYTHONPATH={out.name} python3 -m bench.experiments.loader --device cuda --out .")
    return 0


if __name__ == "__main__":
    sys.exit(main())
