"""Warnings that point at the user's own line."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import torch

# Ours, torch's, and that of `with`.
_BETWEEN = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent), contextlib.__file__)


def warn(message: str) -> None:
    """Names the nearest caller that is the user's, which may be many frames away."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
