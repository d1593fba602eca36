from pathlib import Path

import torch


def get_file_dir(path: str) -> str:
    return str(Path(path).resolve().parent)


def trace_graph(model: torch.nn.Module, inputs: tuple, pef: str) -> None:
    assert model.converted and pef

    def outputs(*given):
        with torch.no_grad():
            result = model(*given)
        return result if isinstance(result, tuple) else (result,)

    model.output_tensors = outputs
