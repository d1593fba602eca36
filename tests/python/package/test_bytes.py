"""Images of bytes: kernels that unpack to u8 at once give what f32 gives, rounded."""

import numpy as np
import pytest

import tuckfold

SHAPES = [(5, 3, 32, 32), (7, 24, 40), (2, 3, 30, 30), (3, 8, 8), (1, 16, 1040), (9, 33, 64)]
SPECS = ["dct_quant(rate=1)", "dct_quant(rate=4)", "dct_quant(rate=8)", "dct_quant(rate=4, offset=100)", "dct_quant(rate=3, clamp=zero)"]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_the_rounded_values(shape: tuple[int, ...], spec: str) -> None:
    rng = np.random.default_rng(0)
    if not tuckfold.takes(spec, "u8", shape):
        pytest.skip("padding would make it larger")
    packed = tuckfold.pack(rng.integers(0, 256, shape, dtype=np.uint8), spec)
    any_bytes = rng.integers(0, 256, packed.shape, dtype=np.uint8)  # with NaN and huge values
    for some in (packed, any_bytes):
        values = tuckfold.unpack(some, spec, shape=shape, dtype="f32").astype(np.float64)
        want = np.where(np.isnan(values), 0, np.clip(np.rint(values), 0, 255)).astype(np.uint8)
        assert np.array_equal(tuckfold.unpack(some, spec, shape=shape, dtype="u8"), want)
        every_other = np.zeros((*shape[:-1], 2 * shape[-1]), np.uint8)[..., ::2]
        tuckfold.unpack(some, spec, out=every_other)
        assert np.array_equal(every_other, want)
