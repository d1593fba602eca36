"""The studies on a GPU, one after the other, within a time: what is not done by then is not begun.

  python -m bench.experiments.on_gpu --out FOLDER
  python -m bench.experiments.on_gpu --out FOLDER --only shl,pixelfly --seconds 300

Each study is a process, so that one that fails costs its own result alone. Training keeps its epochs in build/studies: the same
command goes on where it was stopped. FOLDER gets the logs, and studies.tar with what else goes to bench/results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from bench.record import ROOT

STUDIES = {
    "layers": "layers --device cuda",
    "shl": "shl --device cuda",
    "matmul": "matmul --device cuda",
    "matmul_tf32": "matmul --device cuda --tf32",
    "pixelfly": "pixelfly --device cuda --epochs 12",
    "memory": "memory --device cuda",
    "sweep": "layers --device cuda --sweep",
}


def datasets() -> list[str]:
    """Those of shl that are here; none where pictures cannot be read."""
    try:
        from bench.experiments.shl.data import grey_is_rounded
        from bench.images import FASHION_MNIST, data_folder
    except ImportError as error:
        print(f"no data: {error}", flush=True)
        return []
    folder = data_folder() or Path()
    has_cifar10 = grey_is_rounded() or (folder / "cifar10").is_dir()
    has_fashion = (folder / "fashion-mnist").is_dir() or FASHION_MNIST.exists()
    return ["cifar10"] * has_cifar10 + ["fashion_mnist"] * has_fashion


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(STUDIES), help="names with commas between")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--seeds", default="0", help="of shl, with commas between")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in STUDIES]:
        parser.error(f"--only takes {', '.join(STUDIES)}, got '{unknown[0]}'")
    end = time.monotonic() + arguments.seconds
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Studies run in another folder, and start processes of their own.
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    environment = os.environ | {"PYTHONPATH": paths}
    if named := os.environ.get("TUCKFOLD_DATA"):
        environment["TUCKFOLD_DATA"] = str(Path(named).resolve())
    failed = []
    with tempfile.TemporaryDirectory() as results:
        for name in names:
            words = STUDIES[name].split()
            if name in ("shl", "pixelfly") and not datasets():
                print(f"{name}: no data", flush=True)
                continue
            if name == "shl":
                words += [f"--datasets={','.join(datasets())}", f"--seeds={arguments.seeds}"]
            if name == "pixelfly" and "cifar10" not in datasets():
                continue
            left = end - time.monotonic()
            if left < 5:
                print(f"{name}: no time left", flush=True)
                failed.append(name)
                continue
            command = [sys.executable, "-m", f"bench.experiments.{words[0]}", *words[1:]]
            start = time.monotonic()
            with (arguments.out / f"{name}.log").open("w") as log:
                try:
                    done = subprocess.run(
                        [*command, f"--out={results}"],
                        cwd=ROOT,
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        timeout=left,
                        check=False,
                    ).returncode
                except subprocess.TimeoutExpired:
                    done = "stopped"
            print(f"{name}: {done}, {time.monotonic() - start:.0f} s", flush=True)
            if done != 0:
                failed.append(name)
            with tarfile.open(arguments.out / "studies.tar", "w") as tar:
                for file in sorted(Path(results).iterdir()):
                    tar.add(file, file.name)
    if failed:
        print("failed or not done:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
