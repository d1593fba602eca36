"""Which tensor is stored how, so that a training step stays within a budget of bytes or of noise.

A pass is watched operator by operator with everything stored as small as it goes. What lives at each
position, and what depends on how a tensor is stored, makes a problem for the library's solver. Its
answer is tried: if a step takes more than it should, the next answer has that much less to give.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuckfold._planner import plan_storage
from tuckfold.torch._activations import _offload as offload
from tuckfold.torch._activations._lossy import error_of, for_scores
from tuckfold.torch._activations._peak import (
    Peak,
    bytes_of,
    bytes_of_values,
    optimizer_bytes,
    peak_of,
    rounded,
)
from tuckfold.torch._activations._text import PlanError, bytes_text
from tuckfold.torch._activations._timeline import Item, Ledger, Timeline
from tuckfold.torch._activations._trace import untouched
from tuckfold.torch._functions import layout, pack, unpack

if TYPE_CHECKING:
    from tuckfold.torch._activations._goal import Goal
    from tuckfold.torch._activations._handle import Activations

MENU = tuple(
    f"block_quant(bits={bits}, group={group}, round=stochastic)"
    for bits, group in ((8, 256), (6, 256), (4, 256), (3, 64), (2, 64))
)
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_TRIES = 6
_TRIES_FOR_MORE = 4  # once a choice fits
_SPARE = 0.01  # of a budget, which is left
_PASSES_FOR_PROOFS = 3
# Variance, over the gradient's square, that is as bad as a step twice as long.
_NOISE_FOR_TIME = 0.01
_PASSES_FOR_NOISE = 4
_NOISE_MARGIN = 0.8
_GAIN = 0.1  # for which the way that a tensor is stored is changed


def bytes_of_text(budget: str | int) -> int:
    """`4GiB`, `512 MiB`, `1.5GB`, or a number of bytes."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(budget))
    try:
        assert found is not None and not isinstance(budget, bool)
        size = float(found[1]) * _UNITS[found[2].lower()]
    except (AssertionError, KeyError, ValueError):
        raise ValueError(
            f"[wrap] budget must be a number of bytes, such as 4GiB or 800MB, got {budget!r}"
        ) from None
    if size < 1:
        raise ValueError(f"[wrap] budget must be at least one byte, got {budget!r}")
    return int(size)


def speed_of_text(offload: bool | str) -> float | None:
    """`25GB/s` in bytes a second; 0 to measure it, None where nothing is offloaded."""
    if isinstance(offload, bool):
        return 0.0 if offload else None
    text = str(offload)
    try:
        assert text.endswith("/s")
        return float(bytes_of_text(text.removesuffix("/s")))
    except (AssertionError, ValueError):
        raise ValueError(
            f"[wrap] offload must be True, False or the speed of the link, such as 25GB/s, got {offload!r}"
        ) from None


def fraction_of_text(noise: str | float) -> float:
    """`1%`, or 0.01."""
    text = str(noise).strip()
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ValueError(
            f"[wrap] noise must be a part of the gradient's variance, such as 1%, got {noise!r}"
        )
    return value


@dataclass
class Fit:
    """How a budget is kept; ``print`` shows a table.

    Attributes:
        budget: bytes; None where noise is limited instead.
        peak: what a step takes, measured with what was chosen.
        predicted: what the solver expected.
        noise: the variance that codecs add to the gradient: as measured on the batch where noise is
            limited, else as the model of noise has it.
        assumed: whether nothing of the noise was measured; see ``Activations.probe``.
        items: a tensor each: name, how it is stored, bytes before and after, its part of the noise.
        changed: tensors that an earlier fit stored otherwise; another way must be a tenth better.
    """

    budget: int | None
    peak: Peak
    predicted: int
    noise: float
    items: list[tuple[str, str, int, int, float]] = field(default_factory=list)
    changed: int = 0
    assumed: bool = False

    def __str__(self) -> str:
        width = max([len("tensor"), *(len(i[0]) for i in self.items)])
        wide = max([len("stored"), *(len(i[1]) for i in self.items)])
        lines = [f"{'tensor':{width}}  {'stored':{wide}}  {'before':>10}  {'after':>10}  noise"]
        for name, how, before, after, noise in self.items:
            sizes = f"{bytes_text(before):>10}  {bytes_text(after):>10}"
            lines.append(f"{name:{width}}  {how:{wide}}  {sizes}  {noise:.1e}")
        lines.append(str(self.peak))
        guess = ", a coarse guess before `probe`" if self.assumed and self.noise > 0 else ""
        budget = "" if self.budget is None else f", of a budget of {bytes_text(self.budget)}"
        lines.append(
            f"{bytes_text(self.predicted)} were predicted{budget}; noise {self.noise:.1e}{guess}"
        )
        return "\n".join(lines)


