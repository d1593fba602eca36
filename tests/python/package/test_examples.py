"""Examples in docstrings are true."""

import doctest
import importlib

import numpy as np
import pytest

import tuckfold

MODULES = ["tuckfold", "tuckfold._codec", "tuckfold._spec", "tuckfold._library"]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"np": np, "tuckfold": tuckfold})
    assert result.failed == 0
