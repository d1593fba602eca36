"""Which codec to take, and how far values are off."""

from __future__ import annotations

import ctypes
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuckfold import _codec
from tuckfold import _library as lib
from tuckfold._errors import DataWarning
from tuckfold._spec import CodecSpec, spec_of

if TYPE_CHECKING:
    import numpy as np

_KINDS = ("psnr", "ratio", "max_error")  # in the order of the C API's numbers


@dataclass(frozen=True)
class Trial:
    """What a codec does to the values that it was tried on."""

    codec: CodecSpec
    ratio: float  #: how many times smaller they are
    psnr: float  #: in dB, infinite where nothing is lost
    max_error: float  #: infinite where a finite value came back as NaN or infinity
    reaches: bool  #: the target


@dataclass(frozen=True)
class Choice:
    """What :func:`choose` found."""

    codec: CodecSpec  #: the best
    ratio: float  #: how many times smaller it makes the values that were tried
    psnr: float  #: in dB, on these
    max_error: float  #: on these
    tried: tuple[Trial, ...]  #: everything, the best first


def compared(original: np.ndarray, result: np.ndarray, dtype: str, other: str) -> lib.Difference:
    """How row-major arrays differ, of those dtypes."""
    from tuckfold import _arrays

    found = lib.Difference()
    lib.call(
        "compare",
        ctypes.byref(_arrays.whole_tensor("psnr", original, dtype)),
        ctypes.byref(_arrays.whole_tensor("psnr", result, other)),
        ctypes.byref(found),
    )
    return found


def psnr(original: Any, result: Any) -> float:
    """How close an array is to its original, in dB: ``20 log10(range) - 10 log10(mean square error)``.

    The range is that of the original's finite values, over which errors are averaged, as in ``tuckfold
    diff``. Infinite where all are equal; NaN where a finite value has become NaN or infinite.

    >>> x = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    >>> y = tuckfold.loads(tuckfold.dumps(x, "dct_quant(rate=4)"))
    >>> 70 < tuckfold.psnr(x, y) < 100
    True
    """
    import numpy as np

    from tuckfold import _arrays

    a, b = (np.ascontiguousarray(_arrays.array_of("psnr", one)) for one in (original, result))
    if a.shape != b.shape:
        raise ValueError(f"[psnr] the shapes must be equal, got {a.shape} and {b.shape}")
    names = [_arrays.stored_dtype("psnr", one, None) for one in (a, b)]
    return compared(a, b, *names).psnr_db


