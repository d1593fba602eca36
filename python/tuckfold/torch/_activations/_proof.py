"""Whether a recipe gives the same bits again, found out on the device that it runs on."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from tuckfold.torch._activations._forms import as_bits
from tuckfold.torch._activations._recompute import Recipe, evaluate
from tuckfold.torch._activations._saved import Record


class _Waiting:
    """A comparison that a GPU has in its queue."""

    def __init__(self, differs: Tensor) -> None:
        self.flag = torch.empty((), dtype=torch.bool, pin_memory=True)
        self.flag.copy_(differs, non_blocking=True)
        self.done = torch.cuda.Event()
        self.done.record()

    def answer(self) -> bool | None:
        return not bool(self.flag) if self.done.query() else None


_lock = threading.Lock()
_answers: dict[tuple[Any, ...], bool | _Waiting] = {}


def is_proven(recipe: Recipe, record: Record, original: Tensor) -> bool:
    """Whether the recipe is known to make the storage's bits.

    The first time, it is run and compared. On the CPU the answer is there at once; on a GPU nothing
    waits for it: the storage is kept until a later pass finds the answer.
    """
    key = (recipe.signature(), record.nbytes, original.dtype, original.device)
    with _lock:
        known = _answers.get(key)
    if isinstance(known, _Waiting):
        known = known.answer()
        if known is None:
            return False
        with _lock:
            _answers[key] = known
    if known is not None:
        return known
    on_gpu = original.device.type == "cuda"
    if on_gpu and torch.cuda.is_current_stream_capturing():
        return False
    made = evaluate(recipe)
    if made.dtype != original.dtype or not _fills(made, record.nbytes):
        answer: bool | _Waiting = False
    else:
        length = record.nbytes // made.dtype.itemsize
        differs = as_bits(made.as_strided((length,), (1,), 0)).ne(
            as_bits(original.as_strided((length,), (1,), 0))
        )
        answer = _Waiting(differs.any()) if on_gpu else not bool(differs.any())
    with _lock:
        _answers[key] = answer
    return answer is True


def _fills(made: Tensor, nbytes: int) -> bool:
    return (
        made.storage_offset() == 0
        and made.nbytes == nbytes
        and made.untyped_storage().nbytes() == nbytes
    )


def answers() -> list[tuple[str, bool | None]]:
    """Every recipe that was compared, as text, and whether its bits were the same; None: not yet."""
    with _lock:
        found = list(_answers.items())
    return [
        (_text(key[0]), value.answer() if isinstance(value, _Waiting) else value)
        for key, value in found
    ]


def _text(signature: tuple[object, ...]) -> str:
    """`relu(batch_norm(float32 8x16x32x32))`."""
    name, *arguments = signature
    if not isinstance(name, str):
        dtype, shape = signature[:2]
        return f"{str(dtype).removeprefix('torch.')} {'x'.join(map(str, shape))}"
    return f"{name}({', '.join(_text(a) for a in arguments)})"


def forget() -> None:
    """Proves everything anew, as after a change of a backend's settings."""
    with _lock:
        _answers.clear()
