"""Values that are not finite: codecs store none, so such tensors are kept.

Huge values, of 2^100 and more, count among them: codecs that sum values would overflow. On the CPU
a tensor is looked at before it is dropped. Looking would wait for a GPU, so there a pass asks for all
of its tensors at once, and a later one reads the answer. Until then groups of values with one that is
not finite come back as NaN, and from then on the tensor is kept. Passes in C++ do the same.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tuckfold._spec import spec_of
from tuckfold.torch._activations._lossy import Lossy, mixed
from tuckfold.torch._activations._saved import Form, Handle
from tuckfold.torch._activations._trace import operator_of

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_log = logging.getLogger("tuckfold.activations")
Key = tuple[object, ...]
_HUGE = 2.0**100  # as where files are written


@functools.lru_cache(maxsize=64)
def group_of(codec: str) -> int:
    """Of block_quant, whose headers say whether values were finite; else 0."""
    stages = spec_of(codec).stages
    is_plain = len(stages) == 1 and stages[0].name == "block_quant"
    return int(stages[0].params["group"] or 0) if is_plain else 0


def _witness(form: Lossy, handle: Handle) -> Tensor:
    """What is not finite, or huge, if the values are: the headers of groups, or a sum of all."""
    group = group_of(form.label)
    if group:
        start = form.bytes.numel() - 4 * -(-form.shape.numel() // group)
        if start % 2 == 0:
            return form.bytes[start:].view(torch.bfloat16)
    assert handle.tensor is not None
    x = handle.tensor.as_strided((form.shape.numel(),), (1,), 0)
    # Not the tensor itself, which would stay until the pass ends.
    if x.device.type == "cpu":
        return x
    # The sum of many halves is no half.
    wide = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    return torch.linalg.vector_norm(x, 1, dtype=wide).reshape(1)


def _is_usual(x: Tensor) -> Tensor:
    """Whether values are finite, and not huge."""
    return x.isfinite() if torch.finfo(x.dtype).max < _HUGE else x.abs() < _HUGE


def key_of(handles: list[Handle]) -> Key:
    """Of a tensor, equal in later passes."""
    h = handles[0]
    return (h.place[0], h.op, h.role, h.shape)


class Answers:
    """Of one wrapped model: what GPUs were asked, and which tensors are kept since."""

    def __init__(self) -> None:
        self.count = 0  # tensors that were not finite
        self.kept: set[Key] = set()
        self._asked: deque[tuple[list[Key], Tensor, torch.cuda.Event]] = deque(maxlen=8)

    def ask(self, keys: list[Key], witnesses: list[Tensor]) -> None:
        norms = torch._foreach_norm(witnesses, 1)
        flags = _is_usual(torch.stack([n.float() for n in norms])).logical_not_()
        answer = torch.empty(flags.shape, dtype=torch.bool, pin_memory=True)
        answer.copy_(flags, non_blocking=True)
        self.asked(keys, answer, flags.device)

    def asked(self, keys: list[Key], answer: Tensor, device: torch.device) -> None:
        """An answer that is on its way into memory of the host."""
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(device))
        self._asked.append((keys, answer, done))

    def read(self) -> None:
        while self._asked and self._asked[0][2].query():
            keys, answer, _ = self._asked.popleft()
            for key, bad in zip(keys, answer.tolist(), strict=True):
                if bad:
                    self.found(key)

    def found(self, key: Key) -> None:
        self.count += 1
        if key not in self.kept:
            self.kept.add(key)
            name, op, role, _ = key
            where, op = f"{name}: " if name else "", operator_of(str(op))
            _log.warning("%s%s of %s has values that are not finite; it is kept", where, role, op)


class Watch:
    """Of one pass: seeds for its tensors, and whether their values are finite."""

    def __init__(self, owner: Activations) -> None:
        self.answers = owner.answers
        self._seed = owner.next_seed()
        self._keys: list[Key] = []
        self._witnesses: list[Tensor] = []
        if self.answers._asked:
            self.answers.read()

    def seed(self, tensor: int) -> int:
        """For a tensor, by its number in the pass: the same whenever it is packed."""
        return mixed(self._seed, tensor)

    def is_kept(self, handles: list[Handle]) -> bool:
        """Whether its values were not finite before; on the CPU each pass looks for itself."""
        kept = self.answers.kept
        return bool(kept) and handles[0].device.type != "cpu" and key_of(handles) in kept

    def may_store(self, forms: list[Form], handles: list[Handle]) -> bool:
        """Whether the values are finite, or will be known to be."""
        for form, h in zip(forms, handles, strict=True):
            if isinstance(form, Lossy) and form.changes:
                if h.device.type == "cpu":
                    if bool(_is_usual(_witness(form, h)).all()):
                        return True
                    self.answers.found(key_of(handles))
                    return False
                self._keys.append(key_of(handles))
                self._witnesses.append(_witness(form, h))
                return True
        return True

    def end(self) -> None:
        """The pass is over."""
        if self._witnesses and not torch.cuda.is_current_stream_capturing():
            self.answers.ask(self._keys, self._witnesses)
        self._keys, self._witnesses = [], []
