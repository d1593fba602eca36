"""Linear layers whose matrix has a structure, in place of ``torch.nn.Linear``.

>>> layer = tuckfold.torch.nn.Butterfly(784, 10)
>>> layer
Butterfly('butterfly', in_features=784, out_features=10, bias=True)
>>> layer(torch.zeros(64, 784)).shape
torch.Size([64, 10])
"""

from tuckfold._structure import StepMemory, Structure, Weight, families
from tuckfold.torch.nn._layers import (
    BlockDiagonal,
    Butterfly,
    Circulant,
    Fastfood,
    LowRank,
    Monarch,
    Pixelfly,
    Structured,
)

__all__ = [
    "BlockDiagonal",
    "Butterfly",
    "Circulant",
    "Fastfood",
    "LowRank",
    "Monarch",
    "Pixelfly",
    "StepMemory",
    "Structure",
    "Structured",
    "Weight",
    "families",
]
