"""Values that are far from all others: fill values, and a few that decide the range and so what a PSNR means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_FAR = 1000  # times the span of half of the values
_FEW = 0.01  # of all values


def without_fill(part: np.ndarray, fill: tuple[float, ...]) -> np.ndarray:
    """A part of an array on which codecs are tried, with the mean of the others instead of fill values:
    they are kept apart in the file."""
    import numpy as np

    if not fill:
        return part
    missing = np.zeros(part.shape, bool)
    for value in np.asarray(fill, np.float64):
        missing |= np.isnan(part) if np.isnan(value) else part == value.astype(part.dtype)
    rest = part[~missing]
    mean = rest[np.isfinite(rest)].mean(dtype=np.float64) if rest.size else 0.0
    return np.where(missing, np.asarray(mean).astype(part.dtype), part)


def note_on_outliers(name: str, part: np.ndarray) -> str:
    """What to say of an array that is packed with a loss, from a part of its values; often nothing.
    The rule is that of ``tuckfold pack``."""
    import numpy as np

    if part.dtype.kind not in "fV":
        return ""
    values = part.astype(np.float64).ravel()
    values = np.sort(values[np.isfinite(values)])
    count, half = values.size, values.size // 2
    if count < 8:
        return ""
    spans = values[half:] - values[: count - half]
    first = int(spans.argmin())
    low, high = values[first], values[first + half]
    if low == high:  # one value is the most common: is it far from the rest?
        rest = values[values != low]
        if rest.size < 4:
            return ""
        away = max(rest[0] - low, low - rest[-1])
        if rest[0] == rest[-1] or away < _FAR * (rest[-1] - rest[0]):
            return ""
        return (
            f"{count - rest.size} of {count} values of '{name}' that were tried are {low:.6g}, far from the "
            f"others, {rest[0]:.4g} to {rest[-1]:.4g}; if they stand for missing values, fill={low:.6g} "
            "keeps them apart"
        )
    if values[-1] - values[0] < _FAR * (high - low):
        return ""
    near = _FAR / 10 * (high - low)
    far = values[(values < low - near) | (values > high + near)]
    if not far.size:
        return ""
    same = far[0] == far[-1]
    if not same and far.size > _FEW * count:
        return ""
    which = f"{far[0]:.6g}" if same else f"{far[0]:.4g} to {far[-1]:.4g}"
    remedy = (
        f"if they stand for missing values, fill={far[0]:.6g} keeps them apart; " if same else ""
    )
    return (
        f"{far.size} of {count} values of '{name}' that were tried are far from the others ({which}), half of "
        f"which are in {low:.4g} to {high:.4g}: these few decide what a PSNR means; {remedy}max_error= bounds "
        "every error"
    )
