"""Packing in data-loader workers and threads."""

import pytest

from calls import on_four_threads, releases_gil

torch = pytest.importorskip("torch")
import tuckfold.torch as tft  # noqa: E402

SPEC = "dct_chop(keep=4) | block_quant(bits=8)"


class Images(torch.utils.data.Dataset):
    """Packs in the worker, as a data set does that sends fewer bytes."""

    def __init__(self) -> None:
        self.codec = tft.Codec("dct_chop(keep=4)")

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.set_num_threads(2)  # workers start with one
        image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(index))
        return tft.pack(image, SPEC), self.codec.compress(image)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_pack_what_the_parent_packs(method: str) -> None:
    expected = [Images()[i] for i in range(8)]  # the parent's threads are running by now
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=4, num_workers=2, multiprocessing_context=method, timeout=60
    )
    for number, (packed, coefs) in enumerate(loader):
        for i in range(4):
            assert torch.equal(packed[i], expected[number * 4 + i][0])
            assert torch.equal(coefs[i], expected[number * 4 + i][1])


def test_threads_pack_at_the_same_time() -> None:
    x = torch.rand(8, 3, 64, 64)
    expected = tft.pack(x, SPEC)
    wrong = []

    def work() -> None:
        for i in range(20):
            spec = SPEC if i % 2 else f"block_quant(bits={1 + i % 8})"  # each thread's own cache
            if spec == SPEC and not torch.equal(tft.pack(x, spec), expected):
                wrong.append(i)
            tft.unpack(tft.pack(x, spec), spec, x.shape)

    on_four_threads(work)
    assert not wrong


def test_other_threads_run_while_an_operator_does() -> None:
    x = torch.randint(0, 255, (1 << 23,), dtype=torch.uint8)
    assert releases_gil(lambda: tft.pack(x, "zstd(level=9)"))