def trial_part(array: Any, most: int) -> np.ndarray:
    """About `most` values of an array, row-major: whole samples spread over it; planes of samples that
    are larger than that, and rows of planes."""
    import numpy as np

    from tuckfold import _arrays

    samples, each = array.shape[0], math.prod(array.shape[1:])
    count = max(1, min(samples, most // max(1, each)))
    places = (np.arange(count) * 2 + 1) * samples // (2 * count)
    chosen = slice(None) if count == samples else places
    part = np.ascontiguousarray(_arrays.array_of("choose", array[chosen]))
    if part.size > most and part.ndim > 3:
        return trial_part(part.reshape(-1, *part.shape[-2:]), most)
    if part.size > most and part.ndim > 1:  # rows in eights, as blocks have them
        rows = max(8, most // max(1, math.prod(part.shape[2:])) // 8 * 8)
        part = np.ascontiguousarray(part[:, :rows])
    return part


def exact_codec(array: Any, dtype: str) -> str:
    """The codec of an array for which none is asked for, as ``tuckfold pack`` takes it."""
    if math.prod(array.shape) * lib.DTYPE_BYTES[dtype] < 1 << 16:
        return "zstd"
    from tuckfold import _arrays

    part = trial_part(array, 1 << 18)
    found = ctypes.c_char_p()
    tensor = ctypes.byref(_arrays.whole_tensor("choose", part, dtype))
    lib.call("choose_exact", tensor, lib.get_num_threads(), ctypes.byref(found))
    assert found.value is not None
    return found.value.decode()


class _Search:
    """Bisects each ladder of specs for its best rung, as the command line does."""

    def __init__(
        self, part: np.ndarray, dtype: str, kind: str, value: float, valid: np.ndarray | None
    ) -> None:
        self.part, self.dtype, self.kind, self.value = part, dtype, kind, value
        self.valid = valid
        self.compares_to = part if valid is None else part[valid]
        self.tried: list[Trial] = []

    def ladders(self, for_the_rest: bool) -> list[list[dict[str, Any]]]:
        from tuckfold import _arrays

        text = ctypes.c_char_p()
        tensor = ctypes.byref(_arrays.whole_tensor("choose", self.part, self.dtype))
        number = _KINDS.index(self.kind)
        lib.call("ladders", tensor, number, self.value, int(for_the_rest), ctypes.byref(text))
        assert text.value is not None
        return json.loads(text.value)

    def attempt(self, codec: str) -> Trial:
        packed = _codec.pack(self.part, codec, dtype=self.dtype)
        back = _codec.unpack(packed, codec, self.part.shape, self.dtype)
        result = back if self.valid is None else back[self.valid]
        found = compared(self.compares_to, result, self.dtype, self.dtype)
        ratio = self.part.nbytes / max(1, packed.nbytes)
        figures = {"psnr": found.psnr_db, "ratio": ratio, "max_error": found.max_error}
        figure = figures[self.kind]
        good = figure <= self.value if self.kind == "max_error" else figure >= self.value
        trial = Trial(
            spec_of(codec), ratio, found.psnr_db, found.max_error, good and found.lost == 0
        )
        self.tried.append(trial)
        return trial

    def climb(self, rungs: list[dict[str, Any]]) -> None:
        """The smallest rung that reaches a quality, or the last; the closest that is small enough, or
        the first."""
        small = self.kind == "ratio"
        low, high = 0, len(rungs)
        try:
            while low < high:
                middle = (low + high) // 2
                rung = rungs[middle]
                if small and rung["fixed"]:
                    further = self.part.nbytes / max(1, rung["max_bytes"]) >= self.value
                else:
                    further = self.attempt(rung["codec"]).reaches == small
                low, high = (middle + 1, high) if further else (low, middle)
            if small and rungs[max(0, low - 1)]["fixed"]:
                self.attempt(rungs[max(0, low - 1)]["codec"])
        except (ValueError, NotImplementedError):
            return  # refuses these values, or a library is missing

    def rank(self, trial: Trial) -> tuple[Any, ...]:
        """The best is the least; of equal ones that which was tried first."""
        psnr = -math.inf if math.isnan(trial.psnr) else trial.psnr
        size = -trial.ratio
        lost = math.isinf(trial.max_error)
        if not trial.reaches:
            off = {"psnr": -psnr, "ratio": size, "max_error": trial.max_error}[self.kind]
            return (1, lost, off)
        return (0, lost, -psnr, size) if self.kind == "ratio" else (0, lost, size, -psnr)


def search(
    part: np.ndarray,
    dtype: str,
    kind: str,
    value: float,
    *,
    for_the_rest: bool,
    valid: np.ndarray | None = None,
    progress: Callable[[str], object] | None = None,
) -> Choice:
    """The best codec for a row-major part of an array. Figures are those of the valid values; all unless
    given."""
    found = _Search(part, dtype, kind, value, valid)
    for ladder in found.ladders(for_the_rest):
        if progress is not None:
            progress(ladder[0]["codec"])
        found.climb(ladder)
    tried = tuple(sorted(found.tried, key=found.rank))
    if not tried or not tried[0].reaches:
        closest = f"; closest is {tried[0].codec}" if tried else ""
        raise ValueError(f"[choose] no codec reaches {kind}={value}{closest}; ask for less")
    best = tried[0]
    return Choice(best.codec, best.ratio, best.psnr, best.max_error, tried)


def target_of(what: str, **targets: float | None) -> tuple[str, float] | None:
    """The one target that is given, checked."""
    given = [(kind, float(value)) for kind, value in targets.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"[{what}] give one of {' and '.join(kind for kind, _ in given)}")
    for kind, value in given:
        rules = {"psnr": (True, "a number"), "ratio": (value > 0, "a number above 0"),
                 "max_error": (value >= 0, "0 or a number above")}  # fmt: skip
        good, rule = rules[kind]
        if not good or not math.isfinite(value):
            raise ValueError(f"[{what}] {kind} must be {rule}, got {value}")
    return given[0] if given else None


def note_on_exact(name: str, dtype: str, target: tuple[str, float]) -> str:
    """What to say of an array that loses nothing whatever is asked for, since its dtype allows no loss;
    else nothing. The command line says the same."""
    kind, value = target
    lossy = dtype in ("u8", "u16") or dtype[0] == "f" or dtype == "bf16"
    if lossy or target == ("max_error", 0):
        return ""
    effect = "is searched among exact codecs alone" if kind == "ratio" else "has no effect"
    return (
        f"{name} is of {dtype}, which is always packed without loss: {kind}={value:g} {effect}; convert it to "
        "f32, u8 or u16 first to lose some"
    )


def choose(
    array: Any,
    *,
    psnr: float | None = None,
    max_error: float | None = None,
    ratio: float | None = None,
    trial_values: int = 4_000_000,
    progress: Callable[[str], object] | None = None,
) -> Choice:
    """Searches the codecs of this build for the best one for an array, as ``tuckfold choose`` does.

    The array is packed in its own dtype. A large one is tried in part: samples, or planes of them, that
    are spread over it. Its first axis is the sample. Dtypes other than floats, u8 and u16 are never packed
    with a loss; a :class:`DataWarning` says so.

    Args:
        array: as for :func:`pack`, or a :class:`FileArray`.
        psnr: the smallest with at least this PSNR, in dB.
        max_error: the smallest of the codecs that bound every error by this.
        ratio: the one with the highest PSNR that is at least so many times smaller.
        trial_values: how many values to try codecs on.
        progress: called with the first spec of each way to use a codec before it is tried.

    Raises:
        ValueError: no codec reaches the target; the message names the closest.

    >>> x = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(1, 64, 64)
    >>> choice = tuckfold.choose(x, max_error=0.01)
    >>> choice.max_error <= 0.01, choice.ratio > 4
    (True, True)
    """
    from tuckfold import _arrays

    target = target_of("choose", psnr=psnr, max_error=max_error, ratio=ratio)
    if target is None:
        raise ValueError("[choose] give a target: psnr=, max_error= or ratio=")
    source, dtype = source_of("choose", array)
    if not source.shape or math.prod(source.shape) == 0:
        raise ValueError(f"[choose] needs values to try codecs on, got shape {source.shape}")
    if note := note_on_exact("the array", dtype, target):
        warnings.warn(f"[choose] {note}", DataWarning, stacklevel=2)
    part = _arrays.array_of("choose", trial_part(source, trial_values))
    return search(part, dtype, *target, for_the_rest=False, progress=progress)


def source_of(what: str, array: Any, dtype: Any = None) -> tuple[Any, str]:
    """An array, or what can be sliced to arrays sample by sample, and its dtype's name."""
    from tuckfold import _arrays
    from tuckfold._file import FileArray

    if isinstance(array, FileArray):
        return array, array.stored
    lazy = all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__"))
    if lazy and not any(
        hasattr(array, name) for name in ("__array_interface__", "__dlpack__", "mask")
    ):
        if type(array).__module__.partition(".")[0] in ("dask", "xarray"):  # slices are no arrays
            _arrays.refuse(what, array)
        return array, _arrays.dtype_name(what, array.dtype)  # such as h5py's
    view = _arrays.array_of(what, array)
    return view, _arrays.stored_dtype(what, view, dtype)
