"""cerebras_pytorch: steps are traced, and their results come by way of step closures."""

from types import SimpleNamespace

import torch


class Backend:
    def __init__(self, kind: str) -> None:
        assert kind == "CSX"


def backend(kind: str) -> Backend:
    return Backend(kind)


class Fetched:
    """A result that only a step closure may look at."""

    def __init__(self, value) -> None:
        self.value = value


def compile(model: torch.nn.Module, backend: Backend):
    assert not model.training and isinstance(backend, Backend)
    return model


def trace(step):
    def traced(*inputs):
        with torch.no_grad():
            return Fetched(step(*inputs))

    return traced


def step_closure(function):
    return lambda result: function(result.value)


class DataLoader:
    def __init__(self, function) -> None:
        self.batches = list(function())


class DataExecutor:
    def __init__(self, loader: DataLoader, num_steps: int) -> None:
        self._batches = loader.batches[:num_steps]

    def __iter__(self):
        return iter(self._batches)


utils = SimpleNamespace(data=SimpleNamespace(DataLoader=DataLoader, DataExecutor=DataExecutor))
