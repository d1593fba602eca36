"""What tests ask of a call: on several threads, beside others, when it is wrong."""

import sys
import threading
import time
from collections.abc import Callable

import pytest


def releases_gil(call: Callable[[], object]) -> bool:
    """Whether another thread ever ran during the call; a busy machine may not let it the first time."""
    return any(another_thread_runs_during(call) for _ in range(10))


def another_thread_runs_during(call: Callable[[], object]) -> bool:
    """With no switching of its own, Python gives way only where a call releases the GIL."""
    ready, done = threading.Event(), []
    before = sys.getswitchinterval()

    def work() -> None:
        ready.wait()
        call()
        done.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        ready.set()
        time.sleep(0.02)  # hands the GIL over; comes back once the call has released it
        back = time.perf_counter()
    finally:
        sys.setswitchinterval(before)
    thread.join()
    return back < done[0]


def on_four_threads(work: Callable[[], None]) -> None:
    """Runs it on all of them at once, until the last is done."""
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def raises_exactly(error: type, text: str, call: Callable[[], object]) -> None:
    """Not a class that is derived from it."""
    with pytest.raises(error, match=text) as raised:
        call()
    assert raised.type is error
