"""Wrapping a model: what may be asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuckfold._spec import CodecSpec, text_of
from tuckfold.torch._activations._budget import bytes_of_text, fraction_of_text, speed_of_text
from tuckfold.torch._activations._goal import Goal
from tuckfold.torch._activations._handle import Activations, handle_of
from tuckfold.torch._activations._policy import Policy, read_plan, read_rules
from tuckfold.torch._activations._recompute import MOST_OPERATORS
from tuckfold.torch._functions import layout

_LEAST = (1 << 16, 1 << 20)  # on the CPU, on a GPU


def _checked(codec: str | CodecSpec) -> str:
    """Its text, if it packs floats into less."""
    spec = text_of(codec)
    fit = layout(spec, torch.float32, (1 << 10, 1 << 10))
    if fit.max_bytes >= 1 << 22 and fit.fixed:
        raise ValueError(f"[wrap] codec must make floats smaller, got {spec}")
    return spec


def wrap(
    model: nn.Module,
    *,
    plan: str | Path | None = None,
    rules: str | Path | None = None,
    recompute: bool | int = True,
    least: int | None = None,
    codec: str | CodecSpec | None = None,
    budget: str | int | None = None,
    noise: str | float | None = None,
    offload: bool | str = False,
    gentle: int = 0,
) -> Activations:
    """Lets a model store what it saves for backward in less memory; gradients keep every bit, unless a
    codec, a budget or an amount of noise is given.

    The model is used as before, also under torch.compile, which compiles anew what ran before it was wrapped
    or with other options, and counts that towards its ``recompile_limit``.
    Under torch.compile gradients are those of the plain compiled model; where the compiler then
    fuses operators otherwise, some differ by a rounding, and :func:`check` says so.

    Args:
        model: any module; its calls are watched, its submodules' as part of them.
        plan: a file that :meth:`Activations.save` wrote; tensors that it does not name are kept.
        rules: a file of rules by module, class and operator.
        recompute: how many operators may be run again in backward to make one tensor, where that gives
            the same bits: 0 or False for none, 2 for the cheap ones, True for 4; more frees more.
            Compiled graphs recompute unless it is 0.
        least: bytes; smaller tensors are kept. Else 64 KiB, and 1 MiB on a GPU, where the calls to store
            a smaller one take longer than it is worth. Compiled graphs have no such calls, so there it
            is 64 KiB on both.
        codec: for what nothing exact makes smaller. Gradients then differ. Where the codec's size follows
            from the values, a GPU is waited for, and compiled graphs store tensors exactly.
        budget: bytes, such as ``"4GiB"``, that a training step may take at most. Codecs are chosen for each
            tensor, so that the noise in gradients is small. See :meth:`Activations.fit`.
        noise: instead of a budget, how much variance codecs may add to gradients, as a part of the gradient's
            square, such as ``"1%"``; then the peak is made as small as that lets it be.
        offload: whether tensors may wait in the CPU's memory, where that is not the model's; every bit comes
            back. With a budget or noise it is one more way to store each of them, else it is done with all that nothing
            exact makes smaller. A text, such as ``"25GB/s"``, is the speed of the link, which is measured otherwise.
            Compiled graphs keep such tensors.
        gentle: in so many passes of training at first, codecs have 8 bits at least, since early gradients are large.
            A budget would not be kept in them, so it cannot be given with one. Compiled graphs have no such passes.

    Returns:
        A handle: its plan, its report, and remove().

    Raises:
        ValueError: the model is wrapped already, or a file cannot be read as a plan or rules.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    >>> act = tuckfold.torch.wrap(model)
    >>> model(torch.rand(2, 3, 32, 32)).sum().backward()
    >>> act.remove()
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"[wrap] model must be a torch.nn.Module, got {type(model).__name__}")
    if least is not None and (not isinstance(least, int) or least < 0):
        raise ValueError(f"[wrap] least must be a number of bytes, 0 or more, got {least!r}")
    if not isinstance(recompute, int) or recompute < 0:
        raise ValueError(
            f"[wrap] recompute must be True, False or a number of operators, got {recompute!r}"
        )
    if plan is not None and rules is not None:
        raise ValueError("[wrap] give a plan or rules, not both")
    if budget is not None and noise is not None:
        raise ValueError("[wrap] give a budget or noise, not both")
    if not isinstance(gentle, int) or gentle < 0:
        raise ValueError(f"[wrap] gentle must be a number of passes, 0 or more, got {gentle!r}")
    if gentle and budget is not None:
        raise ValueError(
            "[wrap] give a budget or gentle, not both: with 8 bits it would not be kept"
        )
    model = getattr(model, "_orig_mod", model)  # of what torch.compile returned
    text = None if codec is None else _checked(codec)
    goal, link = None, speed_of_text(offload)
    if link is not None and text is not None and budget is None and noise is None:
        raise ValueError("[wrap] give codec or offload, or a budget, within which both may be used")
    if budget is not None or noise is not None:
        size = None if budget is None else bytes_of_text(budget)
        goal = Goal(size, 0.0 if noise is None else fraction_of_text(noise), text, link)
    if handle_of(model) is not None:
        raise ValueError(
            "[wrap] the model is wrapped already; use that handle, or remove() it first"
        )
    policy = Policy([])
    if plan is not None or rules is not None:
        path = plan if plan is not None else rules
        policy = read_plan(plan) if plan is not None else read_rules(rules)
        policy.warn_of_strangers(model, path)
    most = MOST_OPERATORS if recompute is True else int(recompute)
    sizes = _LEAST if least is None else (least, least)
    return Activations(model, sizes, most, policy, text, goal, link is not None, gentle)


@contextmanager
def activations(model: nn.Module, **options: Any) -> Iterator[Activations]:
    """The same for the calls of the model inside of a with statement; backward may follow it.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> with tuckfold.torch.activations(model) as act:
    ...     loss = model(torch.rand(2, 8)).sum()
    >>> loss.backward()
    """
    act = wrap(model, **options)
    try:
        yield act
    finally:
        act.remove()
