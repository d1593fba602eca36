"""The tasks of the documentation with real data, where there is some."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_example(name: str, *words: object) -> list[str]:
    """The lines that it prints."""
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    images = pytest.importorskip("bench.images")
    if images.data_folder() is None and not images.FASHION_MNIST.exists():
        pytest.skip("no images; TUCKFOLD_DATA names a folder, or Debian's dataset-fashion-mnist")
    command = [sys.executable, ROOT / f"examples/{name}.py", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_task_has_an_example() -> None:
    for page in (ROOT / "docs/tasks").glob("*.md"):
        examples = re.findall(r"\(\.\./\.\./(examples/[\w.]+)\)", page.read_text())
        assert examples and all((ROOT / example).exists() for example in examples), page.name


def test_a_dataset_of_real_images_is_packed_and_trained_from(tmp_path: Path) -> None:
    lines = run_example("dataset", "--samples", 1500, "--folder", tmp_path)
    for line, codec in zip(lines, ("raw", "dct_quant(rate=4)"), strict=True):
        assert codec in line
        first, last = line.split("loss ")[1].split(" to ")
        assert float(last) < float(first)


def test_a_network_is_trained_on_real_images_from_packed_activations() -> None:
    exact, lossy = run_example("activations", "--samples", 1500)
    assert exact.endswith("the same losses: True")
    plain, other = map(float, lossy.split("loss ")[1].split(" and "))
    assert abs(plain - other) < 0.2 and float(lossy.split(": ")[1].split()[0]) > 4


def test_codecs_are_compared_on_real_images() -> None:
    title, *rows, choice = run_example("compare", "--samples", 500)
    assert len(rows) == 6 and all(" dB  largest error " in row for row in rows), title
    assert float(choice.split()[-2]) >= 39.5


def test_real_images_are_packed_in_compiled_graphs() -> None:
    (line,) = run_example("compile", "--samples", 200)
    assert ": True, error 0.0" in line


def test_batches_of_real_images_are_made_on_a_device(tmp_path: Path) -> None:
    batches, packed = run_example("on_gpu", "--samples", 500, "--folder", tmp_path)
    assert batches.endswith(": True") and packed.endswith(": True") and "500 images" in batches


def test_a_network_restores_real_images() -> None:
    (line,) = run_example("train_through", "--samples", 500)
    before, after = line.split("error ")[1].split(", after the network ")
    assert float(after) < 0.98 * float(before)
