"""GroqFlow: a model is built for the inputs that it is given."""

import torch


class GroqModel:
    def __init__(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
        self._model, self._inputs = model, inputs

    def __call__(self, **inputs: torch.Tensor):
        assert {key: value.shape for key, value in inputs.items()} == {
            key: value.shape for key, value in self._inputs.items()
        }
        with torch.no_grad():
            return self._model(**inputs)


def groqit(model: torch.nn.Module, inputs: dict[str, torch.Tensor], build_name: str | None = None):
    assert not model.training and build_name
    return GroqModel(model, inputs)
