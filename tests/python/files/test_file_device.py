"""Batches that a device makes of packed samples: those of the CPU, in every bit.

A GPU's part is played by the CPU's own operators here; package/test_gpu_loader.py has the GPU itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tuckfold

torch = pytest.importorskip("torch")
import tuckfold.torch  # noqa: E402
from tuckfold.torch import _device  # noqa: E402

RNG = np.random.default_rng(3)
COUNT = 70
CHW = RNG.integers(0, 256, (COUNT, 3, 16, 24), dtype=np.uint8)
SMOOTH = np.cumsum(RNG.random((COUNT, 3, 16, 24), dtype=np.float32) - 0.5, axis=3)
ARRAYS = {
    "raw": (CHW, "raw"),
    "coded": (CHW, "dct_quant(rate=4)"),
    "hwc": (np.ascontiguousarray(CHW.transpose(0, 2, 3, 1)), "raw"),
    "exact": (CHW.astype(np.float32) / 255, "bytes_of"),
    "zstd": (CHW, "zstd"),
    "smooth": (SMOOTH, "dct_quant(rate=6)"),
    "field": (SMOOTH[:, 0], "dct_chop(keep=4)"),
    "number": (np.arange(COUNT), "bits(width=8)"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("device") / "a.tuck"
    tuckfold.save(
        where,
        {name: values for name, (values, _) in ARRAYS.items()},
        codec={name: codec for name, (_, codec) in ARRAYS.items()},
        samples_per_chunk=4,
        sync=False,
    )
    return where


def loaders(path: Path, arrays, **options) -> tuple:
    """One that reads to the CPU, and one that moves packed bytes."""
    plain = tuckfold.torch.DataLoader(path, arrays=arrays, **options)
    moving = tuckfold.torch.DataLoader(path, arrays=arrays, **options)
    moving._mover = _device.Mover(
        torch.device("cpu"), moving.dataset._data.arrays, moving._readers, kernels=True
    )
    return plain, moving


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["raw", "coded", "hwc", "exact", "zstd", "smooth", "field"])
def test_images_are_those_of_the_cpu(
    path: Path, name: str, dtype: torch.dtype, channels_last: bool
) -> None:
    images = tuckfold.torch.Images(
        mean=0.4, std=0.3, crop=(13, 20), pad=2, flip=True, dtype=dtype,
        channels_last=channels_last, layout="HWC" if name == "hwc" else "CHW"
    )  # fmt: skip
    plain, moving = loaders(
        path, (name, "number"), batch_size=16, shuffle=True, seed=5, images={name: images}
    )
    for _ in range(2):  # epochs
        for (batch, numbers), (moved, moved_numbers) in zip(plain, moving, strict=True):
            assert same(moved, batch) and same(moved_numbers, numbers)


def test_arrays_that_are_no_images_are_those_of_the_cpu(path: Path) -> None:
    for prefetch in (0, 2):
        plain, moving = loaders(path, None, batch_size=32, shuffle=True, prefetch=prefetch)
        for batch, moved in zip(plain, moving, strict=True):
            assert batch.keys() == moved.keys()
            assert all(same(moved[name], batch[name]) for name in batch)


def test_samples_that_the_codec_did_not_suit_come_in_their_places(tmp_path: Path) -> None:
    values = SMOOTH.copy()
    values[::9] = RNG.normal(0, 100, values[::9].shape)
    with pytest.warns(tuckfold.DataWarning, match="are stored as they are"):
        tuckfold.save(
            tmp_path / "a.tuck", image=values, codec="dct_quant(rate=4)", max_error=0.5,
            samples_per_chunk=2, sync=False
        )  # fmt: skip
    parts = tuckfold.open(tmp_path / "a.tuck")["image"]._read_packed(
        np.arange(COUNT), 0, 0, np.empty(COUNT, np.int32).ctypes.data, 4
    )
    assert parts[1] == 2
    whole = {"image": tuckfold.torch.Images(std=3)}
    images = {"image": tuckfold.torch.Images(std=3, crop=14, flip=True)}
    for options in ({}, {"images": whole}, {"images": images}):
        plain, moving = loaders(tmp_path / "a.tuck", "image", batch_size=COUNT, shuffle=True, **options)  # fmt: skip
        assert same(next(iter(moving)), next(iter(plain)))


def test_shards_with_codecs_of_their_own(tmp_path: Path) -> None:
    for i in range(6):
        tuckfold.save(tmp_path / f"s{i}.tuck", image=SMOOTH[10 * i : 10 * i + 10], codec=f"dct_quant(rate={3 + i})", sync=False)  # fmt: skip
    import ctypes

    from tuckfold import _library as lib

    names = (ctypes.c_char_p * 6)(*[str(tmp_path / f"s{i}.tuck").encode() for i in range(6)])
    lib.call("write_manifest", str(tmp_path / "all.tuck").encode(), names, 6)
    about = tuckfold.open(tmp_path / "all.tuck")["image"]._about
    assert about["packed_alone"] and len(about["codecs"]) == 6
    plain, moving = loaders(tmp_path / "all.tuck", "image", batch_size=60, shuffle=True)
    assert same(next(iter(moving)), next(iter(plain)))


def test_a_transform_gets_the_batch_and_a_state_goes_on(path: Path) -> None:
    plain, moving = loaders(
        path, ("raw", "number"), batch_size=16, shuffle=True, seed=1,
        transform=lambda batch: {"double": 2 * batch[0].float(), "number": batch[1]},
        images={"raw": tuckfold.torch.Images(flip=True)}
    )  # fmt: skip
    whole = list(plain)
    moving.load_state_dict(plain.state_dict() | {"epoch": 0, "batch": 3})
    rest = list(moving)
    assert len(rest) == len(whole) - 3
    for got, wanted in zip(rest, whole[3:], strict=True):
        assert same(got["double"], wanted["double"]) and same(got["number"], wanted["number"])


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("name", ["raw", "coded", "zstd"])
def test_a_damaged_chunk_is_the_error_of_the_cpu(
    path: Path, tmp_path: Path, name: str, images: bool
) -> None:
    data = bytearray(path.read_bytes())
    with tuckfold.open(path) as f:
        import ctypes

        from tuckfold import _library as lib

        class Chunk(ctypes.Structure):
            _fields_ = [("first", ctypes.c_int64), ("samples", ctypes.c_int64), ("file", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]  # fmt: skip

        chunks, count = (Chunk * 100)(), ctypes.c_size_t()
        lib.call("reader_chunks", f._open_handle().value, f[name]._number, 0, chunks, 100, count)
        chunk = chunks[2]
    data[chunk.offset + chunk.bytes - 3] ^= 0x40
    (tmp_path / "b.tuck").write_bytes(data)
    options = {"images": {name: tuckfold.torch.Images()}} if images else {}
    messages = []
    for loader in loaders(tmp_path / "b.tuck", name, batch_size=COUNT, **options):
        with pytest.raises(tuckfold.CorruptDataError) as caught:
            next(iter(loader))
        messages.append(str(caught.value))
    wanted = f"b.tuck': the chunk of '{name}' with samples {chunk.first} to {chunk.first + chunk.samples - 1} is broken"  # fmt: skip
    assert wanted in messages[0] and messages[0] == messages[1]


def test_a_gpu_that_is_not_there_is_said_so(path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for device in ("cuda", "cuda:1", 0, torch.device("cuda")):
        with pytest.raises(NotImplementedError, match="torch finds 0 GPUs here; leave device out"):
            tuckfold.torch.DataLoader(path, 8, device=device)
    for device in ("xpu", "mps"):
        with pytest.raises(NotImplementedError, match=f"torch cannot use device='{device}' here"):
            tuckfold.torch.DataLoader(path, 8, device=device)
    with pytest.raises(ValueError, match="such as 'cuda:0', got 'gpu'"):
        tuckfold.torch.DataLoader(path, 8, device="gpu")
    loader = tuckfold.torch.DataLoader(path, 8, arrays="raw", device="cpu")
    assert loader._mover is None and next(iter(loader)).shape == (8, 3, 16, 24)


def test_a_device_without_kernels_gets_what_the_cpu_made(path: Path) -> None:
    images = {"coded": tuckfold.torch.Images(crop=8, dtype=torch.float16)}
    loader = tuckfold.torch.DataLoader(
        path, 8, arrays=("coded", "number"), device="meta", images=images
    )
    batch, numbers = next(iter(loader))
    assert batch.shape == (8, 3, 8, 8) and batch.device.type == numbers.device.type == "meta"


def test_the_operator_refuses_what_does_not_fit() -> None:
    op = torch.ops.tuckfold.unpack_images
    none = torch.empty(0, dtype=torch.int32)
    packed, one = torch.zeros(2 * 192, dtype=torch.uint8), torch.ones(3)

    def run(**change) -> None:
        given = {"packed": packed, "spec": "raw", "shape": [2, 3, 8, 8], "dtype": torch.uint8, "windows": none, "places": none, "scale": one, "add": one, "channels_last": False, "out": torch.empty(2, 3, 8, 8)}  # fmt: skip
        _device.call(op.default, *(given | change).values())

    run()
    for change, text in (
        ({"packed": packed.float()}, "uint8"),
        ({"scale": one[:2]}, "scale and add"),
        ({"add": one.double()}, "scale and add"),
        ({"windows": none.new_zeros(2, 2)}, "windows and places"),
        ({"places": torch.zeros(2, dtype=torch.int64)}, "windows and places"),
        ({"places": torch.tensor([0, 2], dtype=torch.int32)}, "places must be 0..1, got 2"),
        ({"out": torch.empty(2, 3, 8, 8, dtype=torch.float64)}, "f32, f16 or bf16"),
        ({"out": torch.empty(3, 3, 8, 8)}, "as many images"),
        ({"out": torch.empty(2, 3, 8, 1).expand(2, 3, 8, 8)}, "repeat elements"),
        ({"dtype": torch.int64}, "u8, u16 or floats"),
        ({"dtype": torch.float32}, "packs to"),
    ):
        with pytest.raises(ValueError) as caught:
            run(**change)
        assert text in str(caught.value), change
    with torch._subclasses.FakeTensorMode():
        fake = {"packed": torch.zeros(384, dtype=torch.uint8), "windows": torch.empty(0, dtype=torch.int32), "places": torch.empty(0, dtype=torch.int32), "scale": torch.ones(3), "add": torch.ones(3), "out": torch.empty(2, 3, 8, 8)}  # fmt: skip
        op(fake["packed"], "raw", [2, 3, 8, 8], torch.uint8, fake["windows"], fake["places"], fake["scale"], fake["add"], False, fake["out"])  # fmt: skip
