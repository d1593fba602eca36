"""The tasks of the documentation with real data, where there is some."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_a_dataset_of_real_images_is_packed_and_trained_from(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    images = pytest.importorskip("bench.images")
    if images.data_folder() is None and not images.FASHION_MNIST.exists():
        pytest.skip("no images; TUCKFOLD_DATA names a folder, or Debian's dataset-fashion-mnist")
    command = [sys.executable, ROOT / "examples/dataset.py", "--samples", "1500", "--folder", tmp_path]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, codec in zip(done.stdout.splitlines(), ("raw", "dct_quant(rate=4)"), strict=True):
        assert codec in line
        first, last = line.split("loss ")[1].split(" to ")
        assert float(last) < float(first)
