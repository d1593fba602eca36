"""Tuckfold folds tensors small, so that networks train in less memory.

>>> import numpy as np, tuckfold
>>> images = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
>>> packed = tuckfold.pack(images, "dct_chop(keep=4)")
>>> images.nbytes, packed.nbytes
(16384, 4096)
>>> restored = tuckfold.unpack(packed, "dct_chop(keep=4)", shape=images.shape)
>>> bool(np.abs(restored - images).max() < 0.01)
True

One text names a codec everywhere; ``tuckfold.list_codecs()`` lists what there is. ``tuckfold.torch``
has the same as operators of PyTorch. Importing ``tuckfold`` loads neither torch nor numpy.
"""

from tuckfold._codec import Layout, MatmulForm, layout, matmul_form, pack, takes, unpack
from tuckfold._errors import CorruptDataError
from tuckfold._library import (
    cpu_target,
    cuda_devices,
    get_num_threads,
    has_cuda,
    set_num_threads,
    version,
)
from tuckfold._packed import Packed
from tuckfold._spec import CodecInfo, CodecSpec, ParamInfo, Stage, list_codecs

__all__ = [
    "CodecInfo",
    "CodecSpec",
    "CorruptDataError",
    "Layout",
    "MatmulForm",
    "Packed",
    "ParamInfo",
    "Stage",
    "cpu_target",
    "cuda_devices",
    "get_num_threads",
    "has_cuda",
    "layout",
    "list_codecs",
    "matmul_form",
    "pack",
    "set_num_threads",
    "takes",
    "unpack",
    "version",
]
__version__ = version()
