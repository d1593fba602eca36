"""Datasets and loaders of tensors."""

import copy
import gc
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tuckfold

torch = pytest.importorskip("torch")
import tuckfold.torch as tt  # noqa: E402

X = np.random.default_rng(6).random((50, 3, 8, 8), dtype=np.float32)
Y = np.arange(50)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("torch") / "a.tuck"
    tuckfold.save(where, x=X, y=Y, samples_per_chunk=8, sync=False)
    return where


@pytest.mark.parametrize("name", tuckfold._library.DTYPES)
def test_every_dtype_is_a_tensor(tmp_path: Path, name: str) -> None:
    values = torch.arange(12).reshape(4, 3) % 2
    dtype = tt._library.DTYPES[name]
    want = values.to(dtype)
    bits = want.view(torch.uint16).numpy() if name == "bf16" else want.numpy()
    tuckfold.save(tmp_path / "a.tuck", x=bits, dtype={"x": "bf16"} if name == "bf16" else None)
    data = tt.Dataset(tmp_path / "a.tuck", "x")
    assert data[2].dtype == dtype and torch.equal(data[2], want[2])
    batch = data.read([3, 0])
    assert batch.dtype == dtype and torch.equal(
        batch.to(torch.float64), want[[3, 0]].to(torch.float64)
    )


def test_a_map_style_dataset(path: Path) -> None:
    data = tt.Dataset(path, ("x", "y"))
    assert (
        len(data) == 50 and isinstance(data, torch.utils.data.Dataset) and data.file.samples == 50
    )
    x, y = data[-1]
    assert torch.equal(x, torch.from_numpy(X[-1])) and y.dtype == torch.int64 and y == 49
    assert set(tt.Dataset(path)[0]) == {"x", "y"}
    with pytest.raises(IndexError):
        data[50]
    subset = torch.utils.data.Subset(data, [5, 3])
    assert [int(y) for _, y in subset] == [5, 3]
    assert [int(y) for _, y in torch.utils.data.ConcatDataset([data, data])][-1] == 49
    assert torch.equal(copy.deepcopy(data)[4][0], data[4][0])


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_torchs_own_loader_and_workers(path: Path, method: str | None) -> None:
    data = tt.Dataset(path, ("x", "y"))
    data[0]  # the parent's threads are running by now
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=8,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers={None: 0, "fork": 2, "spawn": 1}[method],
        multiprocessing_context=method,
        timeout=60 if method else 0,
    )
    seen = []
    for x, y in loader:
        assert torch.equal(x, torch.from_numpy(X)[y])
        seen += y.tolist()
    assert sorted(seen) == list(range(50)) != seen


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_transform_does_not_end_an_epoch(path: Path, prefetch: int) -> None:
    def change(batch):
        return next(iter(()))

    loader = tt.DataLoader(path, 8, arrays="y", prefetch=prefetch, transform=change)
    with pytest.raises(RuntimeError, match="transform raised StopIteration"):
        list(loader)


def test_the_loader(path: Path) -> None:
    loader = tt.DataLoader(path, 16, arrays=("x", "y"), shuffle=True, seed=2)
    assert len(loader) == 4
    orders = []
    for _ in range(2):
        order = []
        for x, y in loader:
            assert x.dtype == torch.float32 and torch.equal(x, torch.from_numpy(X)[y])
            order += y.tolist()
        orders.append(order)
    assert sorted(orders[0]) == list(range(50)) and orders[0] != orders[1]
    plain = tuckfold.Dataset(path, "y").batches(16, shuffle=True, seed=2)
    assert [i for y in plain for i in y.tolist()] == orders[0]  # numpy's order is the same
    again = tt.DataLoader(tt.Dataset(path, ("x", "y")), 16, shuffle=True, seed=2)
    next(iter(again))
    saved = again.state_dict()
    restored = tt.DataLoader(path, 16, arrays=("x", "y"), shuffle=True, seed=2)
    restored.load_state_dict(saved)
    assert [i for _, y in restored for i in y.tolist()] == orders[0][16:]


def test_ranks_are_those_of_the_process_group(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
        loader = tt.DataLoader(path, 8, arrays="y", shuffle=True)
        assert len(loader) == 3
        seen += [i for y in loader for i in y.tolist()]
    assert sorted(seen) == list(range(50))
    with pytest.raises(ValueError, match="both rank and world_size"):
        tt.DataLoader(path, 8, rank=1)
    with pytest.raises(ValueError, match="leave them out"):
        tt.DataLoader(tt.Dataset(path), 8, arrays="y")


def test_a_network_trains_from_a_file(path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = tt.DataLoader(path, 10, arrays=("x", "y"), shuffle=True,
                           transform=lambda batch: (batch[0] - 0.5, batch[1].float() / 50))  # fmt: skip
    losses = []
    for _ in range(5):
        for x, y in loader:
            loss = (model(x).squeeze(1) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5])


KILLED = """
import os, signal, sys, torch, tuckfold.torch

class KillsItself(tuckfold.torch.Dataset):
    def __getitems__(self, indices):
        if 20 in indices:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitems__(indices)

got = []
try:
    for _, y in torch.utils.data.DataLoader(KillsItself(sys.argv[1], ("x", "y")), 8, num_workers=1):
        got += y.tolist()
except (RuntimeError, OSError, EOFError):  # torch's, of the process or of its connection
    print(got == list(range(len(got))) and len(got) <= 16)
"""


def test_a_killed_worker_is_an_error_and_no_hang(path: Path) -> None:
    command = [sys.executable, "-c", KILLED, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.split() == ["True"], done.stderr


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_damaged_chunk_ends_the_epoch_with_an_error(
    path: Path, tmp_path: Path, prefetch: int
) -> None:
    data = bytearray(path.read_bytes())
    at = [m.start() for m in re.finditer(b"TkFr", data)]
    data[at[len(at) // 2] + 150] ^= 8
    (tmp_path / "b.tuck").write_bytes(data)
    loader = tuckfold.torch.DataLoader(tmp_path / "b.tuck", 8, arrays=("x", "y"), prefetch=prefetch)
    plain = list(tuckfold.torch.DataLoader(path, 8, arrays=("x", "y")))
    got = []
    with pytest.raises(tuckfold.CorruptDataError, match=r"b\.tuck': the chunk of '[xy]' with samples \d+ to \d+"):  # fmt: skip
        for batch in loader:
            got.append(batch)
    assert len(got) < len(plain)
    for batch, want in zip(got, plain, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(batch, want, strict=True))


def test_slices_and_pinned_memory_without_a_gpu(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float32).reshape(10, 2, 2)
    tuckfold.save(tmp_path / "a.tuck", x=x)
    data = tuckfold.torch.Dataset(tmp_path / "a.tuck", "x")
    for part in (slice(2, 5), slice(None, None, -1), slice(8, 2, -2), slice(3, 3)):
        assert np.array_equal(data[part].numpy(), x[part])
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="torch finds no GPU"):
            loader = tuckfold.torch.DataLoader(tmp_path / "a.tuck", 4, arrays="x", pin_memory=True)
        assert len(list(loader)) == 3


def test_threads_end_when_a_loader_is_left_early(path: Path) -> None:
    before = set(threading.enumerate())
    gc.disable()  # which would find a cycle some time later
    try:
        for _ in range(10):
            next(iter(tt.DataLoader(path, 4, shuffle=True, prefetch=4)))
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert not set(threading.enumerate()) - before
    finally:
        gc.enable()
