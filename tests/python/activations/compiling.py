"""What the tests of compiled models share."""

import pytest
import torch

from tuckfold.torch._activations import _handle


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    for ref in list(_handle._wrapped.values()):
        ref().remove()
    torch.compiler.reset()


def compiled(model, **options):
    return torch.compile(model, **({"backend": "aot_eager", "fullgraph": True} | options))


def hows(act) -> set[str]:
    return {row.how for row in act.plan().rows}
