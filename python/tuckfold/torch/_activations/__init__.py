"""Stores what autograd saves in less memory, exactly."""

from tuckfold.torch._activations._check import Check, check
from tuckfold.torch._activations._handle import Activations, activations, wrap
from tuckfold.torch._activations._peak import Peak
from tuckfold.torch._activations._plan import Plan
from tuckfold.torch._activations._text import PlanError

__all__ = ["Activations", "Check", "Peak", "Plan", "PlanError", "activations", "check", "wrap"]
