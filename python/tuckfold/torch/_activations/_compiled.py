"""Wrapped models under torch.compile.

torch's partitioner divides the graph of a model into forward and backward, and chooses what forward
saves. While a model is wrapped, ours stands in its place: it calls the one that was there, and for
graphs with parameters of a wrapped model it goes on to exchange what is saved.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch._dynamo.backends.debugging as _eager_backend
import torch._inductor.config as _inductor
from torch import fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from tuckfold.torch._activations._choice import Choice, Options
from tuckfold.torch._activations._inside import places_in
from tuckfold.torch._activations._lossy import suits_graphs
from tuckfold.torch._activations._split import Split, is_static, value_of

if TYPE_CHECKING:
    from tuckfold.torch._activations._handle import Activations

_log = logging.getLogger("tuckfold.activations")
_owners: weakref.WeakKeyDictionary[Activations, None] = weakref.WeakKeyDictionary()  # by time
_CLOSED = "compile with dynamic=False, or drop the last, shorter batch (drop_last=True)"
Graphs = tuple[fx.GraphModule, fx.GraphModule]


def _owner(mode: Any) -> Activations | None:
    """The wrapped model whose parameters became fake tensors of this mode."""
    if mode is None:
        return None
    try:
        known = mode.fake_tensor_converter.meta_converter.describer.lookup_tensor
    except AttributeError as error:  # another torch
        _log.warning("compiled models run as if they were not wrapped: %s", error)
        return None
    found = [
        act
        for act in _owners
        if (model := act._model()) is not None and any(p in known for p in model.parameters())
    ]
    if len(found) > 1:
        _log.warning(
            "a compiled graph has %d wrapped models; the one that was wrapped first is followed, and the others stay "
            "exact: wrap a module that has them all",
            len(found),
        )
    return found[0] if found else None


def _divide(act: Activations | None, graphs: Graphs, outputs: int, fused: bool) -> Graphs:
    """The graphs with other values saved; as they are where that fails."""
    if act is None or act._is_paused:
        return graphs
    try:
        forward, backward = (fx.GraphModule(g, copy.deepcopy(g.graph)) for g in graphs)
        split = Split(forward, backward, outputs)
        if not split.is_plain:
            act.compiled.setdefault(_frame(), [])
            _log.warning("a compiled graph saves what only torch knows, and is left alone")
            return graphs
        choice = Choice(split, _options(act), fused, act.policy_of_row, act.model)
        rows = choice.run()
    except Exception as error:
        act.note(error)
        return graphs
    act.compiled[_frame()] = rows
    if choice.packer.has_seeds:
        act.add_graph(choice.packer.graph, rows)
    is_open = not all(is_static(value_of(n)) for n in split.saved)
    if act.is_lossy and is_open:
        _log.warning("a compiled graph has open sizes, where codecs do nothing: %s", _CLOSED)
    before, after = sum(r.before for r in rows), sum(r.after for r in rows)
    if before == after:
        why = f"; its sizes are open, where masks are kept: {_CLOSED}" if is_open else ""
        _log.warning(
            "a compiled graph has nothing to store in less memory, and is left alone%s", why
        )
        return graphs
    _log.info("a compiled graph saves %d bytes, and stores %d instead", before, after)
    return forward, backward


def _options(act: Activations) -> Options:
    codec = act.codec if act.codec is not None and suits_graphs(act.codec) else None
    return Options(act.least[0], act.recompute > 0, codec, act.is_lossy)


def _frame() -> object:
    """What is compiled again takes the place of what it was before."""
    now = CompileContext.current_compile_id()
    return (now.frame_id, now.compiled_autograd_id) if now is not None else None


class Partitioner(CustomPartitionerFn):
    """For inductor; what was configured before does the first part of the work."""

    def __init__(self, previous: CustomPartitionerFn | None) -> None:
        self.previous = previous

    def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **options: Any) -> Graphs:
        act = _owner(_mode_of(gm))
        divide = self.previous or min_cut_rematerialization_partition
        graphs = divide(gm, joint_inputs, **options)
        return _divide(act, graphs, options["num_fwd_outputs"], fused=True)

    def uuid(self) -> Any:
        """What torch's caches of compiled graphs tell this graph apart by."""
        before = None if self.previous is None else self.previous.uuid()
        context = TracingContext.try_get()
        act = _owner(context.fake_mode) if context is not None else None
        if act is None or act._is_paused:
            return before
        act.is_looked_up = True
        places = places_in(act.model) if act.is_lossy or act._policy.rules else ""
        return f"tuckfold {_sources()} {_options(act)} {act._policy.rules} {places} {before}"


class _EagerPartition:
    """The same for the backend aot_eager, which runs operators one by one."""

    def __init__(self, previous: Callable[..., Graphs]) -> None:
        self.previous = previous

    def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **options: Any) -> Graphs:
        act = _owner(_mode_of(gm))
        graphs = self.previous(gm, joint_inputs, **options)
        return _divide(act, graphs, options["num_fwd_outputs"], fused=False)


def _mode_of(gm: fx.GraphModule) -> Any:
    values = (n.meta.get("val") for n in gm.graph.find_nodes(op="placeholder"))
    return next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)


_digest: str | None = None


def _sources() -> str:
    """Another version of these files makes other graphs."""
    global _digest
    if _digest is None:
        folder = Path(__file__).parent
        names = (
            "affine",
            "compiled",
            "choice",
            "chains",
            "packs",
            "split",
            "lossy",
            "graph_reads",
            "graph_sums",
            "inside",
        )
        text = b"".join((folder / f"_{name}.py").read_bytes() for name in names)
        _digest = hashlib.sha256(text).hexdigest()
    return _digest


def install(act: Activations) -> None:
    """From now on graphs of this model are stored in less memory."""
    if act not in _owners:
        _owners[act] = None
        weakref.finalize(act.model, _restore)
    if not isinstance(_inductor.custom_partitioner_fn, Partitioner):
        _inductor.custom_partitioner_fn = Partitioner(_inductor.custom_partitioner_fn)
    name = "min_cut_rematerialization_partition"
    divide = getattr(_eager_backend, name, None)
    if divide is not None and not isinstance(divide, _EagerPartition):
        setattr(_eager_backend, name, _EagerPartition(divide))


def uninstall(act: Activations) -> None:
    _owners.pop(act, None)
    _restore()


def _restore() -> None:
    """Without wrapped models torch is configured as it was."""
    if any(act._model() is not None for act in _owners):
        return
    if isinstance(mine := _inductor.custom_partitioner_fn, Partitioner):
        _inductor.custom_partitioner_fn = mine.previous
    name = "min_cut_rematerialization_partition"
    if isinstance(divide := getattr(_eager_backend, name, None), _EagerPartition):
        setattr(_eager_backend, name, divide.previous)
