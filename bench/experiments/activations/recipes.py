"""Which operators give the same bits again: what a wrapped model compares before it recomputes, as a table.

  python -m bench.experiments.activations.recipes --out bench/results/activations_recipes.json
  python -m bench.experiments.activations.recipes --device cuda --out bench/results/activations_recipes_gpu.json

Less than a minute. The blocks are those of `blocks.py` and a few more normalizations and activations, in
f32, and with autocast in bf16; convolutional ones in both orders of axes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import tuckfold
import tuckfold.torch as tt
from bench.experiments.activations.blocks import BLOCKS, IMAGES, TOKENS
from bench.record import ROOT, Record, table
from tuckfold.torch._activations import _products, _proof

METHOD = (
    "Each block is wrapped with least=0 and runs four passes of training on random values. What it could make again is then compared with what it saved, on the device, bit by bit; where "
    "another kernel than forward's would make it, also on hostile values. sizes: combinations of sizes, strides and constants that were compared; same_bits: those that were equal. "
    "A combination that differs is kept by wrap."
)
PASSES = 4  # a GPU answers in a later pass
_AUTOCAST = (None, torch.bfloat16)


def _after(norm: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    activations = (nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Mish, nn.ReLU6, nn.LeakyReLU)

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for activation in activations:
            layers += [nn.Conv2d(32, 32, 3, padding=1), norm(32), activation()]
        return nn.Sequential(*layers, nn.Dropout(), nn.Conv2d(32, 8, 1))

    return make


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = BLOCKS | {
    "batch normalization": (_after(nn.BatchNorm2d), IMAGES),
    "group normalization": (_after(lambda c: nn.GroupNorm(4, c)), IMAGES),
    "instance normalization": (_after(nn.InstanceNorm2d), IMAGES),
    "dropout": (
        lambda: nn.Sequential(
            *(m for _ in range(3) for m in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)))
        ),
        TOKENS,
    ),
}


def cases(device: str) -> Iterator[tuple[nn.Module, Tensor, torch.dtype | None]]:
    for make, shape in NETWORKS.values():
        for dtype in _AUTOCAST:
            for memory in (torch.contiguous_format, torch.channels_last)[: len(shape) - 2]:
                torch.manual_seed(0)
                model, x = make().to(device), torch.randn(shape, device=device)
                if memory is torch.channels_last:
                    model, x = model.to(memory_format=memory), x.to(memory_format=memory)
                yield model, x, dtype


def compare(device: str) -> None:
    for model, x, dtype in cases(device):
        act = tt.wrap(model, least=0)
        for _ in range(PASSES):
            with torch.autocast(device, dtype, enabled=dtype is not None):
                out = model(x)
            out.float().square().mean().backward()
            if device == "cuda":
                torch.cuda.synchronize()
        act.remove()


def operators(signature: tuple) -> str:
    """Their names, without constants and what they read: `relu(add(normalize, normalize))`."""
    name, *arguments = signature
    found = re.match(r"[\w.]+", name)
    assert found is not None
    inner = [operators(a) for a in arguments if isinstance(a[0], str)]
    return found.group().removeprefix("aten.") + (f"({', '.join(inner)})" if inner else "")


def dtype_of(signature: tuple) -> str:
    """Of what is read first that is no bias."""
    leaves = [a for a in signature[1:] if not isinstance(a[0], str)]
    found = leaves[0][0] if leaves else dtype_of(signature[1])
    return str(found).removeprefix("torch.")


def rows() -> list[dict[str, object]]:
    found: dict[tuple[str, str], list[bool]] = {}
    for signature, same in _proof.compared():
        if same is not None:
            key = operators(signature), dtype_of(signature)
            found.setdefault(key, []).append(same)
    return [
        {"operators": name, "dtype": dtype, "sizes": len(all_), "same_bits": sum(all_)}
        for (name, dtype), all_ in sorted(found.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _products.SHARE[options.device] = 0.5  # as many as can be
    record = Record("activations_recipes", False, ROOT / "build/release", METHOD)
    record.commands.append(
        f"python -m bench.experiments.activations.recipes --device {options.device}"
    )
    record.extra = {"torch": torch.__version__, "device": options.device}
    if options.device == "cuda":
        record.extra |= {
            "gpu": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
        }
    compare(options.device)
    record.rows = rows()
    titles = ("operators", "dtype", "sizes", "same_bits")
    print(table(titles, [[row[title] for title in titles] for row in record.rows]))
    if options.out is not None:
        options.out.write_text(record.text(tuckfold.__version__))


if __name__ == "__main__":
    main()
