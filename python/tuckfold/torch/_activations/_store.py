"""Which form a storage gets, once nobody else holds it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tuckfold.torch._activations import _forms as forms
from tuckfold.torch._activations import _gates as gates
from tuckfold.torch._activations import _products as products
from tuckfold.torch._activations._graph import kind
from tuckfold.torch._activations._lossy import Lossy, best_grade, for_scores
from tuckfold.torch._activations._proof import is_proven
from tuckfold.torch._activations._recipe import Recipe, Recomputed, Way
from tuckfold.torch._activations._recompute import MAKERS, Builder
from tuckfold.torch._activations._saved import Form, Handle, Record
from tuckfold.torch._memory import is_dense

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_NEEDS = ("nothing", "positive", "above 0", "between")  # that are less than the values
_not_images: set[object] = set()  # signatures of tensors that were looked at in vain


def is_promising(handles: list[Handle], node: object) -> bool:
    """Whether a rule may fit, before the storage is free to be packed."""
    if node is not None and kind(node) in MAKERS:
        return True
    return all(_has_form(h) or not h.known for h in handles)


def _has_form(handle: Handle) -> bool:
    return handle.need != "value" or handle.dtype == torch.bool or _may_be_looked_at(handle)


def _may_be_looked_at(handle: Handle) -> bool:
    """Reading values would wait for a GPU."""
    return handle.device.type == "cpu" and handle.origin is None


def forms_of(record: Record, handles: list[Handle]) -> list[Form] | None:
    """A form for every view of the storage, or None to keep it."""
    if any(h.tensor is None or _is_lazy(h.tensor) for h in handles):
        return None
    if not all(_has_form(h) for h in handles):
        return None
    found: dict[object, Form] = {}
    result: list[Form] = []
    for h in handles:
        key = (h.need, h.limits, h.dtype, h.shape, h.strides, h.offset)
        form = found.get(key) or form_of(h)
        if form is None or (record.pinned and not form.whole):
            return None
        found[key] = form
        result.append(form)
    return result if sum(f.nbytes for f in found.values()) < record.nbytes else None


def _is_lazy(x: Tensor) -> bool:
    """Whether its memory does not hold its values: a view that negates, or a zero of forward AD."""
    return x.is_conj() or x.is_neg() or x._is_zerotensor()


def form_of(h: Handle) -> Form | None:
    x = h.tensor
    assert x is not None
    if h.need == "nothing":
        return forms.Nothing()
    if not is_dense(x):
        return None
    if h.dtype == torch.bool:
        return forms.Bits(x, "1 bit", whole=True)
    if h.need == "positive" and h.dtype in _FLOATS:
        return forms.Bits(x, "1 bit")
    if h.need == "above 0" and h.dtype in _FLOATS:
        return forms.Bits(x > 0, "1 bit", -1, 1)
    if h.need == "between":
        return forms.Regions(x, *h.limits)
    if h.need == "pool index":
        return forms.pool_index(x, *h.limits)
    if h.need == "below":
        dtype = forms.narrowest(0, int(h.limits[0]) - 1)
        return forms.Narrow(x, dtype) if dtype.itemsize < h.dtype.itemsize else None
    return _looked_at(h) if _may_be_looked_at(h) else None


def _looked_at(h: Handle) -> Form | None:
    """Forms that depend on the values: small whole numbers, masks of floats, images."""
    x = h.tensor
    assert x is not None
    if h.dtype in (torch.int64, torch.int32) and x.numel():
        low, high = (int(v) for v in x.aminmax())
        dtype = forms.narrowest(low, high)
        return forms.Narrow(x, dtype) if dtype.itemsize < h.dtype.itemsize else None
    key = (h.shape, h.strides, h.dtype)
    if h.dtype not in _FLOATS or not x.numel() or key in _not_images:
        return None
    form = forms.two_values(x) or (forms.image(x) if h.dtype == torch.float32 else None)
    if form is None and len(_not_images) < 4096:
        _not_images.add(key)
    return form


def ways(device: torch.device) -> Iterable[Way]:
    """Of making a normalization again, in the order in which they are tried."""
    return Way if device.type == "cuda" else (Way.SAME,)


def recomputed(
    record: Record, handles: list[Handle], node: object, builder: Builder
) -> Recomputed | None:
    """The storage as a recipe that is proven to make it, or None."""
    original = handles[0].tensor
    if record.pinned or original is None or not is_as_made(handles, node, builder):
        return None
    if any(h.dtype != original.dtype or h.tensor is None for h in handles):
        return None
    is_product = kind(node) in products.KINDS
    if is_product and builder.is_lossy and best_grade(handles) not in ("score", "sums"):
        return None
    for fast in ways(original.device):
        recipe = builder.recipe(node, fast)
        if recipe is None:
            continue
        sources = [source.record for source in recipe.sources()]
        if any(source is record or source.stream != record.stream for source in sources):
            continue
        if builder.is_lossy and not _is_good_enough(recipe, handles):
            continue
        proven = is_proven(recipe, record, handles)
        if proven:
            for source in recipe.sources():
                source.record.pinned = source.is_source = True
            if builder.is_lossy:
                _raise_grade(recipe, handles)
            if is_product:
                builder.flops -= products.flops(node)
            return Recomputed(recipe)
        builder.waits |= proven is None
    return None


def _sources(recipe: Recipe) -> Iterable[Handle]:
    """What it reads, and what that is made again from."""
    for source in recipe.sources():
        yield source
        if isinstance(source.form, Recomputed):
            yield from _sources(source.form.recipe)


def _is_good_enough(recipe: Recipe, handles: list[Handle]) -> bool:
    """Whether what codecs have stored already will do for what is made of it."""
    forms = [s.form for s in _sources(recipe)]
    stored = [f.label for f in forms if isinstance(f, Lossy) and f.changes]
    grade = best_grade(handles)
    return grade == "value" or all(grade != "" and for_scores(s) == s for s in stored)


def _raise_grade(recipe: Recipe, handles: list[Handle]) -> None:
    """What is read must be stored as well as what is made of it."""
    grade = best_grade(handles)
    if grade != "value":
        for source in _sources(recipe):
            source.grade = source.grade and grade


def spread(form: Form, handles: list[Handle]) -> list[Form]:
    """A recipe for the views that are read for their values, and for others the exact form of what is
    read: what the recipe reads may be lossy."""
    found: dict[object, Form] = {}
    result: list[Form] = []
    with torch.no_grad():
        for h in handles:
            if h.need not in _NEEDS:
                result.append(form)
                continue
            key = (h.need, h.limits, h.shape, h.strides, h.offset)
            found[key] = found.get(key) or form_of(h) or form
            result.append(found[key])
    if isinstance(form, Recomputed) and handles:
        form.gate = gates.of(handles[0].record, handles, result)
    return result


def is_as_made(handles: list[Handle], node: object, builder: Builder) -> bool:
    """Whether the values are those that the node made, also where it made them in place.

    Each change counts one version, but only autograd's own are in the graph.
    """
    versions = {h.version for h in handles}
    if len(versions) != 1 or not all(h.is_unchanged() for h in handles):
        return False
    if versions == {0} or any(h.is_output for h in handles):
        return True
    return versions == {1} and builder.overwrites(node)
