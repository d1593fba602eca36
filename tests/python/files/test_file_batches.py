"""Datasets and batches of numpy arrays."""

import gc
import itertools
import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import tuckfold

X = np.random.default_rng(4).random((103, 8, 8), dtype=np.float32)
Y = np.arange(103)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("batches") / "a.tuck"
    tuckfold.save(where, x=X, y=Y, samples_per_chunk=8, sync=False)
    return where


def test_samples_of_three_shapes(path: Path) -> None:
    sample = tuckfold.Dataset(path)[5]
    assert list(sample) == ["x", "y"] and np.array_equal(sample["x"], X[5]) and sample["y"] == 5
    y, x = tuckfold.Dataset(path, ["y", "x"])[-1]
    assert y == 102 and np.array_equal(x, X[-1])
    assert tuckfold.Dataset(path, "y")[[3, 1]].tolist() == [3, 1]
    data = tuckfold.Dataset(path, ("x", "y"))
    assert len(data) == 103 and data.file.samples == 103 and "103 samples of x, y" in repr(data)
    assert [int(y) for _, y in data] == list(range(103))
    rows = data.__getitems__([7, 0, 7])
    assert [int(y) for _, y in rows] == [7, 0, 7] and np.array_equal(rows[2][0], X[7])
    again = pickle.loads(pickle.dumps(data))
    assert np.array_equal(again[3][0], X[3])
    with pytest.raises(IndexError):
        data[103]
    with pytest.raises(KeyError, match="no array 'z'"):
        tuckfold.Dataset(path, "z")
    with pytest.raises(ValueError):
        tuckfold.Dataset(path, ())


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_are_those_of_a_memmap_reader(path: Path, tmp_path: Path, prefetch: int) -> None:
    np.save(tmp_path / "x.npy", X)
    plain = np.load(tmp_path / "x.npy", mmap_mode="r")
    batches = tuckfold.Dataset(path, ("x", "y")).batches(
        16, shuffle=True, seed=9, prefetch=prefetch
    )
    assert len(batches) == 7
    seen = []
    for epoch in range(2):
        order = []
        for x, y in batches:
            assert np.array_equal(x, plain[y])
            order += y.tolist()
        assert sorted(order) == list(range(103))
        want = np.argsort(np.random.PCG64([9, epoch]).random_raw(103), kind="stable")
        assert order == want.tolist()
        seen.append(order)
    assert seen[0] != seen[1]


def test_an_order_does_not_change_between_versions() -> None:
    from tuckfold._dataset import order_of

    assert order_of(10, True, 1, 2).tolist() == [5, 6, 9, 3, 2, 1, 0, 8, 4, 7]
    assert order_of(4, False, 1, 2).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_samples_without_overlap_or_loss(drop_last: bool) -> None:
    from tuckfold import Batches

    for samples, size, world in itertools.product(
        [0, 1, 5, 8, 9, 10, 16, 17, 103], [1, 2, 4, 7], [1, 2, 3, 4]
    ):
        ranks = [
            Batches(lambda s: s.tolist(), samples, size, shuffle=True, rank=rank, world_size=world,
                    drop_last=drop_last, prefetch=0) for rank in range(world)
        ]  # fmt: skip
        given = [list(rank) for rank in ranks]
        assert [len(rank) for rank in ranks] == [len(batches) for batches in given]
        flat = [sample for batches in given for batch in batches for sample in batch]
        assert len(flat) == len(set(flat))
        counts = {len(batches) for batches in given}
        if drop_last:
            assert len(flat) == samples // (size * world) * size * world
            assert all(len(batch) == size for batches in given for batch in batches)
        else:
            assert sorted(flat) == list(range(samples))
            assert all(0 < len(batch) <= size for batches in given for batch in batches)
        if drop_last or size > 1 and samples >= world:
            assert len(counts) == 1, (samples, size, world)


def test_an_epoch_goes_on_in_its_middle(path: Path) -> None:
    def make() -> tuckfold.Batches:
        return tuckfold.Dataset(path, "y").batches(10, shuffle=True, seed=3)

    whole = make()
    epochs = [[y.tolist() for y in whole] for _ in range(3)]
    first = make()
    list(first)
    for number, y in enumerate(first):
        assert y.tolist() == epochs[1][number]
        if number == 4:
            break
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["batch"]) == (1, 5)
    second = make()
    second.load_state_dict(state)
    assert [y.tolist() for y in second] == epochs[1][5:]
    assert [y.tolist() for y in second] == epochs[2]
    assert (second.state_dict()["epoch"], second.state_dict()["batch"]) == (3, 0)
    third = make()
    iterator = iter(third)
    for _ in range(11):
        next(iterator)
    assert third.state_dict()["epoch"] == 1  # all batches of epoch 0 are given out
    third.set_epoch(2)
    assert third.epoch == 2 and [y.tolist() for y in third] == epochs[2]
    other = tuckfold.Dataset(path, "y").batches(11, shuffle=True, seed=3)
    with pytest.raises(ValueError, match="batch_size=10"):
        other.load_state_dict(state)


