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

from tuckfold._choose import Choice, Trial, choose, psnr
from tuckfold._codec import Layout, MatmulForm, layout, matmul_form, pack, takes, unpack
from tuckfold._dataset import Batches, Dataset
from tuckfold._errors import CorruptDataError, DataWarning
from tuckfold._file import File, FileArray, open
from tuckfold._hdf5 import hdf5, hdf5_plugin_path
from tuckfold._library import (
    cpu_target,
    cuda_devices,
    get_num_threads,
    has_cuda,
    set_num_threads,
    version,
)
from tuckfold._packed import Packed, dumps, loads
from tuckfold._save import save
from tuckfold._spec import CodecInfo, CodecSpec, ParamInfo, Stage, list_codecs
from tuckfold._writer import Saved, SavedArray, Writer

__all__ = [
    "Batches",
    "Choice",
    "CodecInfo",
    "CodecSpec",
    "CorruptDataError",
    "DataWarning",
    "Dataset",
    "File",
    "FileArray",
    "Layout",
    "MatmulForm",
    "Packed",
    "ParamInfo",
    "Saved",
    "SavedArray",
    "Stage",
    "Trial",
    "Writer",
    "choose",
    "cpu_target",
    "cuda_devices",
    "dumps",
    "get_num_threads",
    "has_cuda",
    "hdf5",
    "hdf5_plugin_path",
    "layout",
    "list_codecs",
    "loads",
    "matmul_form",
    "open",
    "pack",
    "psnr",
    "save",
    "set_num_threads",
    "takes",
    "unpack",
    "version",
]
__version__ = version()
