"""How to store what training saves: the library's solver, for problems and plans as dicts."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from tuckfold import _library


def plan_storage(problem: dict[str, Any]) -> dict[str, Any]:
    """The plan for a problem, both as ``tuckfold/c.h`` describes them for ``tuckfold_plan_storage``.

    >>> plan_storage({
    ...     "base": [40, 40],
    ...     "budget": 120,
    ...     "items": [{"name": "conv", "choices": [
    ...         {"how": "keep", "spans": [[0, 1, 100]]},
    ...         {"kind": "exact", "how": "1 bit", "spans": [[0, 1, 4]]}]}],
    ... })["choice"]
    [1]
    """
    plan = ctypes.c_char_p()
    text = json.dumps(problem, allow_nan=False)
    _library.call("plan_storage", text.encode(), ctypes.byref(plan))
    assert plan.value is not None
    return json.loads(plan.value)