def test_a_new_iteration_is_a_new_epoch(path: Path) -> None:
    batches = tuckfold.Dataset(path, "y").batches(10, shuffle=True)
    first, second = next(iter(batches)).tolist(), next(iter(batches)).tolist()
    assert first != second and batches.epoch == 2
    assert batches.state_dict()["batch"] == 1


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_transform_does_not_end_an_epoch(path: Path, prefetch: int) -> None:
    left = iter(range(2))

    def change(batch):
        next(left)
        return batch

    batches = tuckfold.Dataset(path, "y").batches(10, prefetch=prefetch, transform=change)
    with pytest.raises(RuntimeError, match="transform raised StopIteration"):
        list(batches)


def test_batches_check_their_arguments(path: Path) -> None:
    data = tuckfold.Dataset(path)
    for wrong in (
        {"batch_size": 0},
        {"rank": 2, "world_size": 2},
        {"rank": -1},
        {"prefetch": -1},
        {"world_size": 0},
        {"seed": -1},
    ):
        with pytest.raises(ValueError, match="must be"):
            data.batches(**{"batch_size": 4, **wrong})
    with pytest.raises(ValueError, match="epoch must be"):
        data.batches(4).set_epoch(-1)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_damaged_chunk_ends_the_epoch_with_its_name(tmp_path: Path, prefetch: int) -> None:
    where = tmp_path / "b.tuck"
    tuckfold.save(where, x=X, codec="raw", samples_per_chunk=4)
    data = bytearray(where.read_bytes())
    data[data.index(X[50].tobytes())] ^= 1
    where.write_bytes(data)
    iterator = iter(tuckfold.Dataset(where, "x").batches(8, prefetch=prefetch))
    for number in range(6):
        assert np.array_equal(next(iterator), X[number * 8 : number * 8 + 8])
    with pytest.raises(tuckfold.CorruptDataError, match=r"b\.tuck.*'x' with samples 48 to 51"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_transform_runs_on_the_threads(path: Path) -> None:
    names = set()

    def transform(y: np.ndarray) -> np.ndarray:
        names.add(threading.current_thread().name)
        return -y

    batches = tuckfold.Dataset(path, "y").batches(50, transform=transform)
    assert [int(y[0]) for y in batches] == [0, -50, -100]
    assert all(name.startswith("tuckfold-batches") for name in names)


def test_an_iterator_stays_in_its_process_and_its_threads_end(path: Path) -> None:
    before = set(threading.enumerate())
    batches = tuckfold.Dataset(path, "y").batches(10)
    iterator = iter(batches)
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except RuntimeError:
            os._exit(0 if len(list(batches)) == 11 else 2)  # a new one may be begun
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(iterator)) == 10
    del iterator
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert not set(threading.enumerate()) - before


def test_threads_end_when_an_iterator_is_dropped(path: Path) -> None:
    before = set(threading.enumerate())
    gc.disable()  # which would find a cycle some time later
    try:
        for _ in range(10):
            next(iter(tuckfold.Dataset(path, "y").batches(10, prefetch=4)))
        batches = tuckfold.Dataset(path, "y").batches(10, prefetch=4)
        for y in batches:
            assert int(y[0]) == 0
            break
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
        assert not set(threading.enumerate()) - before
    finally:
        gc.enable()
    assert batches.state_dict()["batch"] == 1


def test_the_latest_iterator_is_the_position(path: Path) -> None:
    batches = tuckfold.Dataset(path, "y").batches(10)
    first = iter(batches)
    next(first)
    second = iter(batches)
    next(first)
    assert batches.state_dict()["epoch"] == 1 and batches.state_dict()["batch"] == 0
    next(second)
    next(second)
    next(first)
    assert batches.state_dict()["epoch"] == 1 and batches.state_dict()["batch"] == 2
    batches.set_epoch(5)
    next(second)
    assert batches.state_dict()["epoch"] == 5 and batches.state_dict()["batch"] == 0
