"""PopTorch: a model that is compiled at its first call, for the shapes of that call."""

import torch


class Options:
    pass


class PoplarExecutor:
    def __init__(self, model: torch.nn.Module) -> None:
        self._model, self._shapes = model, None

    def __call__(self, *inputs: torch.Tensor):
        shapes = [value.shape for value in inputs]
        assert self._shapes in (None, shapes), "an IPU's program has fixed shapes"
        self._shapes = shapes
        assert all(value.is_contiguous() for value in inputs)
        with torch.no_grad():
            return self._model(*inputs)


def inferenceModel(model: torch.nn.Module, options: Options | None = None) -> PoplarExecutor:
    assert not model.training and isinstance(options, Options)
    return PoplarExecutor(model)
