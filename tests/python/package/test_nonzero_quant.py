"""nonzero_quant for what ReLU saves: gradients of a trained network, beside a mask and block_quant."""

import pytest

torch = pytest.importorskip("torch")

import tuckfold.torch as tt  # noqa: E402

MASKED_BITS = 2  # of block_quant over all values, beside a mask


class NonzeroQuant:
    def __init__(self, bits: int) -> None:
        self.spec, self.bytes = f"nonzero_quant(bits={bits})", 0

    def pack(self, x: torch.Tensor) -> tt.Packed:
        packed = tt.Packed.pack(x, self.spec)
        self.bytes += packed.bytes.numel()
        return packed

    def unpack(self, packed: tt.Packed) -> torch.Tensor:
        return packed.unpack()


class MaskAndBlockQuant:
    """A bit for each value, and block_quant over all of them."""

    def __init__(self, bits: int) -> None:
        self.spec, self.bytes = f"block_quant(bits={bits}, group=64)", 0

    def pack(self, x: torch.Tensor) -> tuple:
        both = tt.Packed.pack(x, "positive"), tt.Packed.pack(x, self.spec)
        self.bytes += sum(packed.bytes.numel() for packed in both)
        return both

    def unpack(self, both: tuple) -> torch.Tensor:
        mask, values = (packed.unpack() for packed in both)
        return torch.where(mask != 0, values, 0)


@pytest.fixture(scope="module")
def network():
    """A convolutional network after some steps, and a batch of images."""
    torch.manual_seed(3)
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU()]
    for _ in range(3):
        layers += [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU()]
    layers += [torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(256, 10)]
    model = torch.nn.Sequential(*layers)
    patterns = torch.nn.functional.interpolate(torch.randn(10, 3, 4, 4), scale_factor=4)
    labels = torch.arange(320) % 10
    images = patterns[labels] + torch.randn(320, 3, 16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(40):
        some = slice(step % 5 * 64, step % 5 * 64 + 64)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[some]), labels[some]).backward()
        optimizer.step()
    return model, images[:64], labels[:64]


def gradient(network, codec=None) -> torch.Tensor:
    """The gradient of all weights, with every output of a ReLU that is saved packed by `codec`."""
    model, images, labels = network

    def pack(x):
        after_relu = x.shape[1:] == (16, 16, 16) and bool((x >= 0).all())
        return codec.pack(x) if codec and after_relu else x

    def unpack(x):
        return x if isinstance(x, torch.Tensor) else codec.unpack(x)

    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def relative_error(of: torch.Tensor, plain: torch.Tensor) -> float:
    return float((of - plain).square().sum() / plain.square().sum())


@pytest.mark.parametrize("bits", [2, 3])
def test_gradients_are_near(network, bits):
    plain, ours = gradient(network), NonzeroQuant(bits)
    assert cosine(gradient(network, ours), plain) >= {2: 0.995, 3: 0.9995}[bits]
    assert ours.bytes > 0


def test_gradients_are_better_than_with_a_mask_and_all_values(network):
    """In fewer bytes."""
    plain, ours, others = gradient(network), NonzeroQuant(3), MaskAndBlockQuant(MASKED_BITS)
    error = relative_error(gradient(network, ours), plain)
    other = relative_error(gradient(network, others), plain)
    assert ours.bytes < others.bytes
    assert error < 0.1 * other


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    ("channels_last", "order"), [(False, "logical"), (True, "logical"), (True, "storage")]
)
def test_relu_reads_its_mask_from_what_comes_back(dtype, channels_last, order):
    x = torch.randn(4, 8, 13, 17, generator=torch.Generator().manual_seed(1)).to(dtype)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    y = torch.relu(x)
    back = tt.Packed.pack(y, "nonzero_quant(bits=1)", order=order).unpack()
    assert back.dtype == dtype and back.stride() == y.stride()
    assert torch.equal(back > 0, y > 0)
    assert not torch.signbit(back).any()
