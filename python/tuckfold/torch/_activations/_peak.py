"""How much memory a training step will take at most, from one forward and one backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from tuckfold.torch._activations._text import bytes_text
from tuckfold.torch._activations._trace import untouched

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

PASSES = 4  # until a pass is like all that follow
_BLOCK = 512  # bytes that a GPU's allocator rounds up to
# Tensors of a parameter's sizes that an optimizer holds for each; options that add one.
KNOWN_STATES: dict[type, tuple[int, tuple[str, ...]]] = {
    torch.optim.SGD: (0, ("momentum",)),
    torch.optim.Adam: (2, ("amsgrad",)),
    torch.optim.AdamW: (2, ("amsgrad",)),
    torch.optim.RMSprop: (1, ("momentum", "centered")),
    torch.optim.NAdam: (2, ()),
    torch.optim.RAdam: (2, ()),
    torch.optim.Adamax: (2, ()),
}


@dataclass
class Peak:
    """Bytes at the moment of a training step that takes most; ``print`` shows them.

    Attributes:
        total: the sum of the others.
        model: parameters and buffers.
        inputs: what the model is called with, and the target.
        optimizer: its state.
        passes: saved tensors, gradients, and what operators make, together at most.
    """

    model: int
    inputs: int
    optimizer: int
    passes: int

    @property
    def total(self) -> int:
        return self.model + self.inputs + self.optimizer + self.passes

    def __str__(self) -> str:
        return (
            f"a training step takes {bytes_text(self.total)} at most: model {bytes_text(self.model)}, inputs "
            f"{bytes_text(self.inputs)}, optimizer {bytes_text(self.optimizer)}, forward and backward "
            f"{bytes_text(self.passes)}"
        )


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operators make, until they are freed."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.live = self.most = 0
        self._seen: dict[int, weakref.ref[torch.UntypedStorage] | None] = {
            t.untyped_storage()._cdata: None for t in known if t.layout is torch.strided
        }

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        made = operator(*arguments, **(keywords or {}))
        for x in torch.utils._pytree.tree_leaves(made):
            if isinstance(x, Tensor) and x.layout is torch.strided:
                self._count(x.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        nbytes = rounded(storage.nbytes())

        def freed(_: object) -> None:
            del self._seen[key]
            self.live -= nbytes

        self._seen[key] = weakref.ref(storage, freed)
        self.live += nbytes
        self.most = max(self.most, self.live)


def most_allocated(step: Callable[[], None]) -> int | None:
    """On the CPU: the most bytes above what was there before, by every allocation and free of a step, as
    torch's profiler sees them, so with operators' workspaces. None where somebody else profiles."""
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as p:
            step()
        stack = list(p.profiler.kineto_results.experimental_event_tree())
    except (RuntimeError, AttributeError):
        return None
    sizes = []
    while stack:
        event = stack.pop()
        stack += event.children
        if event.name == "[memory]":
            sizes.append((event.start_time_ns, event.extra_fields.alloc_size))
    live = most = 0
    for _, size in sorted(sizes, key=lambda item: item[0]):
        live += size
        most = max(most, live)
    return most


def rounded(nbytes: int) -> int:
    return -(-nbytes // _BLOCK) * _BLOCK


def bytes_of(tensors: Iterable[Any]) -> int:
    """Of their storages, each counted once."""
    storages = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes()
        for t in tensors
        if isinstance(t, Tensor) and t.layout is torch.strided
    }
    return sum(map(rounded, storages.values()))


def bytes_of_values(tensors: Iterable[Tensor]) -> int:
    """Without what their storages have besides; storages are rounded up, so this is, too."""
    return sum(rounded(t.nbytes) for t in tensors if t.layout is torch.strided)


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """What its state takes, or will take from its first step on."""
    states = [v for state in optimizer.state.values() for v in state.values()]
    if states:
        return bytes_of(states)
    if type(optimizer) not in KNOWN_STATES:
        raise ValueError(
            f"[peak] the state of {type(optimizer).__name__} is not known before its first step: "
            "call peak after one"
        )
    count, options = KNOWN_STATES[type(optimizer)]
    total = 0
    for group in optimizer.param_groups:
        copies = count + sum(bool(group.get(option)) for option in options)
        trained = [p for p in group["params"] if p.requires_grad]
        total += copies * sum(rounded(p.nbytes) for p in trained)
    return total


def passes_of(
    act: Activations,
    arguments: Any,
    keywords: Any,
    loss: Callable[..., Any],
    with_workspaces: bool = False,
) -> int:
    """The most bytes that one forward and one backward pass add, once passes repeat each other.

    with_workspaces: on the CPU, too, where that takes longer.
    """
    model = act.model
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step() -> None:
        output = model(
            *arguments, **keywords
        )  # a training loop holds it, too, until backward is over
        value = loss(output)
        torch.clear_autocast_cache()  # as the end of an autocast does
        if value is not None and parameters:
            torch.autograd.grad(value, parameters, allow_unused=True)

    with untouched(model), torch.enable_grad():
        for _ in range(PASSES):
            step()
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        if device.type == "cuda":  # its allocator knows of operators' workspaces, too
            torch.cuda.synchronize(device)
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            step()
            return torch.cuda.max_memory_allocated(device) - before
        given = torch.utils._pytree.tree_leaves((arguments, keywords))
        known = [
            t for t in (*model.parameters(), *model.buffers(), *given) if isinstance(t, Tensor)
        ]
        with LiveBytes(known) as live:
            step()
        allocated = most_allocated(step) if with_workspaces else None
        return max(live.most, allocated or 0)


def peak_of(
    act: Activations,
    inputs: Any,
    target: Any,
    loss: Callable[..., Any],
    optimizer: torch.optim.Optimizer | None,
    keywords: Any,
    with_workspaces: bool = False,
) -> Peak:
    model: nn.Module = act.model
    given = torch.utils._pytree.tree_leaves((inputs, target, keywords))
    return Peak(
        bytes_of((*model.parameters(), *model.buffers())),
        bytes_of(given),
        0 if optimizer is None else optimizer_bytes(optimizer),
        passes_of(act, inputs, keywords, loss, with_workspaces),
    )
