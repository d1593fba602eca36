"""libtuckfold_c.so and its functions, by ctypes, which releases the GIL during each call.

The library is beside this file; TUCKFOLD_LIBRARIES names another folder, for those who build it.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from tuckfold._errors import error_of

MAX_RANK = 64


def library_path(name: str) -> Path:
    """Where a library of the package is."""
    return Path(os.environ.get("TUCKFOLD_LIBRARIES") or Path(__file__).parent) / name


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("device", c_int32),
    ]


class Layout(ctypes.Structure):
    _fields_ = [
        ("max_bytes", c_size_t),
        ("workspace_bytes", c_size_t),
        ("fixed", c_int32),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("seed", ctypes.c_uint64),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("executor", c_void_p),
        ("executor_data", c_void_p),
        ("stream", c_void_p),
        ("device_result", POINTER(ctypes.c_uint64)),
        ("device_seed", POINTER(ctypes.c_uint64)),
    ]


class Frame(ctypes.Structure):
    _fields_ = [
        ("codec", c_void_p),
        ("codec_bytes", c_size_t),
        ("packed", c_void_p),
        ("packed_bytes", c_size_t),
        ("frame_bytes", c_size_t),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK),
    ]


class ImageOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("channels_last", c_int32),
        ("channels", c_size_t),
        ("scale", POINTER(c_float)),
        ("add", POINTER(c_float)),
    ]


class PackedPart(ctypes.Structure):
    _fields_ = [
        ("codec", c_char_p),
        ("samples", c_int64),
        ("offset", c_size_t),
        ("bytes", c_size_t),
    ]


class FileArray(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("codec", c_char_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("samples_per_chunk", c_int64),
        ("fill", POINTER(c_double)),
        ("fill_count", c_size_t),
        ("check", c_int32),
        ("max_error", c_double),
    ]


class WriteOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("mode", c_int32),
        ("force", c_int32),
        ("threads", c_int32),
        ("shards", c_int32),
        ("samples", c_int64),
        ("metadata", c_char_p),
        ("seed", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("no_sync", c_int32),
    ]


class Difference(ctypes.Structure):
    _fields_ = [
        *[(name, c_double) for name in ("low", "high", "mean_square", "max_error", "psnr_db")],
        *[(name, c_int64) for name in ("finite", "lost", "changed")],
    ]


class MatmulSizes(ctypes.Structure):
    _fields_ = [
        (name, c_int64) for name in ("tiles", "tile_rows", "tile_cols", "kept_rows", "kept_cols")
    ]


_FUNCTIONS = {
    "last_error": (c_char_p, []),
    "last_status": (c_int32, []),
    "spec_parse": (c_int32, [c_char_p, POINTER(c_void_p)]),
    "spec_free": (None, [c_void_p]),
    "spec_text": (c_char_p, [c_void_p]),
    "spec_json": (c_char_p, [c_void_p]),
    "spec_equal": (c_int32, [c_void_p, c_void_p]),
    "codecs_json": (c_char_p, []),
    "dtypes_json": (c_char_p, []),
    "plan_get": (c_int32, [c_char_p, c_int32, c_int32, POINTER(c_int64), POINTER(c_void_p)]),
    "plan_release": (None, [c_void_p]),
    "plan_layout": (POINTER(Layout), [c_void_p]),
    "pack": (
        c_int32,
        [c_void_p, POINTER(Tensor), c_void_p, c_size_t, POINTER(Options), POINTER(c_size_t)],
    ),
    "unpack": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(Tensor), POINTER(Options)]),
    "frame_bytes": (c_size_t, [c_void_p, c_size_t]),
    "write_frame": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t]),
    "read_frame": (c_int32, [c_void_p, c_size_t, POINTER(Frame)]),
    "reader_open": (c_int32, [c_char_p, c_int32, POINTER(c_void_p)]),
    "reader_close": (None, [c_void_p]),
    "reader_json": (c_char_p, [c_void_p]),
    "reader_read": (c_int32, [c_void_p, c_size_t, c_int64, c_int64, POINTER(Tensor), c_int32]),
    "reader_gather": (
        c_int32,
        [c_void_p, c_size_t, c_void_p, c_size_t, POINTER(Tensor), c_int32],
    ),
    "reader_gather_images": (
        c_int32,
        [
            c_void_p,
            c_size_t,
            c_void_p,
            c_size_t,
            c_void_p,
            POINTER(ImageOptions),
            POINTER(Tensor),
            c_int32,
        ],
    ),
    "reader_gather_packed": (
        c_int32,
        [
            c_void_p,
            c_size_t,
            c_void_p,
            c_size_t,
            c_void_p,
            c_size_t,
            c_void_p,
            POINTER(PackedPart),
            c_size_t,
            POINTER(c_size_t),
            POINTER(c_size_t),
            c_int32,
        ],
    ),
    "reader_chunks": (
        c_int32,
        [c_void_p, c_size_t, c_int32, c_void_p, c_size_t, POINTER(c_size_t)],
    ),
    "write_manifest": (c_int32, [c_char_p, POINTER(c_char_p), c_size_t]),
    "writer_open": (
        c_int32,
        [c_char_p, POINTER(FileArray), c_size_t, POINTER(WriteOptions), POINTER(c_void_p)],
    ),
    "writer_write": (c_int32, [c_void_p, POINTER(Tensor), c_size_t]),
    "writer_finish": (c_int32, [c_void_p]),
    "writer_json": (c_char_p, [c_void_p]),
    "writer_close": (None, [c_void_p, c_int32]),
    "ladders": (c_int32, [POINTER(Tensor), c_int32, c_double, c_int32, POINTER(c_char_p)]),
    "choose_exact": (c_int32, [POINTER(Tensor), c_int32, POINTER(c_char_p)]),
    "compare": (c_int32, [POINTER(Tensor), POINTER(Tensor), POINTER(Difference)]),
    "clear_error": (None, []),
    "matmul_form": (
        c_int32,
        [c_void_p, c_int64, c_int64, POINTER(MatmulSizes), *[POINTER(c_float)] * 4],
    ),
    "plan_storage": (c_int32, [c_char_p, POINTER(c_char_p)]),
    "structured_make": (c_int32, [c_char_p, c_int64, c_int64, POINTER(c_void_p)]),
    "structured_free": (None, [c_void_p]),
    "structured_json": (c_char_p, [c_void_p]),
    "structures_json": (c_char_p, []),
    "structured_has_cuda": (c_int32, [c_void_p, c_int32]),
    "structured_step_memory": (
        c_int32,
        [c_void_p, c_int32, c_int64, c_int32, c_int32, c_int32, POINTER(c_int64 * 6)],
    ),
    "version": (c_char_p, []),
    "cpu_target": (c_char_p, []),
    "has_cuda": (c_int32, []),
    "cuda_devices": (c_int32, []),
}


def other_version(path: Path, missing: str) -> str:
    """What to say of a library that lacks something."""
    return (
        f"{path} has no {missing}: it is of another version than the Python files in "
        f"{Path(__file__).parent}; install tuckfold again with pip, or build the library again"
    )


def _load() -> dict[str, Any]:
    path = library_path("libtuckfold_c.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"tuckfold needs {path}, which does not load: {error}; install the package with "
            "pip, or build it and set TUCKFOLD_LIBRARIES to its folder"
        ) from error
    functions = {}
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, f"tuckfold_{name}")
        except AttributeError:
            raise ImportError(other_version(path, f"function tuckfold_{name}")) from None
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions


_c = _load()
last_error, last_status = _c["last_error"], _c["last_status"]
spec_free, spec_text, spec_json = _c["spec_free"], _c["spec_text"], _c["spec_json"]
spec_equal, codecs_json = _c["spec_equal"], _c["codecs_json"]
plan_release, plan_layout = _c["plan_release"], _c["plan_layout"]
pack, unpack = _c["pack"], _c["unpack"]
frame_bytes, clear_error = _c["frame_bytes"], _c["clear_error"]
reader_json, reader_close = _c["reader_json"], _c["reader_close"]
reader_read, reader_gather = _c["reader_read"], _c["reader_gather"]
reader_gather_images = _c["reader_gather_images"]
reader_gather_packed = _c["reader_gather_packed"]
writer_json, writer_close = _c["writer_json"], _c["writer_close"]

_dtypes = json.loads(_c["dtypes_json"]())
DTYPES = tuple(row["name"] for row in _dtypes)  # in the order of the C API's numbers
DTYPE_BYTES = {row["name"]: row["bytes"] for row in _dtypes}


def check(status: int) -> None:
    """Raises a failure as the class for it."""
    if status != 0:
        raise error_of(status, last_error().decode(errors="replace"))


def call(name: str, *arguments: object) -> None:
    """Calls a function that returns a status."""
    check(_c[name](*arguments))


def structure_json(text: str, in_features: int, out_features: int) -> dict[str, Any]:
    """What the library says about a structured layer; raises where text or sizes are wrong."""
    made = c_void_p()
    call(
        "structured_make", encoded(text, "structure"), in_features, out_features, ctypes.byref(made)
    )
    try:
        about = json.loads(_c["structured_json"](made))
        about["cuda"] = [
            name for code, name in enumerate(DTYPES) if _c["structured_has_cuda"](made, code)
        ]
        return about
    finally:
        _c["structured_free"](made)


def step_memory(
    text: str,
    in_features: int,
    out_features: int,
    dtype: str,
    samples: int,
    bias: bool,
    states: int,
    threads: int,
) -> list[int]:
    """The fields of tuckfold_step_memory, in their order."""
    made, memory = c_void_p(), (c_int64 * 6)()
    call(
        "structured_make", encoded(text, "structure"), in_features, out_features, ctypes.byref(made)
    )
    try:
        call(
            "structured_step_memory",
            made,
            DTYPES.index(dtype),
            operator.index(samples),
            int(bias),
            operator.index(states),
            operator.index(threads),
            ctypes.byref(memory),
        )
        return list(memory)
    finally:
        _c["structured_free"](made)


def structures_json() -> list[dict[str, Any]]:
    """Every family of structured layers, with its options."""
    return json.loads(_c["structures_json"]())


def axes(lengths: tuple[int, ...]) -> ctypes.Array[c_int64]:
    """Axis lengths or strides as C wants them; ctypes alone would drop high bits."""
    if len(lengths) > MAX_RANK:
        raise ValueError(f"[shape] a tensor has at most {MAX_RANK} axes, got {len(lengths)}")
    if any(not -(2**63) <= length < 2**63 for length in lengths):
        raise ValueError(f"[shape] an axis has at most 2**63 - 1 elements, got {lengths}")
    return (c_int64 * len(lengths))(*lengths)


_threads = 0
_default_options = Options(struct_bytes=ctypes.sizeof(Options))


def set_num_threads(threads: int) -> None:
    """How many threads pack and unpack of numpy arrays use from now on; 0 means every core.

    ``tuckfold.torch`` uses torch's threads, ``torch.set_num_threads``.

    >>> tuckfold.set_num_threads(2)
    >>> tuckfold.get_num_threads()
    2
    >>> tuckfold.set_num_threads(0)
    """
    global _threads, _default_options
    threads = operator.index(threads)
    if not 0 <= threads < 2**31:
        raise ValueError(f"[set_num_threads] must be 0 or more, got {threads}")
    _threads = threads
    _default_options = Options(struct_bytes=ctypes.sizeof(Options), threads=threads)


def get_num_threads() -> int:
    """What :func:`set_num_threads` was last given; 0 means every core."""
    return _threads


def address_of(array: Any) -> int:
    """Where the values of a contiguous array of numpy begin. Its own ways take three times as long."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError, BufferError):  # empty, not to be written, or of a foreign dtype
        return array.__array_interface__["data"][0]