def _some_values(device: torch.device) -> Tensor:
    """To measure with, without the random state of the user."""
    x = torch.empty(1 << (24 if device.type == "cuda" else 20), device=device)
    return x.uniform_(generator=torch.Generator(device).manual_seed(1))


@functools.lru_cache(maxsize=64)
def seconds_per_byte(codec: str, device: torch.device) -> float:
    """Of packing and unpacking: measured once on each device."""
    x = _some_values(device)

    def once() -> float:
        _wait(device)
        began = time.perf_counter()
        unpack(pack(x, codec), codec, x.shape)
        _wait(device)
        return time.perf_counter() - began

    once()
    return min(once() for _ in range(8)) / x.nbytes


@functools.lru_cache(maxsize=8)
def seconds_per_copied_byte(device: torch.device) -> float:
    x = _some_values(device)
    times = []
    for _ in range(4):
        _wait(device)
        began = time.perf_counter()
        x.clone()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times[1:]) / x.nbytes


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def menu_of(codec: str | None) -> tuple[str, ...]:
    return MENU if codec is None else (codec,)


def smallest(menu: tuple[str, ...]) -> str:
    return min(menu, key=lambda c: layout(c, torch.float32, (1 << 20,)).max_bytes)


def problem_of(
    ledger: Ledger,
    menu: tuple[str, ...],
    seconds: float,
    weights: dict[Any, float],
    link: float | None = None,
    current: dict[Any, str] | None = None,
) -> tuple[dict[str, Any], list[list[str]]]:
    """The solver's problem, and how each choice of each item is called.

    seconds: of a step. weights: the part of each item in the noise, by its key. link: as `Goal` has it.
    current: how items are stored now; another way must be better by _GAIN.
    """
    device = ledger.timeline.device
    items, names = [], []
    for item in ledger.items:
        choices: list[dict[str, Any]] = []
        made = [list(span) for span in item.made]
        whole = [[item.stored, max(item.stored, item.died), rounded(item.nbytes)]]
        choices.append({"kind": "keep", "how": "keep", "spans": whole})
        if item.how == "recompute":
            cost = 4 * item.nbytes * seconds_per_copied_byte(device)
            choices.append(
                {"kind": "recompute", "how": "recompute", "spans": made, "seconds": cost}
            )
        elif item.how != offload.CPU:
            measured = item.key in weights
            for codec in sorted({_graded(c, item, measured) for c in menu}, key=menu_order(menu)):
                size = _stored_bytes(codec, item)
                if size >= item.nbytes:
                    continue
                spans = [[whole[0][0], whole[0][1], rounded(size)], *made]
                noise = weights.get(item.key, 1 / max(1, len(ledger.items))) * error_of(codec)
                cost = item.nbytes * seconds_per_byte(codec, device)
                choices.append(
                    {"kind": "codec", "how": codec, "spans": spans, "noise": noise, "seconds": cost}
                )
        if link is not None:
            cost = 2 * item.nbytes * (1 / link if link else offload.seconds_per_byte(device))
            choices.append({"kind": "offload", "how": offload.CPU, "spans": made, "seconds": cost})
        for choice in choices:
            if current and choice["how"] == current.get(item.key):
                for cost_of in {"noise", "seconds"} & choice.keys():
                    choice[cost_of] *= 1 - _GAIN
        items.append({"name": f"{item.name}", "choices": choices})
        names.append([c["how"] for c in choices])
    problem = {
        "base": ledger.timeline.base(),
        "items": items,
        "noise_weight": 1.0,
        "seconds_weight": _NOISE_FOR_TIME / max(seconds, 1e-6),
    }
    return problem, names


