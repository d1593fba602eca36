"""Tuckfold's codecs as operators of PyTorch.

>>> import torch, tuckfold.torch
>>> x = torch.linspace(0, 1, 64 * 64).reshape(64, 64)
>>> packed = tuckfold.torch.pack(x, "dct_chop(keep=4)")
>>> packed.dtype, packed.shape
(torch.uint8, torch.Size([4096]))
>>> back = tuckfold.torch.unpack(packed, "dct_chop(keep=4)", x.shape)
>>> bool((back - x).abs().max() < 0.01)
True

The operators are ``torch.ops.tuckfold.pack``, ``pack_checked``, ``unpack``, ``unpack_into``, ``pack_many``,
``unpack_many_into``, ``compress`` and ``decompress``: C++ on torch's stable ABI, with fake kernels for ``torch.compile``. They walk strides
in place, release the GIL, and run on torch's threads (``torch.set_num_threads``), or on a GPU in its
current stream, where ``CodecInfo.cuda`` says so.
"""

from tuckfold.torch import nn as nn
from tuckfold.torch._activations import (
    Activations,
    Check,
    Peak,
    Plan,
    PlanError,
    activations,
    check,
    wrap,
)
from tuckfold.torch._functions import (
    layout,
    pack,
    pack_checked,
    pack_many,
    takes,
    unpack,
    unpack_many,
)
from tuckfold.torch._module import Codec
from tuckfold.torch._packed import Packed
from tuckfold.torch._structured import (
    Factorized,
    FactorizedLayer,
    Projection,
    Replaced,
    factorize,
    load_factorized,
    project,
    structure,
)

__all__ = [
    "Activations",
    "Check",
    "Codec",
    "Factorized",
    "FactorizedLayer",
    "Packed",
    "Peak",
    "Plan",
    "PlanError",
    "Projection",
    "Replaced",
    "activations",
    "check",
    "factorize",
    "layout",
    "load_factorized",
    "pack",
    "pack_checked",
    "pack_many",
    "project",
    "structure",
    "takes",
    "unpack",
    "unpack_many",
    "wrap",
]
