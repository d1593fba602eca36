"""What is trained: a network, its data, its steps; at four sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.experiments.adaptive_activations import data, networks

NETWORKS = ("alexnet", "transformer", "gcn")


@dataclass(frozen=True)
class Setting:
    """Of one network. Steps up to `warm` store exactly; then codecs are chosen, and every `again` steps anew."""

    data: str
    scale: float
    train: int
    test: int
    batch: int
    steps: int
    warm: int
    again: int
    rate: float


_GCN = Setting("cora", 1, 140, 1000, 2708, 200, 20, 200, 0.01)
SIZES: dict[str, dict[str, Setting]] = {
    "test": {
        "alexnet": Setting("fashion_mnist", 1 / 8, 512, 256, 32, 24, 8, 100, 2e-3),
        "transformer": Setting("fashion_mnist", 1 / 8, 512, 256, 32, 24, 8, 100, 2e-3),
        "gcn": Setting("cora", 1, 140, 1000, 2708, 12, 4, 100, 0.01),
    },
    "cpu": {
        "alexnet": Setting("cifar10", 1 / 8, 3000, 1000, 50, 240, 40, 240, 2e-3),
        "transformer": Setting("cifar10", 1 / 8, 3000, 1000, 50, 240, 40, 240, 2e-3),
        "gcn": _GCN,
    },
    "gpu": {
        "alexnet": Setting("cifar10", 1, 50000, 10000, 256, 1950, 195, 975, 1e-3),
        "transformer": Setting("cifar10", 1, 50000, 10000, 256, 1365, 195, 585, 1e-3),
        "gcn": _GCN,
    },
    "full": {
        "alexnet": Setting("cifar10", 1, 50000, 10000, 128, 11700, 390, 1950, 5e-4),
        "transformer": Setting("cifar10", 1, 50000, 10000, 128, 11700, 390, 1950, 5e-4),
        "gcn": _GCN,
    },
}


class Task:
    """A network in training. Batches and dropout follow from the seed and the number of the step alone."""

    saves_batch = True  # as the input of its first layer

    def __init__(self, name: str, setting: Setting, seed: int, device: torch.device) -> None:
        self.setting, self.seed, self.device = setting, seed, device
        torch.manual_seed(seed)
        self.model = self._made(name).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), setting.rate)
        self.done = 0

    def _made(self, name: str) -> nn.Module:
        s = self.setting
        (x, y), (test_x, test_y) = data.images(s.data, s.train, s.test)
        self.tensors = [t.to(self.device) for t in (x, y, test_x, test_y)]
        make = {"alexnet": networks.AlexNet, "transformer": networks.Transformer}[name]
        return make(s.scale)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """The model's arguments, flipped or not, and the target."""
        x, y = self.tensors[:2]
        draw = torch.Generator().manual_seed(1000003 * self.seed + number)
        picks = torch.randint(len(x), (self.setting.batch,), generator=draw).to(self.device)
        flip = torch.rand(len(picks), 1, 1, 1, generator=draw).to(self.device) < 0.5
        some = x[picks]
        return (torch.where(flip, some.flip(3), some),), y[picks]

    def loss(self, number: int) -> Tensor:
        arguments, target = self.batch(number)
        torch.manual_seed(7919 * self.seed + number)  # of dropout
        return F.cross_entropy(self.model(*arguments), target)

    def penalty(self) -> Tensor | float:
        return 0.0

    def step(self) -> None:
        self.optimizer.zero_grad()
        (self.loss(self.done) + self.penalty()).backward()
        self.optimizer.step()
        self.done += 1

    def gradients(self, number: int) -> list[Tensor]:
        """Of the loss of a batch that no step has."""
        parameters = list(self.model.parameters())
        return list(torch.autograd.grad(self.loss(-1 - number), parameters))

    @torch.no_grad()
    def accuracy(self) -> float:
        """In per cent, of the test images."""
        self.model.eval()
        x, y = self.tensors[2:]
        right = sum(
            int((self.model(some).argmax(1) == of).sum())
            for some, of in zip(x.split(500), y.split(500), strict=True)
        )
        self.model.train()
        return 100 * right / len(y)

    def state(self) -> dict[str, Any]:
        copy = torch.utils._pytree.tree_map(
            lambda v: v.clone() if isinstance(v, Tensor) else v,
            [self.model.state_dict(), self.optimizer.state_dict()],
        )
        return {"tensors": copy, "done": self.done}

    def load(self, state: dict[str, Any]) -> None:
        model, optimizer = torch.utils._pytree.tree_map(
            lambda v: v.clone() if isinstance(v, Tensor) else v, state["tensors"]
        )
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.done = state["done"]


class Graph(Task):
    """Every step has the whole graph; what differs between steps is dropout."""

    saves_batch = False

    def _made(self, name: str) -> nn.Module:
        x, graph, y, parts = data.cora()
        self.tensors = [x.to(self.device), graph.to(self.device), y.to(self.device)]
        self.parts = {key: nodes.to(self.device) for key, nodes in parts.items()}
        return networks.GCN(x.shape[1], int(y.max()) + 1)

    def batch(self, number: int) -> tuple[tuple[Tensor, ...], Tensor]:
        x, graph, y = self.tensors
        return (x, graph), y[self.parts["train"]]

    def loss(self, number: int) -> Tensor:
        arguments, target = self.batch(number)
        torch.manual_seed(7919 * self.seed + number)
        return F.cross_entropy(self.model(*arguments)[self.parts["train"]], target)

    def penalty(self) -> Tensor:
        return 2.5e-4 * self.model.first.weight.square().sum()

    @torch.no_grad()
    def accuracy(self) -> float:
        self.model.eval()
        x, graph, y = self.tensors
        nodes = self.parts["test"]
        right = int((self.model(x, graph)[nodes].argmax(1) == y[nodes]).sum())
        self.model.train()
        return 100 * right / len(nodes)


def task(name: str, setting: Setting, seed: int, device: torch.device) -> Task:
    return (Graph if name == "gcn" else Task)(name, setting, seed, device)
