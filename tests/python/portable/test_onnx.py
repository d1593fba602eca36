"""ONNX models: valid at every opset from 13 on, small, and with the operations that the tool says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtimes import onnx, run_session, session
from support import export, images, pack, run, ulps_of_largest, unpack

SPECS = [
    "dct_chop(keep=4)",
    "dct_chop(keep=7, shape=triangle, serialize=2)",
    "dct_chop(keep=4, coef=bf16)",
    "dct_chop(keep=4) | block_quant(bits=8)",
]


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 21, 25])
@pytest.mark.parametrize("spec", SPECS)
def test_models_pass_the_checker(opset: int, spec: str, tmp_path: Path) -> None:
    said = export(spec, (2, 3, 32, 48), "onnx", tmp_path / "codec.onnx", "--opset", str(opset))
    for path in said["files"]:
        model = onnx.load(path)
        assert model.opset_import[0].version == opset
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        assert inferred.graph.output == model.graph.output  # what is declared is what follows
        session(Path(path))
        assert {p.key: p.value for p in model.metadata_props}["tuckfold.shape"] == "2x3x32x48"


def test_models_of_dct_quant_pass_the_checker(tmp_path: Path) -> None:
    for opset in 13, 18:
        out = tmp_path / "unpack.onnx"
        export(
            "dct_quant(rate=4)", (2, 32, 40), "onnx", out, "--only", "unpack", "--opset", str(opset)
        )
        onnx.checker.check_model(onnx.load(out), full_check=True)


@pytest.mark.parametrize("sides", [(512, 512), (256, 512), (500, 508), (505, 505)])
def test_models_stay_below_a_megabyte(sides: tuple[int, int], tmp_path: Path) -> None:
    whole = all(side % 8 == 0 for side in sides)
    for keep in range(1, 9 if whole else 8):  # padded, eight of eight would grow
        for serialize in (1, 2) if whole else (1,):
            spec = f"dct_chop(keep={keep}, serialize={serialize})"
            said = export(spec, (2, *sides), "onnx", tmp_path / "codec.onnx")
            for path in said["files"]:
                assert Path(path).stat().st_size < 1e6, spec


def test_a_model_of_many_tiles_agrees(tmp_path: Path) -> None:
    """What tiles begin and end with is shared between them."""
    spec, shape = "dct_chop(keep=3, serialize=16)", (1, 125, 128)
    said = export(spec, shape, "onnx", tmp_path / "codec.onnx")
    x = images(shape)
    packed = pack(x, spec)
    for path, given, want in (
        (said["files"][0], x, packed),
        (said["files"][1], packed, unpack(packed, spec, "f32", shape)),
    ):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        names = [tensor.name for tensor in model.graph.initializer]
        assert len(names) == len(set(names)) < 60
        (ours,) = run_session(session(Path(path)), (given,))
        assert ulps_of_largest(ours - want, packed) <= 3


def test_matrices_that_are_built_are_those_that_are_stored(tmp_path: Path) -> None:
    """From 512 on matrices are built from one block; the products must not notice."""
    for spec, shape in ("dct_chop(keep=8)", (1, 512, 512)), ("dct_chop(keep=5)", (1, 500, 509)):
        said = export(spec, shape, "onnx", tmp_path / "codec.onnx")
        model = onnx.load(said["files"][0])
        assert "Mul" in [node.op_type for node in model.graph.node]
        x = images(shape)
        packed = pack(x, spec)
        (theirs,) = run_session(session(Path(said["files"][0])), (x,))
        assert ulps_of_largest(theirs - packed, packed) <= 3


def test_a_small_model_is_two_products_and_nothing_else(tmp_path: Path) -> None:
    said = export("dct_chop(keep=4)", (100, 3, 256, 256), "onnx", tmp_path / "codec.onnx")
    for path in said["files"]:
        model = onnx.load(path)
        assert [node.op_type for node in model.graph.node] == ["MatMul", "MatMul"]
        assert len(model.graph.initializer) == 2


def flops_of(model: onnx.ModelProto) -> int:
    """Multiplications and additions of the products, from the shapes that inference finds."""
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    shapes = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in [*model.graph.value_info, *model.graph.input, *model.graph.output]
    } | {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    total = 0
    for node in model.graph.node:
        if node.op_type == "MatMul":
            total += int(np.prod(shapes[node.output[0]])) * (2 * shapes[node.input[0]][-1] - 1)
    return total


@pytest.mark.parametrize("shape", ["square", "triangle"])
def test_formulas_are_the_counts_of_the_graph(shape: str, tmp_path: Path) -> None:
    n, planes = 64, 6
    for keep in range(1, 9):
        for serialize in 1, 2, 4:
            spec = f"dct_chop(keep={keep}, shape={shape}, serialize={serialize})"
            said = export(spec, (2, 3, n, n), "onnx", tmp_path / "codec.onnx")
            cf = keep / 8
            kept = keep * keep if shape == "square" else keep * (keep + 1) / 2
            assert said["ratio_values"] == said["ratio"] == 64 / kept
            assert said["ratio_eq3"] == (64 / kept if shape == "square" else None)
            for direction, path in zip(("pack", "unpack"), said["files"], strict=True):
                counted = flops_of(onnx.load(path))
                key = "flops_eq5" if direction == "pack" else "flops_eq7"
                assert said[direction]["flops"] == said[direction][key] == counted
                side = n / serialize
                less = cf + cf * cf if direction == "pack" else cf + 1
                formula = 2 * side**3 * cf * (cf + 1) - side**2 * less
                assert counted == planes * serialize**2 * formula
                assert said[direction]["products"] == 2 * serialize**2


def test_an_opset_that_is_not_known_is_refused(tmp_path: Path) -> None:
    for opset in 12, 26:
        done = run("export", "codec", "dct_chop(keep=4)", "--shape", "2,32,32", "--target", "onnx",
                   "-o", tmp_path / "codec.onnx", "--opset", opset)  # fmt: skip
        assert done.returncode == 2 and "13..25" in done.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("block", "side"), [(8, 2048), (8, 2045), (4, 1024), (4, 1021)])
def test_models_of_large_planes_stay_below_1_mb(block: int, side: int, tmp_path: Path) -> None:
    spec = f"dct_chop(block={block}, keep={block // 2})"
    said = export(spec, (1, side, side), "onnx", tmp_path / "large.onnx")
    assert all(Path(path).stat().st_size < 1e6 for path in said["files"])
