"""dumps and loads: what was written is read, and what claims to be something else is refused."""

import ctypes
import struct

import numpy as np
import pytest

import tuckfold

CHAINS = ["bounded(abs=0.01) | zstd", "dct_quant(rate=4) | zstd", "dct_chop(keep=4) | zstd", "block_quant(bits=4) | zstd",
          "nonzero_quant(bits=4) | zstd", "positive | zstd", "mask | zstd", "zstd | zstd", "zstd", "bounded(abs=0.01)"]  # fmt: skip


def _crc(data: bytes) -> int:
    """CRC-32C, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(spec: bytes, dtype: int, shape: tuple[int, ...], packed: bytes) -> bytes:
    """A frame with right checksums, whatever it says; written from docs/format.md."""
    rest = struct.pack(f"<{len(shape)}Q", *shape) + spec
    rest += bytes(-(32 + len(rest)) % 16)
    head = struct.pack("<4s4BI", b"TkFr", 1, dtype, len(shape), 0, len(spec))
    sizes = struct.pack("<QII", len(packed), _crc(packed), 0)
    return head + struct.pack("<I", _crc(head + bytes(4) + sizes + rest)) + sizes + rest + packed


def test_frames_are_those_of_dumps() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert frame(b"raw", 5, (2, 3), x.tobytes()) == tuckfold.dumps(x, "raw")


@pytest.mark.parametrize("spec", CHAINS)
def test_equal_values_come_back_however_few_bytes_they_take(spec: str) -> None:
    zeros = np.zeros((4096, 4096), np.float32)
    data = tuckfold.dumps(zeros, spec)
    back = tuckfold.loads(data)
    assert back.shape == zeros.shape and not back.any()
    assert not tuckfold.Packed.from_bytes(data).unpack().any()


@pytest.mark.parametrize("spec", ["bits", "bits | zstd", "zstd | zstd"])
def test_so_do_equal_bytes(spec: str) -> None:
    data = tuckfold.dumps(np.full(1 << 27, 7, np.uint8), spec)
    assert len(data) < 4096
    assert (tuckfold.loads(data) == 7).all()


def test_above_1_gib_equal_values_are_packed_with_zstd() -> None:
    zeros = np.broadcast_to(np.uint8(0), (1 << 30) + 65536)  # in one byte of memory
    data = tuckfold.dumps(zeros, "bits")
    assert tuckfold.Packed.from_bytes(data).spec == tuckfold.CodecSpec("zstd")
    packed = tuckfold.Packed.pack(zeros, "bits")
    assert packed.nbytes == 9
    with pytest.raises(ValueError, match="use zstd, which stays above it"):
        packed.to_bytes()


def test_a_few_bytes_do_not_claim_much() -> None:
    for spec, dtype, shape in ((b"bits", 4, ((1 << 30) + 32768,)), (b"zstd", 4, (1 << 40,)), (b"bounded(abs=1)", 0, (1 << 20, 1 << 30))):  # fmt: skip
        data = frame(spec, dtype, shape, bytes(16))
        for read in (tuckfold.loads, tuckfold.Packed.from_bytes):
            with pytest.raises(tuckfold.CorruptDataError, match="bytes claim to be"):
                read(data)


@pytest.mark.parametrize("read", [tuckfold.loads, tuckfold.Packed.from_bytes])
@pytest.mark.parametrize(
    "spec, dtype, error",
    [
        (b"later(x=1)", 0, NotImplementedError),
        (b"\xff\xfe", 0, NotImplementedError),
        (b"", 0, NotImplementedError),
        (b"zstd(level=99)", 0, NotImplementedError),
        (b"raw", 99, NotImplementedError),
        (b"raw", 3, tuckfold.CorruptDataError),
        (b"bits", 0, tuckfold.CorruptDataError),
        (b"dct_quant(rate=4)", 5, tuckfold.CorruptDataError),
    ],
)
def test_a_codec_that_is_not_known_or_does_not_fit(read, spec, dtype, error) -> None:
    with pytest.raises(error):
        read(frame(spec, dtype, (8, 8), bytes(256)))


def test_axes_that_numpy_cannot_count() -> None:
    with pytest.raises(NotImplementedError, match="numpy has no array of f32"):
        tuckfold.loads(frame(b"raw", 0, (0, 1 << 61), b""))
    assert tuckfold.loads(frame(b"raw", 0, (0, 1 << 40), b"")).shape == (0, 1 << 40)


def test_the_c_functions_check_the_same() -> None:
    from tuckfold import _library as lib

    found = lib.Frame()
    data = np.frombuffer(frame(b"later", 0, (8,), bytes(32)), np.uint8)
    with pytest.raises(NotImplementedError):
        lib.call("read_frame", data.ctypes.data, data.nbytes, ctypes.byref(found))


def test_psnr_of_whole_numbers_that_are_one_double() -> None:
    a, b = np.array([2**62, 2**62 + 1]), np.array([2**62, 2**62])
    assert abs(tuckfold.psnr(a, b) - 10 * np.log10(2)) < 1e-12
    assert abs(tuckfold.psnr(a.astype(np.uint64), b) - 10 * np.log10(2)) < 1e-12
    assert abs(tuckfold.psnr(a, b.astype(np.float64)) - 10 * np.log10(2)) < 1e-12