def encoded(text: str, what: str = "spec") -> bytes:
    """A text for C, which would end it at its first NUL."""
    if "\0" in text:
        raise ValueError(f"[{what}] a {what} has no NUL characters, got {text!r}")
    return text.encode("utf-8", "surrogatepass")


def path_of(path: Any) -> bytes:
    """A path for C, which would end it at its first NUL."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError(f"embedded null byte in the path {os.fsdecode(name)!r}")
    return name


def seed_of(seed: int) -> int:
    """Any of 64 bits, with a sign or without; another would give the noise of one of these."""
    seed = operator.index(seed)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"[pack] seed must be -2**63..2**64 - 1, got {seed}")
    return seed


def options(seed: int = 0) -> Options:
    """Negative seeds count from 2**64 down, as torch's do."""
    if seed == 0:
        return _default_options
    return Options(
        struct_bytes=ctypes.sizeof(Options),
        seed=seed_of(seed) & (2**64 - 1),
        threads=_threads,
    )


def version() -> str:
    """The library's version, as in ``"0.1.0"``."""
    return _c["version"]().decode()


def cpu_target() -> str:
    """The SIMD target that kernels run on here: ``"avx3"``, ``"avx2"`` and so on.

    ``TUCKFOLD_CPU`` in the environment forces one; packed bytes are equal on all of them.
    """
    return _c["cpu_target"]().decode()


def has_cuda() -> bool:
    """Whether this build has CUDA kernels; ``CodecInfo.cuda`` says for which codecs."""
    return bool(_c["has_cuda"]())


def cuda_devices() -> int:
    """How many CUDA devices those kernels can run on; 0 where there is no driver."""
    return _c["cuda_devices"]()