def _graded(codec: str, item: Item, is_measured: bool) -> str:
    """Few bits for scores only where it is known how much noise they add."""
    is_open = item.grade == "value" or (item.grade == "sums" and is_measured)
    return codec if is_open else for_scores(codec)


def menu_order(menu: tuple[str, ...]) -> Callable[[str], int]:
    return lambda codec: menu.index(codec) if codec in menu else -1


def _stored_bytes(codec: str, item: Item) -> int:
    length = item.nbytes // item.dtype.itemsize
    return layout(codec, item.dtype, (length,)).max_bytes


def watched(
    act: Activations, arguments: Any, keywords: Any, loss: Callable[..., Any]
) -> tuple[Ledger, float]:
    """A pass with all that is known of when which bytes live; and the seconds of one."""
    model = act.model
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def step() -> None:
        output = model(*arguments, **keywords)  # a training loop holds it until backward is over
        value = loss(output)
        torch.clear_autocast_cache()
        if value is not None and parameters:
            torch.autograd.grad(value, parameters, allow_unused=True)

    with untouched(model), torch.enable_grad():
        for _ in range(_PASSES_FOR_PROOFS if device.type == "cuda" else 2):
            _wait(device)
            began = time.perf_counter()
            step()
            _wait(device)
            seconds = time.perf_counter() - began
        given = torch.utils._pytree.tree_leaves((arguments, keywords))
        own = (*model.parameters(), *model.buffers(), *given)
        timeline = Timeline([t for t in own if isinstance(t, Tensor)], device)
        ledger = Ledger(model, timeline)
        with act.named(), act.traced(ledger), timeline:
            step()
    ledger.finish()
    return ledger, seconds


def measured_noise(
    act: Activations, arguments: Any, keywords: Any, loss: Callable[..., Any]
) -> float:
    """The square of what codecs change of the gradient, over the gradient's, with what is chosen now."""
    model = act.model
    parameters = [p for p in model.parameters() if p.requires_grad]

    def gradients() -> list[Tensor | None]:
        with untouched(model), torch.enable_grad():
            value = loss(model(*arguments, **keywords))
            if value is None or not parameters:
                return []
            return list(torch.autograd.grad(value, parameters, allow_unused=True))

    with act.paused():
        exact = gradients()
    whole = square_of(exact)
    noise = sum(square_of(gradients(), exact) for _ in range(_PASSES_FOR_NOISE)) / _PASSES_FOR_NOISE
    return noise / whole if whole else 0.0


def square_of(a: list[Tensor | None], b: list[Tensor | None] | None = None) -> float:
    """Of gradients, or of their difference."""
    total = 0.0
    for i, x in enumerate(a):
        if x is not None:
            y = None if b is None else b[i]
            total += float((x.double() if y is None else x.double() - y.double()).square().sum())
    return total


def fixed_bytes(
    act: Activations, given: Any, optimizer: torch.optim.Optimizer | None, of_gpu: bool
) -> int:
    """What lives all the time: on a GPU the timeline has what is allocated already."""
    state = 0 if optimizer is None else optimizer_bytes(optimizer)
    if of_gpu:
        allocated = [v for s in (optimizer.state.values() if optimizer else ()) for v in s.values()]
        return state - min(state, bytes_of(allocated))
    model = act.model
    own = bytes_of((*model.parameters(), *model.buffers()))
    gradients = bytes_of(p.grad for p in model.parameters() if p.grad is not None)
    return own + gradients + bytes_of(torch.utils._pytree.tree_leaves(given)) + state


