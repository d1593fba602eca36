"""Tuckfold's codecs as operators of PyTorch.

>>> import torch, tuckfold.torch
>>> x = torch.linspace(0, 1, 64 * 64).reshape(64, 64)
>>> packed = tuckfold.torch.pack(x, "dct_chop(keep=4)")
>>> packed.dtype, packed.shape
(torch.uint8, torch.Size([4096]))
>>> back = tuckfold.torch.unpack(packed, "dct_chop(keep=4)", x.shape)
>>> bool((back - x).abs().max() < 0.01)
True

The operators are ``torch.ops.tuckfold.pack``, ``pack_checked``, ``unpack``, ``unpack_checked``, ``unpack_into``, ``unpack_then``, ``unpack_rows``, ``unpack_gelu``, ``unpack_images``,
``pack_many``, ``unpack_many_into``, ``compress`` and ``decompress``: C++ on torch's stable ABI, with fake kernels for ``torch.compile``. They walk strides
in place, release the GIL, and run on torch's threads (``torch.set_num_threads``), or on a GPU in its
current stream, where ``CodecInfo.cuda`` says so.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError(
        "tuckfold.torch needs PyTorch; install torch, then tuckfold again, so that its operators are "
        "built (pip install --force-reinstall --no-deps .)",
        name="torch",
    )

from tuckfold.torch import nn as nn
from tuckfold.torch._activations import (
    Activations,
    Check,
    Fit,
    Peak,
    Plan,
    PlanError,
    Probe,
    Quality,
    activations,
    check,
    wrap,
)
from tuckfold.torch._dataset import DataLoader, Dataset
from tuckfold.torch._functions import (
    layout,
    pack,
    pack_checked,
    pack_many,
    takes,
    unpack,
    unpack_checked,
    unpack_many,
)
from tuckfold.torch._images import Images
from tuckfold.torch._links import (
    PackedGradients,
    PackedReduceScatter,
    packed_fsdp,
    packed_gradients,
)
from tuckfold.torch._loss import cross_entropy
from tuckfold.torch._module import Codec
from tuckfold.torch._packed import Packed
from tuckfold.torch._stages import packed_stage
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
from tuckfold.torch._then import Then

__all__ = [
    "Activations",
    "Check",
    "Codec",
    "DataLoader",
    "Dataset",
    "Factorized",
    "FactorizedLayer",
    "Fit",
    "Images",
    "Packed",
    "PackedGradients",
    "PackedReduceScatter",
    "Peak",
    "Plan",
    "PlanError",
    "Probe",
    "Projection",
    "Quality",
    "Replaced",
    "Then",
    "activations",
    "check",
    "cross_entropy",
    "factorize",
    "layout",
    "load_factorized",
    "pack",
    "pack_checked",
    "pack_many",
    "packed_fsdp",
    "packed_gradients",
    "packed_stage",
    "project",
    "structure",
    "takes",
    "unpack",
    "unpack_checked",
    "unpack_many",
    "wrap",
]
