"""tuckfold activations: what a model saves for backward, and whether wrapping keeps its gradients."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

import torch
from torch import Tensor, nn

import tuckfold.torch as tt
from tuckfold.torch._activations._compressnn import rules_of

_EPILOG = """examples:
  tuckfold activations plan model.py:build --input 64,3,224,224
  tuckfold activations check package.module:Net --input 8,512 --tokens 50257
  tuckfold activations report model.py:build --input 64,3,224,224 --out run.html
  tuckfold activations check model.py:build --input 64,3,224,224 --codec 'block_quant(bits=4)'
  tuckfold activations plan model.py:build --input 64,3,224,224 --budget 2GiB --out plan.toml
  tuckfold activations import compressnn.json --out rules.toml
"""


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in text.split(","))
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise argparse.ArgumentTypeError(f"must be sizes like 64,3,224,224, got {text!r}")
    return shape


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tuckfold activations",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=("plan", "check", "report", "import"))
    parser.add_argument(
        "model",
        metavar="MODULE:FUNCTION",
        help="a function that makes the model, or a class; import: a configuration of CompressNN",
    )
    parser.add_argument(
        "--input",
        type=_shape,
        action="append",
        help="sizes; again for each argument",
    )
    parser.add_argument(
        "--tokens", type=int, help="inputs are whole numbers below this one, as of a language model"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--autocast", choices=("bfloat16", "float16"))
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument(
        "--recompute",
        type=int,
        default=4,
        metavar="N",
        help="operators that may be run again for one tensor; 0 for none (default: 4)",
    )
    parser.add_argument(
        "--least",
        type=int,
        help="bytes; smaller tensors are kept (default: 64 KiB; 1 MiB on a GPU)",
    )
    parser.add_argument(
        "--codec", help="for what nothing exact makes smaller; gradients then differ"
    )
    parser.add_argument("--budget", help="bytes that a step may take, such as 4GiB")
    parser.add_argument("--noise", help="variance that codecs may add to gradients, such as 1%%")
    parser.add_argument(
        "--offload",
        nargs="?",
        const=True,
        default=False,
        metavar="SPEED",
        help="tensors may wait in the CPU's memory; SPEED is that of the link, such as 25GB/s",
    )
    parser.add_argument("--rules", type=Path, help="a file of rules")
    parser.add_argument("--plan", type=Path, help="a file that --out of plan wrote")
    parser.add_argument(
        "--out", type=Path, help="plan: a file for wrap; report: the HTML; import: the rules"
    )
    parser.add_argument("--model", dest="of", help="import: whose modules layer_number counts")
    options = parser.parse_args(words)
    if options.verb != "import" and options.input is None:
        parser.error("the following arguments are required: --input")
    if options.verb == "report" and options.out is None:
        parser.error("report needs --out FILE.html")
    return options


def _model(name: str) -> nn.Module:
    """Raises ValueError where the name leads nowhere."""
    place, colon, function = name.rpartition(":")
    if not colon:
        raise ValueError(f"[activations] expected MODULE:FUNCTION, got {name!r}")
    sys.path.insert(0, "")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not Path(place).exists():
            raise ValueError(f"[activations] there is no file {place}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"[activations] {error}") from error
    if not hasattr(module, function):
        raise ValueError(f"[activations] {place} has no {function}")
    made = getattr(module, function)
    model = made if isinstance(made, nn.Module) else made()
    if not isinstance(model, nn.Module):
        raise ValueError(f"[activations] {name} made a {type(model).__name__}, not a module")
    return model


def _inputs(options: argparse.Namespace) -> list[Tensor]:
    torch.manual_seed(0)
    inputs = []
    for shape in options.input:
        if options.tokens is not None:
            inputs.append(torch.randint(options.tokens, shape, device=options.device))
            continue
        x = torch.rand(shape, device=options.device)
        if options.channels_last and x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
        inputs.append(x)
    return inputs


def main(words: list[str] | None = None) -> int:
    """Returns the exit code: 0; 1 where gradients differ, with a codec by more than is safe; 2 for what cannot be done as asked, and
    where the model fails."""
    options = _arguments(words)
    try:
        if options.verb == "import":
            rules = rules_of(options.model, None if options.of is None else _model(options.of))
            if options.out is None:
                print(rules, end="")
            else:
                options.out.write_text(rules)
            return 0
        model = _model(options.model).to(options.device)
        if options.channels_last:
            model = model.to(memory_format=torch.channels_last)
        inputs = _inputs(options)
        wrapping = {"least": options.least, "recompute": options.recompute}
        names = ("codec", "budget", "noise", "offload")
        wrapping |= {name: getattr(options, name) for name in names}
        act = tt.wrap(model, rules=options.rules, plan=options.plan, **wrapping)
        dtype = getattr(torch, options.autocast or "bfloat16")
        device = torch.device(options.device).type
        with torch.autocast(device, dtype, enabled=options.autocast is not None):
            if options.verb == "check":
                result = tt.check(model, tuple(inputs))
                print(result)
                return 0 if result.is_good else 1
            if act.goal is not None:
                act.fit(tuple(inputs))
            print(act.plan(*inputs))
            if act.goal is not None:
                print(act.goal.fitted)
        if options.verb == "report":
            act.report(options.out)
        elif options.out is not None:
            act.save(options.out)
    except (ValueError, OSError) as error:
        print(f"tuckfold activations: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        traceback.print_exc()
        name = type(error).__name__
        print(f"tuckfold activations: the model failed: {name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
