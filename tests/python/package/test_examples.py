"""Examples in docstrings are true."""

import doctest
import importlib

import numpy as np
import pytest

import tuckfold

MODULES = [
    "tuckfold",
    "tuckfold._codec",
    "tuckfold._spec",
    "tuckfold._library",
    "tuckfold.torch",
    "tuckfold.torch._functions",
    "tuckfold.torch._module",
    "tuckfold.torch._structured._factorize",
    "tuckfold.torch._structured._project",
    "tuckfold.torch._structured._replace",
    "tuckfold.torch.nn",
    "tuckfold.torch.nn._layers",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    names = {"np": np, "tuckfold": tuckfold}
    if name.startswith("tuckfold.torch"):
        names["torch"] = pytest.importorskip("torch")
    result = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert result.failed == 0
