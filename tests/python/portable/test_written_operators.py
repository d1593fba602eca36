"""The operators that the tool prints, and checks devices for, are those in the files that it writes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from runtimes import onnx
from support import export

ONNX = {
    "MatMul": "matmul", "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Abs": "abs", "Floor": "floor",
    "Round": "round", "Clip": "clamp", "Greater": "greater", "Where": "where", "ReduceMax": "max",
    "ReduceMin": "min", "ReduceSum": "sum", "Cast": "cast", "Reshape": "reshape", "Transpose": "permute",
    "Concat": "cat", "Slice": "slice", "Expand": "expand", "ConstantOfShape": "fill", "Gather": "gather",
    "GatherElements": "gather", "ScatterElements": "scatter",
}  # fmt: skip
CALLS = {"amax": "max", "amin": "min", "to": "cast", "new_zeros": "fill"} | {
    name: name
    for name in ("matmul", "abs", "floor", "round", "clamp", "where", "sum", "reshape", "permute", "cat",
                 "expand", "gather", "scatter")
}  # fmt: skip
SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}

CASES = [
    ("dct_chop(keep=4)", (2, 64, 64), "f32"),
    ("dct_chop(keep=4)", (2, 512, 512), "f32"),  # an ONNX model builds these matrices
    ("dct_chop(keep=4)", (2, 509, 512), "f32"),
    ("dct_chop(keep=4)", (2, 64, 4, 5), "f32"),
    ("dct_chop(keep=4, serialize=2)", (2, 64, 64), "f32"),
    ("dct_chop(keep=4, serialize=2)", (2, 2048, 2048), "f32"),
    ("dct_chop(keep=4, order=planes)", (2, 64, 64), "f32"),
    ("dct_chop(keep=4, shape=triangle)", (2, 64, 64), "f32"),
    ("dct_chop(keep=4, shape=triangle, order=planes, coef=f16)", (2, 64, 64), "bf16"),
    ("block_quant(bits=8)", (2, 64, 64), "f32"),
    ("block_quant(bits=8)", (3, 33), "f16"),
    ("dct_chop(keep=4) | block_quant(bits=8)", (2, 64, 64), "f32"),
]


def of_python(path: Path, module: str) -> set[str]:
    tree = ast.parse(path.read_text())
    (body,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == module]
    (forward,) = [node for node in body.body
                  if isinstance(node, ast.FunctionDef) and node.name == "forward"]  # fmt: skip
    found = set()
    for statement in forward.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if name != "check":  # refuses tensors of another shape, on the host
                    found.add(CALLS[name])
            elif isinstance(node, ast.BinOp):
                found.add(SIGNS[type(node.op)])
            elif isinstance(node, ast.Compare):
                assert [type(op) for op in node.ops] == [ast.Gt]
                found.add("greater")
            elif isinstance(node, ast.Subscript):
                found.add("slice")
    return found


@pytest.mark.parametrize(("spec", "shape", "dtype"), CASES)
def test_what_is_printed_is_what_is_written(
    spec: str, shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    for target in "torch", "onnx":
        out = tmp_path / ("codec.py" if target == "torch" else "codec.onnx")
        said = export(spec, shape, target, out, dtype=dtype)
        for number, direction in enumerate(("pack", "unpack")):
            if target == "torch":
                written = of_python(out, direction.capitalize())
            else:
                nodes = onnx.load(said["files"][number]).graph.node
                written = {ONNX[node.op_type] for node in nodes}
            printed = said[direction]["operators"]
            assert len(printed) == len(set(printed))
            assert set(printed) == written, (target, direction)


def test_those_of_a_decoder_too(tmp_path: Path) -> None:
    for target, name in ("torch", "unpack.py"), ("onnx", "unpack.onnx"):
        out = tmp_path / name
        said = export("dct_quant(rate=4)", (2, 64, 64), target, out, "--only", "unpack")
        written = (
            of_python(out, "Unpack")
            if target == "torch"
            else {ONNX[node.op_type] for node in onnx.load(out).graph.node}
        )
        assert set(said["unpack"]["operators"]) == written
