"""CUDA graphs of wrapped models' steps: captured by torch.cuda.graph, or made by torch.compile."""

import copy

import torch
from torch import Tensor, nn

import gpu
import tuckfold.torch as tt
from test_gpu_activations import network, same
from test_gpu_compile import inductor
from tuckfold.torch._activations import _products as products

pytestmark = gpu.marks
each = gpu.each


class Deterministic:
    """Inside of it gradients of plain models repeat themselves."""

    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        self.share, products.SHARE["cuda"] = products.SHARE["cuda"], 0.2

    def __exit__(self, *_: object) -> None:
        products.SHARE["cuda"] = self.share
        torch.backends.cudnn.deterministic = False
        torch.use_deterministic_algorithms(False)


def step(net: nn.Module, x: Tensor) -> None:
    with torch.autocast(gpu.DEVICE, torch.bfloat16):
        out = net(x)
    out.float().square().mean().backward()


def replayed(net: nn.Module, x: Tensor, warm: int) -> list[list[Tensor]]:
    """Gradients of three replays; dropout draws anew in each."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            net.zero_grad(set_to_none=True)
            step(net, x)
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    torch.manual_seed(5)
    with torch.cuda.graph(graph):
        step(net, x)
    found = []
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        found.append([p.grad.clone() for p in net.parameters()])
    return found


# After one pass of a wrapped model nothing is known of what may be recomputed; after seven, passes
# repeat each other and their hooks are in C++.
@each(*[(name, warm) for name in ("gpt", "resnet", "alexnet") for warm in (1, 3, 7)])
def test_a_graph_replays_the_gradients_of_the_plain_model(name: str, warm: int) -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU has no graphs")
    model, x = network(name)
    plain = copy.deepcopy(model)
    with Deterministic():
        wanted = replayed(plain, x, warm)
        act = tt.wrap(model, least=0)
        found = replayed(model, x, warm)
    assert act.problems == []
    for a, b in zip(found, wanted, strict=True):
        assert same(a, b)
    assert name == "resnet" or not same(found[0], found[1])  # dropout


@each(("gpt",), ("resnet",))
def test_graphs_of_compiled_models(name: str) -> None:
    if inductor():
        gpu.skip("inductor cannot compile kernels here")
    model, x = network(name)
    plain = copy.deepcopy(model)
    torch._inductor.config.deterministic = True  # no choices of kernels by their times
    found = []
    try:
        with Deterministic():
            for net in (plain, model):
                torch._dynamo.reset()
                act = tt.wrap(net, least=0) if net is model else None
                run = torch.compile(net, mode="reduce-overhead", fullgraph=True)
                steps = []
                for turn in range(5):
                    net.zero_grad(set_to_none=True)
                    torch.manual_seed(turn)
                    torch.compiler.cudagraph_mark_step_begin()
                    step(run, x)
                    steps.append([p.grad.clone() for p in net.parameters()])
                found.append(steps)
    finally:
        torch._inductor.config.deterministic = False
    assert act is not None and act.problems == []
    assert act.plan().after < act.plan().before
    for a, b in zip(*found, strict=True):
        assert same(a, b)
