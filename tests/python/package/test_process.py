"""Importing, forking and spawning."""

import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

import tuckfold

# Time of the process, since that of the clock depends on who else is at work.
IMPORT = """
import sys, time
start = time.process_time()
import tuckfold
print(time.process_time() - start, *[name for name in ("torch", "numpy") if name in sys.modules])
"""


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_import_is_quick_and_loads_neither_torch_nor_numpy() -> None:
    words = [run_python(IMPORT).split() for _ in range(5)]
    assert all(len(w) == 1 for w in words), words
    assert min(float(w[0]) for w in words) < 0.1


def packed_sum(seed: int) -> int:
    array = np.random.default_rng(seed).random((8, 64, 64), dtype=np.float32)
    return int(tuckfold.pack(array, "dct_chop | block_quant").astype(np.int64).sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_pack_the_same_bytes(method: str) -> None:
    expected = [packed_sum(seed) for seed in range(4)]  # starts the parent's threads, too
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(packed_sum, range(4)).get(timeout=60) == expected


def test_a_missing_library_is_an_import_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUCKFOLD_LIBRARIES", "/nonexistent")
    done = subprocess.run([sys.executable, "-c", "import tuckfold"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "tuckfold needs /nonexistent/libtuckfold_c.so" in done.stderr
