"""Existing models with structured layers: replaced by rules, or factorized under a budget."""

from tuckfold.torch._structured._checkpoint import load_factorized
from tuckfold.torch._structured._factorize import Factorized, FactorizedLayer, factorize
from tuckfold.torch._structured._project import Projection, project
from tuckfold.torch._structured._replace import Replaced, structure

__all__ = [
    "Factorized",
    "FactorizedLayer",
    "Projection",
    "Replaced",
    "factorize",
    "load_factorized",
    "project",
    "structure",
]