def fit(
    goal: Goal,
    act: Activations,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    target: Any,
    loss: Callable[..., Any],
    optimizer: torch.optim.Optimizer | None,
) -> Fit:
    """Chooses, tries, and chooses again until what is measured is within the budget."""
    menu = menu_of(goal.codec)
    current = goal.chosen
    goal.decide(act, {}, is_open=True)
    ledger, seconds = watched(act, inputs, keywords, loss)
    given = (inputs, keywords, target)
    on_gpu = ledger.timeline.device.type == "cuda"
    fixed = fixed_bytes(act, given, optimizer, on_gpu)
    problem, names = problem_of(ledger, menu, seconds, goal.weights, goal.link, current)
    if goal.budget is not None:
        return _fit_budget(
            goal, act, ledger, problem, names, menu, fixed, current, given, loss, optimizer
        )
    problem["noise"] = goal.noise
    for attempt in range(_TRIES):
        plan = _solved(problem)
        if not plan["fits"]:
            break
        chosen = _decide(goal, act, ledger, names, plan)
        noise = measured_noise(act, inputs, keywords, loss) / goal.unit
        if noise > goal.noise and problem["noise"] > 0:
            # As much less as the model of noise was wrong by, and some for the next measurement.
            less = 0.0 if attempt == _TRIES - 2 else _NOISE_MARGIN * goal.noise / noise
            problem["noise"] *= less
            continue
        peak = peak_of(act, inputs, target, loss, optimizer, keywords, True)
        fitted = _fitted(goal, ledger, plan, peak, chosen, fixed, current)
        return replace(fitted, noise=noise, assumed=False)
    # Nothing can be packed, or nothing within the limit: what keeps every bit always is.
    chosen = ["recompute" if "recompute" in item else "keep" for item in names]
    goal.decide(act, dict(zip((item.key for item in ledger.items), chosen, strict=True)))
    peak = peak_of(act, inputs, target, loss, optimizer, keywords, True)
    fitted = _fitted(goal, ledger, _only(problem, chosen), peak, chosen, fixed, current)
    return replace(fitted, noise=0.0, assumed=False)


def _decide(goal: Goal, act: Activations, ledger: Ledger, names: list[list[str]], plan: dict[str, Any]) -> list[str]:  # fmt: skip
    """What a plan chooses, item by item, which holds from now on."""
    chosen = [names[i][k] for i, k in enumerate(plan["choice"])]
    keys = [item.key for item in ledger.items]
    goal.decide(act, dict(zip(keys, chosen, strict=True)))
    return chosen


def _fit_budget(
    goal: Goal,
    act: Activations,
    ledger: Ledger,
    problem: dict[str, Any],
    names: list[list[str]],
    menu: tuple[str, ...],
    fixed: int,
    current: dict[Any, str],
    given: tuple[Any, ...],
    loss: Callable[..., Any],
    optimizer: torch.optim.Optimizer | None,
) -> Fit:
    """Gives the solver the room that the budget leaves, less where a step then takes too much, and more
    where it leaves some, since choices with more room are gentler."""
    inputs, keywords, target = given
    budget = goal.budget
    assert budget is not None
    room = budget - fixed - goal.margin
    spare = int(_SPARE * budget)
    too_much: int | None = None  # the least peak, by the solver, with which a step took too much
    best: tuple[int, dict[str, Any], Peak] | None = None
    measured: dict[tuple[int, ...], tuple[Peak, int]] = {}
    is_least = False  # whether the least peak was tried
    for attempt in range(_TRIES + _TRIES_FOR_MORE):
        plan = _solved(problem | {"budget": max(0, room)})
        if not plan["fits"]:
            if too_much is None or best is not None or is_least:
                break
            # What steps take beyond the solver's peak is not the same for all choices: the least peak
            # may fit though less room was asked for.
            plan, is_least = plan_storage(problem | {"budget": 0}), True
            room = plan["peak"]
        choice = tuple(plan["choice"])
        if choice not in measured:
            _decide(goal, act, ledger, names, plan)
            peak = peak_of(act, inputs, target, loss, optimizer, keywords, True)
            measured[choice] = peak, _taken(peak, fixed, ledger.timeline.device)
        peak, took = measured[choice]
        if took <= budget:
            if best is None or room > best[0]:
                best = room, plan, peak
            more = room + (budget - took) if too_much is None else (room + too_much) // 2
            is_exact = all(names[i][k] in ("keep", "recompute") for i, k in enumerate(choice))
            if is_exact or min(budget - took, more - room) <= spare:
                break
            room = more
        else:
            too_much = min(plan["peak"], plan["peak"] if too_much is None else too_much)
            if best is None:
                if is_least or attempt == _TRIES - 1:
                    break
                room = min(room, plan["peak"]) - (took - budget)
            elif too_much - best[0] <= spare:
                break
            else:
                room = (best[0] + too_much) // 2
    if best is not None:
        _, plan, peak = best
        chosen = _decide(goal, act, ledger, names, plan)
        return _fitted(goal, ledger, plan, peak, chosen, fixed, current)
    # The solver has no more to give: everything the same way, the gentlest first.
    for codec in (*menu, None):
        chosen = [_one_way(item, codec) for item in names]
        goal.decide(act, dict(zip((item.key for item in ledger.items), chosen, strict=True)))
        peak = peak_of(act, inputs, target, loss, optimizer, keywords, True)
        took = _taken(peak, fixed, ledger.timeline.device)
        if took <= budget:
            return _fitted(goal, ledger, _only(problem, chosen), peak, chosen, fixed, current)
    raise _impossible(goal, took, peak, given, plan["why"])


