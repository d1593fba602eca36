"""Whether a call lets other threads of Python run."""

import sys
import threading
import time
from collections.abc import Callable


def releases_gil(call: Callable[[], object]) -> bool:
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
