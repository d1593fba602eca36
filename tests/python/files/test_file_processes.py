"""Pickles, forks, spawned processes, and KeyboardInterrupt."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tuckfold

X = np.random.default_rng(3).random((60, 16, 16), dtype=np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tuckfold.save(tmp_path / "a.tuck", x=X, codec="raw")
    return tmp_path / "a.tuck"


def read(array: tuckfold.FileArray, index: int) -> float:
    return float(array[index].sum())


def test_a_pickled_file_is_opened_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    f = tuckfold.open("a.tuck")
    texts = pickle.dumps(f), pickle.dumps(f["x"])
    monkeypatch.chdir("/")
    assert np.array_equal(pickle.loads(texts[0])["x"][:], X)
    assert np.array_equal(pickle.loads(texts[1])[5], X[5])
    with tuckfold.Writer(path, append=True) as w:
        w.write(x=X[:1])
    with pytest.raises(ValueError, match="has changed since it was pickled"):
        pickle.loads(texts[0])
    f.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(f)


def test_a_pickled_manifest_of_equal_shards_is_not_another_one(tmp_path: Path) -> None:
    def save(value: float) -> None:
        x = np.full((20, 8, 8), value, np.float32)
        tuckfold.save(tmp_path / "a.tuck", x=x, codec="raw", shards=2, force=True)

    save(1)
    text = pickle.dumps(tuckfold.open(tmp_path / "a.tuck"))
    save(3)
    with pytest.raises(ValueError, match="has changed since it was pickled"):
        pickle.loads(text)


@pytest.mark.parametrize("shards", [0, 3])
def test_a_pickled_file_is_not_another_one_of_the_same_size(tmp_path: Path, shards: int) -> None:
    path = tmp_path / "a.tuck"
    tuckfold.save(path, x=X, codec="raw", shards=shards)
    text = pickle.dumps(tuckfold.open(path))
    other = X.copy()
    other[-1] += 1
    tuckfold.save(path, x=other, codec="raw", force=True, shards=shards)
    with pytest.raises(ValueError, match="has changed since it was pickled"):
        pickle.loads(text)
    tuckfold.save(path, x=X, codec="raw", force=True, shards=shards)
    assert np.array_equal(pickle.loads(text)["x"][:], X)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_read(path: Path, method: str) -> None:
    with tuckfold.open(path) as f:
        want = [read(f["x"], i) for i in range(8)]  # the parent's threads are running by now
        with multiprocessing.get_context(method).Pool(2) as pool:
            jobs = [(f["x"], i) for i in range(8)]
            assert pool.starmap_async(read, jobs).get(timeout=60) == want


FORK_WHILE_READING = """
import os, sys, threading, numpy as np, tuckfold
f = tuckfold.open(sys.argv[1])
want, stop = f["x"][:], threading.Event()
def work():
    while not stop.is_set():
        f["x"][[50, 3, 20]]
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(f["x"][::-1], want[::-1]) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
print("done")
"""


@pytest.mark.parametrize("shards", [0, 5])
def test_a_fork_while_threads_read_does_not_hang(tmp_path: Path, shards: int) -> None:
    tuckfold.save(tmp_path / "b.tuck", x=X, codec="zstd", shards=shards)
    command = [sys.executable, "-c", FORK_WHILE_READING, tmp_path / "b.tuck"]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout == "done\n", done.stderr


def test_a_forked_child_leaves_a_writer_alone(path: Path) -> None:
    with tuckfold.Writer(path, append=True) as w:
        w.write(x=X)
        child = os.fork()
        if child == 0:
            try:
                w.write(x=X)
            except ValueError as error:
                w.__exit__(type(error), error, None)  # as the end of the block would
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(tuckfold.open(path)["x"][:], np.concatenate([X, X]))


LONG = """
import sys, numpy as np, tuckfold
x = np.random.default_rng(0).integers(0, 200, (1 << 12, 64, 64), dtype=np.uint8)
print("ready", flush=True)
try:
    tuckfold.save(sys.argv[1], x=x, codec="zstd(level=19)", samples_per_chunk=8)
except KeyboardInterrupt:
    print("interrupted")
else:
    print("finished")
"""


def test_an_interrupt_ends_a_save_soon(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LONG, tmp_path / "a.tuck"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        said = child.stdout.read()
        child.wait(60)
    if said == "finished\n":
        pytest.skip("this machine is too fast for the test")
    assert said == "interrupted\n" and time.monotonic() - start < 10
    assert not list(tmp_path.iterdir())


def test_torch_is_never_imported(path: Path) -> None:
    program = (
        "import sys, tuckfold, numpy as np\n"
        "f = tuckfold.open(sys.argv[1]); f['x'][3]\n"
        "tuckfold.save(sys.argv[1] + '2', x=f['x'], psnr=30)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