def _one_way(names: list[str], codec: str | None) -> str:
    """Recomputed where that is possible, else with the codec, or as small as possible."""
    if "recompute" in names:
        return "recompute"
    return codec if codec in names else names[-1]


def _only(problem: dict[str, Any], chosen: list[str]) -> dict[str, Any]:
    """The plan of a choice."""
    items = [
        item | {"choices": [c for c in item["choices"] if c["how"] == how]}
        for item, how in zip(problem["items"], chosen, strict=True)
    ]
    return plan_storage(problem | {"items": items, "budget": 0})


def _solved(problem: dict[str, Any]) -> dict[str, Any]:
    """For a budget without codecs and copies first: gradients keep every bit where that fits."""
    if "budget" in problem:
        exact = [
            item | {"choices": [c for c in item["choices"] if c["kind"] in ("keep", "recompute")]}
            for item in problem["items"]
        ]
        plan = plan_storage(problem | {"items": exact})
        if plan["fits"]:
            return plan
    return plan_storage(problem)


def _taken(peak: Peak, fixed: int, device: torch.device) -> int:
    """What a step took; on a GPU with all that is allocated, whoever made it."""
    if device.type != "cuda":
        return peak.total
    return torch.cuda.max_memory_allocated(device) + fixed


def _impossible(goal: Goal, smallest: int, peak: Peak, given: Any, why: str) -> PlanError:
    budget = bytes_text(goal.budget or 0)
    parts = {"model": peak.model, "inputs": peak.inputs, "optimizer": peak.optimizer}
    named = [f"{name} {bytes_text(size)}" for name, size in parts.items() if size]
    holds = why.partition(", at position ")[2].partition(": ")[2]
    tensors = [t for t in torch.utils._pytree.tree_leaves(given) if isinstance(t, Tensor)]
    values = bytes_of_values(tensors)
    hint = ""
    if peak.inputs > 2 * values:
        hint = (
            f"; the inputs have {bytes_text(values)} of values and hold {bytes_text(peak.inputs)}: a slice holds all "
            "of the tensor that it was taken from, its clone() does not"
        )
    return PlanError(
        f"[wrap] budget={budget} cannot be kept: the smallest peak that was found is "
        f"{bytes_text(smallest)}, with {', '.join([*named, *([holds] if holds else [])])}{hint}"
    )


def _fitted(
    goal: Goal,
    ledger: Ledger,
    plan: dict[str, Any],
    peak: Peak,
    chosen: list[str],
    fixed: int,
    before: dict[Any, str],
) -> Fit:
    rows = []
    changed = sum(
        before.get(item.key, how) != how for item, how in zip(ledger.items, chosen, strict=True)
    )
    for item, how in zip(ledger.items, chosen, strict=True):
        after = item.nbytes if how == "keep" else 0
        noise = 0.0
        if how not in ("keep", "recompute", offload.CPU):
            after = _stored_bytes(how, item)
            noise = goal.weights.get(item.key, 1 / max(1, len(ledger.items))) * error_of(how)
        rows.append((item.name, how, item.nbytes, after, noise))
    noise = sum(row[4] for row in rows)
    return Fit(goal.budget, peak, fixed + plan["peak"], noise, rows, changed, not goal.weights)
