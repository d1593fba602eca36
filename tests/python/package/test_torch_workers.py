"""Packing in data-loader workers and threads."""

import os
import subprocess
import sys

import pytest

from calls import on_four_threads, releases_gil

torch = pytest.importorskip("torch")
import tuckfold.torch as tft  # noqa: E402

SPEC = "dct_chop(keep=4) | block_quant(bits=8)"


class Images(torch.utils.data.Dataset):
    """Packs in the worker, as a data set does that sends fewer bytes."""

    def __init__(self) -> None:
        self.codec = tft.Codec("dct_chop(keep=4)")

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.set_num_threads(2)  # workers start with one
        image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(index))
        return tft.pack(image, SPEC), self.codec.compress(image)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_pack_what_the_parent_packs(method: str) -> None:
    expected = [Images()[i] for i in range(8)]  # the parent's threads are running by now
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=4, num_workers=2, multiprocessing_context=method, timeout=60
    )
    for number, (packed, coefs) in enumerate(loader):
        for i in range(4):
            assert torch.equal(packed[i], expected[number * 4 + i][0])
            assert torch.equal(coefs[i], expected[number * 4 + i][1])


# numpy's OpenBLAS ends its threads before a fork, and may wait for them for good; one thread is none.
FORKS = """
import importlib.util, subprocess, threading
import numpy as np, torch, tuckfold
import tuckfold.torch as tft
if importlib.util.find_spec("onnxruntime"):
    import onnxruntime

x, stop = np.random.default_rng(0).random((4, 3, 128, 128), dtype=np.float32), threading.Event()

def pack() -> None:
    while not stop.is_set():
        tuckfold.pack(x, "dct_chop(keep=4)")
        tft.pack(torch.from_numpy(x), "dct_chop(keep=4)")

tuckfold.set_num_threads(4)
threads = [threading.Thread(target=pack) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(40):  # a function before exec makes subprocess fork, which calls handlers
    function = (lambda: None) if number % 2 else None
    subprocess.run(["true"], check=True, preexec_fn=function, timeout=60)
stop.set()
for thread in threads:
    thread.join()
print("done")
"""


def test_programs_start_while_threads_pack() -> None:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FORKS], env=env, capture_output=True, text=True,
                          timeout=240, check=False)  # fmt: skip
    assert done.stdout == "done\n" and "Traceback" not in done.stderr, done.stderr


def test_threads_pack_at_the_same_time() -> None:
    x = torch.rand(8, 3, 64, 64)
    expected = tft.pack(x, SPEC)
    wrong = []

    def work() -> None:
        for i in range(20):
            spec = SPEC if i % 2 else f"block_quant(bits={1 + i % 8})"  # each thread's own cache
            if spec == SPEC and not torch.equal(tft.pack(x, spec), expected):
                wrong.append(i)
            tft.unpack(tft.pack(x, spec), spec, x.shape)

    on_four_threads(work)
    assert not wrong


def test_other_threads_run_while_an_operator_does() -> None:
    x = torch.randint(0, 255, (1 << 23,), dtype=torch.uint8)
    assert releases_gil(lambda: tft.pack(x, "zstd(level=9)"))
