"""The include rules, each by an include that breaks it and one that keeps it."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402

ALLOWED = [
    ("src/base/shape.cc", '"tuckfold/tensor.h"'),
    ("src/base/parallel.cc", "<pthread.h>"),
    ("src/codec/raw.cc", '"base/parallel.h"'),
    ("src/codec/dct_chop_cpu.cc", "<hwy/highway.h>"),
    ("src/base/stream_cpu-inl.h", "<hwy/highway.h>"),
    ("src/codec/dct_chop_cuda.cu", "<cuda_runtime.h>"),
    ("src/codec/dct_chop_test.cc", '"codec/dct_chop_ref.h"'),
    ("src/codec/dct_chop_test.cc", "<gtest/gtest.h>"),
    ("src/compiler/passes/backward.cc", '"compiler/ir/graph.h"'),
    ("src/cli/main.cc", "<CLI/CLI.hpp>"),
    ("src/cli/main.cc", '"codec/spec.h"'),
    ("src/torch/ops.cc", '"tuckfold/c.h"'),
    ("src/torch/ops.cc", "<torch/csrc/stable/library.h>"),
    ("src/capi/capi.cc", '"tuckfold/portable.h"'),
    ("include/tuckfold/codec.h", '"tuckfold/tensor.h"'),
    ("include/tuckfold/codec.h", "<vector>"),
]
REFUSED = [
    ("src/base/shape.cc", '"codec/spec.h"', "base may include base"),
    ("src/base/shape.cc", '"tuckfold/codec.h"', "base may include base"),
    ("src/structured/butterfly.cc", '"codec/spec.h"', "structured may include structured, base"),
    ("src/compiler/ir/graph.cc", '"compiler/frontend/parser.h"', "compiler/ir may include"),
    ("src/codec/dct_chop.cc", "<hwy/highway.h>", "_cpu"),
    ("src/codec/dct_chop.cc", "<cuda_runtime.h>", ".cu"),
    ("src/codec/codec.cc", "<CLI/CLI.hpp>", "src/cli"),
    ("src/codec/codec.cc", "<gtest/gtest.h>", "_test"),
    ("src/codec/codec.cc", "<boost/any.hpp>", "not in the table"),
    ("src/codec/codec.cc", '"codec/dct_chop_ref.h"', "tests only"),
    ("src/codec/codec.cc", '"registry.h"', "module/file.h"),
    ("src/codec/codec.cc", '"tuckfold/c.h"', "codec may include"),
    ("src/capi/capi.cc", "<torch/csrc/stable/library.h>", "src/(torch|runtime)"),
    ("src/extra/new.cc", '"base/bits.h"', "its own folder"),
    ("include/tuckfold/codec.h", "<fmt/format.h>", "standard library"),
    ("include/tuckfold/codec.h", "<unistd.h>", "standard library"),
    ("include/tuckfold/codec.h", '"base/parallel.h"', "standard library"),
]


def check_one(tmp_path: Path, file: str, header: str) -> list[str]:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"// first line\n#include {header}\n")
    return check_layers.check(tmp_path)


@pytest.mark.parametrize(("file", "header"), ALLOWED)
def test_allowed_include_passes(tmp_path: Path, file: str, header: str) -> None:
    assert check_one(tmp_path, file, header) == []


@pytest.mark.parametrize(("file", "header", "reason"), REFUSED)
def test_wrong_include_names_line_and_rule(
    tmp_path: Path, file: str, header: str, reason: str
) -> None:
    (line,) = check_one(tmp_path, file, header)
    assert line.startswith(f"{file}:2: includes {header[1:-1]}: ")
    assert reason in line


def test_this_repository_keeps_the_rules() -> None:
    assert check_layers.check(ROOT) == []
