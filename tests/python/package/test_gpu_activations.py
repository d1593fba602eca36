"""Wrapped models on a GPU: the gradients of plain ones, bit for bit, and nothing that waits."""

import copy
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gpu
import tuckfold.torch as tt

pytestmark = gpu.marks
each = gpu.each


class Residual(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.convs[0](x)), inplace=True)
        y = self.norms[1](self.convs[1](y))
        y += x
        return F.relu(y, inplace=True)


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2))
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.drop(self.out(y.reshape(b, t, c)))
        return x + self.drop(self.down(self.drop(F.gelu(self.up(self.norms[1](x))))))


def network(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "gpt":
        model = nn.Sequential(nn.Embedding(300, 64), Block(64), Block(64), nn.Linear(64, 300))
        return model.to(gpu.DEVICE), torch.randint(300, (4, 64), device=gpu.DEVICE)
    if name == "alexnet":
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU6(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2),
            nn.Flatten(), nn.Dropout(), nn.Linear(256, 10),
        )  # fmt: skip
    else:
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((3, 2), (2, 1), 1),
            *(Residual(16) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip
    for p in model.parameters():
        nn.init.normal_(p, std=0.2)
    return model.to(gpu.DEVICE), torch.rand(4, 3, 32, 32, device=gpu.DEVICE)


def gradients(model: nn.Module, x: Tensor, bf16: bool) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(3)
    with torch.autocast(gpu.DEVICE, torch.bfloat16, enabled=bf16):
        model(x).float().square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(
        torch.equal(x.view(torch.int32), y.view(torch.int32)) for x, y in zip(a, b, strict=True)
    )


def no_waiting() -> object:
    """Inside of it torch refuses what waits for the GPU."""
    if not gpu.ON_GPU:
        return nullcontext()

    class Refusing:
        def __enter__(self) -> None:
            torch.cuda.set_sync_debug_mode("error")

        def __exit__(self, *_: object) -> None:
            torch.cuda.set_sync_debug_mode("default")

    return Refusing()


@each(
    *[
        (n, bf16, last)
        for n in ("alexnet", "resnet", "gpt")
        for bf16 in (False, True)
        for last in (False, True)
    ]
)
def test_gradients_keep_every_bit(name: str, bf16: bool, last: bool) -> None:
    model, x = network(name)
    if last and name == "gpt":
        gpu.skip("tokens have no channels")
    if last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    torch.backends.cudnn.deterministic = True
    try:
        for _ in range(
            6
        ):  # from the second on, values are recomputed; the last repeat an earlier one
            assert same(gradients(model, x, bf16), gradients(plain, x, bf16))
            if gpu.ON_GPU:
                torch.cuda.synchronize()
        with torch.autocast(gpu.DEVICE, torch.bfloat16, enabled=bf16):
            hows = {row.how for row in act.plan(x).rows}
    finally:
        torch.backends.cudnn.deterministic = False
    assert act.problems == []
    assert "recompute" in hows or name == "alexnet"
    assert hows & {"pool index", "1 bit", "mask"}


@each(("alexnet",), ("resnet",), ("gpt",))
def test_nothing_waits_in_forward(name: str) -> None:
    model, x = network(name)
    act = tt.wrap(model, least=0)
    gradients(model, x, True)  # kernels load when first launched
    for _ in range(5):
        with no_waiting(), torch.autocast(gpu.DEVICE, torch.bfloat16):
            out = model(x)
        out.float().sum().backward()
    assert act.problems == []


def test_a_graph_of_a_step() -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no graphs")
    model, x = network("resnet")
    plain = copy.deepcopy(model)
    act = tt.wrap(model, least=0)
    torch.backends.cudnn.deterministic = True
    results = []
    for net in (model, plain):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                net.zero_grad(set_to_none=True)
                net(x).square().mean().backward()
        torch.cuda.current_stream().wait_stream(side)
        net.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(x).square().mean().backward()
        graph.replay()
        torch.cuda.synchronize()
        results.append([p.grad.clone() for p in net.parameters()])
    torch.backends.cudnn.deterministic = False
    assert act.problems == []
    assert same(*results)


class TwoStreams(nn.Module):
    """Half of the work in a stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Sequential(*(Residual(16) for _ in range(3))) for _ in range(2))
        self.side = torch.cuda.Stream()

    def forward(self, x: Tensor) -> Tensor:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = self.b(F.relu(x))
        z = self.a(x)
        torch.cuda.current_stream().wait_stream(self.side)
        y.record_stream(torch.cuda.current_stream())
        return F.max_pool2d(F.relu(z + y), 2)


def test_side_streams() -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no streams")
    torch.manual_seed(0)
    model = TwoStreams().cuda()
    x = torch.rand(8, 16, 64, 64, device="cuda")
    torch.backends.cudnn.deterministic = True
    wanted = gradients(model, x, False)
    act = tt.wrap(model, least=0)
    for _ in range(6):
        assert same(gradients(model, x, False), wanted)
    torch.backends.cudnn.deterministic = False
    assert act.problems == []
