"""The peak of training steps with one layer, as the system counts the process's pages: prints JSON.

  python -m bench.experiments.memory.measure --features 1024 --samples 4096 --device cpu TEXT…

Each layer trains in a thread of its own, since threads keep their workspace; memory of 64 KiB and more goes back to the
system when it is freed, so that one layer's does not hide the next one's.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import sys
import threading
from pathlib import Path

SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
    "MALLOC_ARENA_MAX": "1",
}


def resident(peak: bool) -> int:
    """Bytes of memory that the process has, or has had since `forget_peak`."""
    name = "VmHWM" if peak else "VmRSS"
    return int(re.search(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def forget_peak() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def train(text: str, features: int, samples: int, states: int, device: str, steps: int) -> None:
    """Steps as inside of a network: nothing holds the output, and its gradient comes in backward."""
    import torch
    from torch import nn

    from tuckfold.torch import nn as tnn

    class Rest(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            ctx.like = (y.shape, y.dtype, y.device)
            return y.sum()

        @staticmethod
        def backward(ctx, g):
            shape, dtype, on = ctx.like
            return torch.full(shape, 1e-3, dtype=dtype, device=on)

    if text == "linear":
        layer = nn.Linear(features, features, device=device)
    else:
        layer = tnn.Structured(text, features, features, device=device)
    if states == 2:
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4, momentum=0.9 if states else 0)
    x = torch.randn(samples, features, device=device, requires_grad=True)
    for _ in range(steps):
        Rest.apply(layer(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None


def cpu_peak(text: str, features: int, samples: int, states: int) -> int:
    def run(samples: int, steps: int) -> None:
        thread = threading.Thread(
            target=train, args=(text, features, samples, states, "cpu", steps)
        )
        thread.start()
        thread.join()

    run(8, 1)  # code and tables that stay
    forget_peak()
    before = resident(peak=False)
    run(samples, 3)
    return resident(peak=True) - before


def cuda_peak(text: str, features: int, samples: int, states: int) -> int:
    import torch

    train(text, features, 8, states, "cuda", 1)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    train(text, features, samples, states, "cuda", 3)
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--states", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | SETTINGS)
    import torch

    torch.set_num_threads(1)
    measure = cpu_peak if arguments.device == "cpu" else cuda_peak
    sizes = (arguments.features, arguments.samples, arguments.states)
    print(json.dumps({text: measure(text, *sizes) for text in arguments.texts}))


if __name__ == "__main__":
    main()
