"""--max-error bounds every value that is packed, not those that were tried."""

import numpy as np
import pytest


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    """A field of waves with a little noise, as measured fields have."""
    axes = np.meshgrid(*[np.arange(n) for n in shape], indexing="ij")
    waves = sum(np.sin(axis / (5.0 + 3 * i) + i) for i, axis in enumerate(axes))
    noise = np.random.default_rng(0).standard_normal(shape)
    return (waves + 0.01 * noise).astype(np.float32)


def noise_with_a_loud_plane() -> np.ndarray:
    values = np.random.default_rng(0).random((200, 64, 64)).astype(np.float32)
    values[131] *= 100
    return values


def largest_error(a: np.ndarray, b: np.ndarray) -> float:
    """Over values that are finite; others must be what they were."""
    finite = np.isfinite(a)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    if not finite.any():
        return 0.0
    return float(np.abs(a[finite].astype(np.float64) - b[finite].astype(np.float64)).max())


def test_the_bound_holds_outside_of_the_trial_part(tool):
    values = noise_with_a_loud_plane()
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--max-error", 0.2, "--trial-values", 100000)
    assert largest_error(values, tool.unpacked("x.tuck")) <= 0.2


def test_zero_is_lossless(tool):
    values = smooth((60, 40, 50)) + 273
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--max-error", 0, "--trial-values", 4000)
    np.testing.assert_array_equal(values.view(np.uint32), tool.unpacked("x.tuck").view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bound", [1e-3, 0.2, 1e5])
def test_the_bound_holds_for_hostile_values(tool, dtype, bound):
    values = smooth((40, 33, 17)).astype(dtype)
    info = np.finfo(dtype)
    hostile = [np.nan, np.inf, -np.inf, info.max, -info.max, info.tiny, info.smallest_subnormal]
    places = np.random.default_rng(1).choice(values.size, 50, replace=False)
    values.reshape(-1)[places] = np.resize(np.array([*hostile, -0.0], dtype), 50)
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--max-error", bound, "--trial-values", 5000)
    assert largest_error(values, tool.unpacked("x.tuck")) <= bound


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_the_bound_holds_for_whole_numbers(tool, dtype):
    values = (smooth((40, 33, 17)) * 30 + 128).astype(dtype)
    np.save(tool.folder / "x.npy", values)
    tool.run("pack", "x.npy", "-o", "x.tuck", "--max-error", 2)
    assert largest_error(values, tool.unpacked("x.tuck")) <= 2
