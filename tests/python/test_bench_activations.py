"""How steps of training are timed, and which floors are reported."""

from __future__ import annotations

import math

import pytest
import torch

from bench.experiments.activations import timing
from bench.experiments.activations.__main__ import KEEP, WORKS, WRAP, figures
from bench.record import Figure, floor_table, worst_first


class Clock:
    """A GPU that works while the host goes on: what was launched ends in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = self.gpu = 0.0
        clock = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = max(clock.host, clock.gpu)

            def elapsed_time(self, other: Event) -> float:
                return 1e3 * (other.at - self.at)

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", self.wait)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.host)

    def wait(self) -> None:
        self.host = max(self.host, self.gpu)

    def step(self, host: float, gpu: float) -> None:
        self.gpu = max(self.gpu, self.host) + gpu
        self.host += host


def test_each_turn_is_a_block_and_the_first_of_a_round_changes() -> None:
    calls: list[str] = []
    steps = {name: lambda name=name: calls.append(name) for name in "abc"}
    found = timing.in_turn(steps, rounds=4, count=3, on_gpu=False)
    turns = calls[:: 2 + 3]
    assert calls == [name for name in turns for _ in range(2 + 3)]
    assert turns == [*"abc", *"bca", *"cab", *"abc"]
    assert all(len(pairs) == 4 for pairs in found.values())


def test_the_first_steps_of_a_turn_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They find another's caches, and are slower."""
    clock, last = Clock(monkeypatch), []

    def step(name: str) -> None:
        clock.step(host=8.0 if last != [name] else 1.0, gpu=0.5)
        last[:] = [name]

    steps = {name: lambda name=name: step(name) for name in "ab"}
    for pairs in timing.in_turn(steps, rounds=2, count=3, on_gpu=True).values():
        assert pairs == [(1e3, 1e3)] * 2


def test_steps_of_a_block_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's part is hidden behind the GPU's, and known from a step that an idle GPU began with."""
    clock = Clock(monkeypatch)
    steps = {"plain": lambda: clock.step(0.25, 2.0), "slow host": lambda: clock.step(1.5, 2.0)}
    found = timing.in_turn(steps, rounds=3, count=4, on_gpu=True)
    assert found["plain"] == [(2e3, 250.0)] * 3
    assert found["slow host"] == [(2e3, 1500.0)] * 3


def test_a_step_that_is_slow_once_does_not_change_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, count = Clock(monkeypatch), [0]

    def step() -> None:
        count[0] += 1
        clock.step(0.1, 50.0 if count[0] == 4 else 1.0)

    assert timing.in_turn({"plain": step}, 1, 5, on_gpu=True)["plain"][0][0] == 1e3


def test_a_step_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that gets slower and slower does not count, nor do the first steps after a change."""
    clock, state = Clock(monkeypatch), {"warm": 9, "is_on": False, "drift": 1.0}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)

    def step() -> None:
        state["warm"] += 1
        cost = 1.0 if not state["is_on"] else 5.0 if state["warm"] < 5 else 1.25
        clock.step(host=cost * state["drift"], gpu=0.1)

    def change():
        state.update(is_on=True, warm=0, drift=state["drift"] + 0.1)
        return lambda: state.update(is_on=False, drift=state["drift"] + 0.1)

    ratio = timing.beside_itself(step, change, rounds=3, count=4, on_gpu=True)
    assert ratio == pytest.approx(1.25)


def test_floors_come_worst_first() -> None:
    found = worst_first(
        [
            Figure({"work": "a"}, "ratio", 1.5, 1.0),
            Figure({"work": "b"}, "time", 1.10, ceiling=1.05),
            Figure({"work": "c"}, "ratio", 0.5, 1.0),
            Figure({"work": "d"}, "ratio", math.nan, 1.0),
            Figure({"work": "e"}, "no floor", 1.0),
        ]
    )
    assert [floor["work"] for floor in found] == ["d", "c", "b", "a"]
    assert [floor["pass"] for floor in found] == [False, False, False, True]
    lines = floor_table(found).splitlines()
    assert "not measured" in lines[1] and lines[1].startswith("MISSED")
    assert lines[-1] == "1 of 4 floors are reached"


def test_what_was_not_measured_is_a_floor_that_is_missed() -> None:
    rows = [{"variant": WRAP, "identical": True, "peak_ratio": 2.0, "time_over_plain": 1.0}]
    for work in WORKS:
        for given in ([], rows):
            found = {(f.of["variant"], f.name): f for f in figures(work, given)}
            assert found[WRAP, "identical"].verdict == ("PASS" if given else "BELOW")
            assert found[KEEP, "time_over_plain"].verdict == "ABOVE"
            assert found[KEEP, "predicted_peak"].verdict == "BELOW"


def test_predictions_too_high_and_too_low_are_missed() -> None:
    for ratio, verdict in ((0.96, "BELOW"), (0.975, "PASS"), (1.025, "PASS"), (1.04, "BELOW")):
        rows = [{"variant": WRAP, "predicted_over_peak": ratio}]
        found = [f for f in figures(WORKS[0], rows) if f.of["variant"] == WRAP]
        assert next(f.verdict for f in found if f.name == "predicted_peak") == verdict
