"""Exported files from numpy to numpy: PyTorch's, and ONNX models in onnxruntime."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from support import NUMPY, export, load

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Torch:
    """The two directions of an exported PyTorch file, from numpy to numpy."""

    def __init__(self, spec: str, shape: tuple[int, ...], folder: Path, dtype: str = "f32") -> None:
        export(spec, shape, "torch", folder / "codec.py", dtype=dtype)
        self.module = load(folder / "codec.py")

    def __call__(self, direction: str, *inputs: np.ndarray) -> list[np.ndarray]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # tensors are small, and waiting for a busy machine's cores is not
        with torch.no_grad():
            outputs = getattr(self.module, direction)()(*map(to_torch, inputs))
        torch.set_num_threads(threads)
        return [to_numpy(one) for one in (outputs if isinstance(outputs, tuple) else (outputs,))]


class Onnx:
    """The same of a pair of ONNX models."""

    def __init__(self, spec: str, shape: tuple[int, ...], folder: Path, dtype: str = "f32") -> None:
        files = export(spec, shape, "onnx", folder / "codec.onnx", dtype=dtype)["files"]
        self.sessions = dict(zip(("Pack", "Unpack"), map(session, files), strict=True))

    def __call__(self, direction: str, *inputs: np.ndarray) -> list[np.ndarray]:
        return run_session(self.sessions[direction], inputs)


def run_session(of: ort.InferenceSession, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """bf16 goes in and comes out as what numpy does not have: through OrtValue."""
    binding = of.io_binding()
    for info, value in zip(of.get_inputs(), inputs, strict=True):
        value = np.ascontiguousarray(value)
        if value.dtype == NUMPY["bf16"]:
            bits = value.view(np.uint16)
            held = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
        else:
            held = ort.OrtValue.ortvalue_from_numpy(value)
        binding.bind_ortvalue_input(info.name, held)
    for info in of.get_outputs():
        binding.bind_output(info.name)
    of.run_with_iobinding(binding)
    outputs = []
    for info, value in zip(of.get_outputs(), binding.get_outputs(), strict=True):
        if info.type == "tensor(bfloat16)":
            raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
            outputs.append(np.frombuffer(raw, NUMPY["bf16"]).reshape(value.shape()))
        else:
            outputs.append(value.numpy())
    return outputs


def to_torch(value: np.ndarray) -> torch.Tensor:
    value = np.ascontiguousarray(value)
    if value.dtype == NUMPY["bf16"]:
        return torch.from_numpy(value.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def to_numpy(value: torch.Tensor) -> np.ndarray:
    if value.dtype == torch.bfloat16:
        return value.view(torch.uint16).numpy().view(NUMPY["bf16"])
    return value.numpy()
