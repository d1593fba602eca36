"""Whether a recipe gives the same bits again, found out on the device that it runs on."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from tuckfold.torch._activations._forms import as_bits
from tuckfold.torch._activations._lossy import Lossy
from tuckfold.torch._activations._recipe import Recipe, evaluate
from tuckfold.torch._activations._saved import Handle, Record


class _Waiting:
    """A comparison that a GPU has in its queue."""

    def __init__(self, differs: Tensor) -> None:
        self.flag = torch.empty((), dtype=torch.bool, pin_memory=True)
        self.flag.copy_(differs, non_blocking=True)
        self.done = torch.cuda.Event()
        self.done.record(torch.cuda.current_stream(differs.device))

    def answer(self) -> bool | None:
        return not bool(self.flag) if self.done.query() else None


_lock = threading.Lock()
_answers: dict[tuple[Any, ...], bool | _Waiting] = {}


def is_proven(recipe: Recipe, record: Record, handles: list[Handle]) -> bool | None:
    """Whether the recipe is known to make the storage's bits; None: not known yet.

    The first time, it is run and compared. On the CPU the answer is there at once; on a GPU nothing
    waits for it: the storage is kept until a later pass finds the answer.
    """
    original = handles[0].tensor
    assert original is not None
    layout = _layout(record, handles)
    key = (recipe.signature(), record.nbytes, original.dtype, original.device, layout)
    with _lock:
        known = _answers.get(key)
    on_gpu = original.device.type == "cuda"
    if not isinstance(known, bool) and on_gpu and torch.cuda.is_current_stream_capturing():
        return None  # a graph can neither wait nor ask
    if isinstance(known, _Waiting):
        known = known.answer()
        if known is None:
            return None
        with _lock:
            _answers[key] = known
    if known is not None:
        return known
    if any(isinstance(s.form, Lossy) and s.form.changes for s in recipe.sources()):
        return False  # of what a codec has changed nothing can be told
    rehearsed: list[tuple[Tensor, Tensor]] = []
    made = evaluate(recipe, rehearsed)
    answer: bool | _Waiting = False
    if made.dtype == original.dtype and _fits(made, record.nbytes, layout):
        length = record.nbytes // made.dtype.itemsize
        flat = [x.as_strided((length,), (1,), 0) for x in (made, original)]
        differs = _differs(*flat)
        for pair in rehearsed:
            differs |= _differs(*pair)
        answer = _Waiting(differs) if on_gpu else not bool(differs)
    with _lock:
        _answers[key] = answer
    return answer if isinstance(answer, bool) else None


def _differs(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype != b.dtype or a.shape != b.shape:
        return torch.ones((), dtype=torch.bool, device=a.device)
    return as_bits(a).ne(as_bits(b)).any()


Layout = tuple[torch.Size, tuple[int, ...]] | bool


def _layout(record: Record, handles: list[Handle]) -> Layout:
    """The sizes and strides of what the node made, or whether it is known to be contiguous."""
    for h in handles:
        if h.is_direct:
            return (h.shape, h.strides)
    for h in handles:
        x = h.tensor
        if h.is_reshaped and x is not None and x.nbytes == record.nbytes and x.is_contiguous():
            return True  # of other axes, or in another order, it would be no such view
    return False


def _fits(made: Tensor, nbytes: int, layout: Layout) -> bool:
    """Whether it fills the storage, and in the order of axes that the original had.

    Values alone do not tell an order of axes where they are all equal, as after a layer of zeros.
    """
    if made.storage_offset() != 0 or made.nbytes != nbytes:
        return False
    if isinstance(layout, tuple):
        in_order = (made.shape, made.stride()) == layout
    else:
        # What nobody saved as it was made may be channels_last.
        in_order = made.is_contiguous() if layout else made.dim() < 4
    return in_order and made.untyped_storage().nbytes() == nbytes


def compared() -> list[tuple[tuple[Any, ...], bool | None]]:
    """The signature of every recipe that was compared, and whether its bits were the same; None: not yet."""
    with _lock:
        found = list(_answers.items())
    return [
        (key[0], value.answer() if isinstance(value, _Waiting) else value) for key, value in found
    ]


def answers() -> list[tuple[str, bool | None]]:
    """The same, as text."""
    return [(_text(signature), answer) for signature, answer in compared()]


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
