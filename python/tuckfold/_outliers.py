"""Values that are far from all others: fill values, and a few that decide the range and so what a PSNR means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_FAR = 1000  # times the span of half of the values
_FEW = 0.01  # of all values
_AT_ONCE = 1 << 20  # values whose holes are filled together


def without_fill(
    part: np.ndarray, dtype: str, fill: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray | None]:
    """A part of an array on which codecs are tried, with values around them in place of fill values, as a
    file has them, and where the others are; None: everywhere."""
    import numpy as np

    as_bits = dtype == "bf16" and part.dtype == np.uint16
    values = (part.astype(np.uint32) << 16).view(np.float32) if as_bits else part
    missing = np.zeros(part.shape, bool)
    for value in np.asarray(fill, np.float64):
        missing |= np.isnan(values) if np.isnan(value) else values == value.astype(values.dtype)
    if not missing.any():
        return part, None
    planes = (-1, *part.shape[-2:]) if part.ndim > 1 else (1, 1, -1)
    tried, holes = values.copy().reshape(planes), missing.reshape(planes)
    each = max(1, _AT_ONCE // (planes[1] * planes[2]))
    for begin in range(0, len(tried), each):
        some = slice(begin, begin + each)
        known = tried[some].astype(np.float64)
        known[holes[some] | ~np.isfinite(known)] = np.nan
        smooth = _smooth(known)[holes[some]]
        tried[some][holes[some]] = smooth if tried.dtype.kind in "fV" else np.rint(smooth)
    tried = tried.reshape(part.shape)
    if as_bits:
        tried = np.where(missing, tried.view(np.uint32) >> 16, part).astype(np.uint16)
    return tried, ~missing


def _smooth(planes: np.ndarray) -> np.ndarray:
    """Planes with a value for each NaN: from the finest of averages over 2 x 2 values, over 2 x 2 of these,
    and so on, that has one."""
    import numpy as np

    rows, cols = planes.shape[1:]
    holes = np.isnan(planes)
    if not holes.any():
        return planes
    if rows * cols == 1:
        rest = planes[~holes]
        return np.where(holes, np.median(rest) if rest.size else 0.0, planes)
    even = np.pad(planes, ((0, 0), (0, rows % 2), (0, cols % 2)), constant_values=np.nan)
    corners = np.stack([even[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])
    known = ~np.isnan(corners)
    count = known.sum(0)
    shares = np.where(known, corners, 0.0) / np.maximum(count, 1)  # their sum does not overflow
    coarse = _smooth(np.where(count > 0, shares.sum(0), np.nan))
    return np.where(holes, coarse.repeat(2, 1).repeat(2, 2)[:, :rows, :cols], planes)


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
