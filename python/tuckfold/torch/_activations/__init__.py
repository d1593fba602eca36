"""Stores what autograd saves in less memory: exactly, or by codecs."""

from tuckfold.torch._activations._budget import Fit
from tuckfold.torch._activations._check import Check, check
from tuckfold.torch._activations._handle import Activations
from tuckfold.torch._activations._peak import Peak
from tuckfold.torch._activations._plan import Plan
from tuckfold.torch._activations._probe import Probe
from tuckfold.torch._activations._quality import Quality
from tuckfold.torch._activations._text import PlanError
from tuckfold.torch._activations._wrap import activations, wrap

__all__ = [
    "Activations",
    "Check",
    "Fit",
    "Peak",
    "Plan",
    "PlanError",
    "Probe",
    "Quality",
    "activations",
    "check",
    "wrap",
]
