"""Specs as objects: text, equality, pickling; and the list of codecs."""

import copy
import json
import pickle
import subprocess
from pathlib import Path

import pytest

import tuckfold

TUCKFOLD = Path(__file__).parents[3] / "build/release/tuckfold"
TEXTS = ["raw", "dct_chop(keep=4)", "dct_chop(keep=4, order=planes) | block_quant(bits=8)", "zstd"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_spec_is_its_text(text: str) -> None:
    spec = tuckfold.CodecSpec(text)
    assert tuckfold.CodecSpec(str(spec)) == spec == tuckfold.CodecSpec.parse(repr(spec))
    assert repr(spec) == str(spec)
    assert hash(spec) == hash(tuckfold.CodecSpec(f"  {text} "))
    assert tuckfold.CodecSpec(spec) == spec


@pytest.mark.parametrize("text", TEXTS)
def test_a_spec_survives_pickle_and_copy(text: str) -> None:
    spec = tuckfold.CodecSpec(text)
    for same in (pickle.loads(pickle.dumps(spec)), copy.copy(spec), copy.deepcopy(spec)):
        assert same == spec
        assert same is not spec


def test_specs_differ_by_their_parameters() -> None:
    assert tuckfold.CodecSpec("dct_chop(keep=4)") != tuckfold.CodecSpec("dct_chop(keep=3)")
    assert tuckfold.CodecSpec("raw") != "raw"


def test_stages_have_every_parameter() -> None:
    first, second = tuckfold.CodecSpec("dct_chop(keep=3) | zstd").stages
    assert (first.name, second.name) == ("dct_chop", "zstd")
    assert first.params["block"] == 8
    assert first.params["keep"] == 3
    assert first.params["shape"] == "square"
    with pytest.raises(TypeError):
        first.params["keep"] = 4  # type: ignore[index]


def test_a_spec_that_failed_to_parse_is_collected_quietly() -> None:
    with pytest.raises(ValueError, match="unknown"):
        tuckfold.CodecSpec("nothing_such")


def test_list_codecs_is_that_of_the_command_line() -> None:
    if not TUCKFOLD.exists():
        pytest.skip(f"no {TUCKFOLD}; run ./dev build")
    printed = json.loads(subprocess.check_output([TUCKFOLD, "codecs", "--json"]))
    mine = [
        {
            "name": codec.name,
            "summary": codec.summary,
            "cuda": codec.cuda,
            "exact": codec.exact,
            "params": [
                {"name": p.name, "summary": p.summary, "default": p.default}
                | (
                    {"words": list(p.words)}
                    if p.words
                    else {"min": p.min, "max": p.max, "step": p.step}
                )
                for p in codec.params
            ],
        }
        for codec in tuckfold.list_codecs()
    ]
    assert mine == printed


def test_version_is_that_of_the_file() -> None:
    assert tuckfold.__version__ == (TUCKFOLD.parents[2] / "VERSION").read_text().strip()
    assert tuckfold.cpu_target()


def test_stages_and_matrices_are_values() -> None:
    spec = tuckfold.CodecSpec("dct_chop(keep=4) | block_quant")
    for value in (spec.stages, tuckfold.matmul_form("dct_chop(keep=4)", 16, 16)):
        same = pickle.loads(pickle.dumps(value))
        assert same == value
        assert hash(same) == hash(value)
        assert copy.deepcopy(value) == value
    assert tuckfold.matmul_form("dct_chop(keep=4)", 16, 16) != tuckfold.matmul_form(
        "dct_chop(keep=3)", 16, 16
    )
    with pytest.raises(TypeError):
        spec.stages[0].params["keep"] = 3


def test_specs_join_and_format() -> None:
    spec = tuckfold.CodecSpec.of("dct_chop", keep=3)
    assert str(spec) == "dct_chop(keep=3)"
    assert spec | tuckfold.CodecSpec("zstd") == tuckfold.CodecSpec("dct_chop(keep=3) | zstd")
    assert spec | "zstd" == tuckfold.CodecSpec("dct_chop(keep=3) | zstd")
    assert "dct_chop(keep=3)" | tuckfold.CodecSpec("zstd") == spec | "zstd"
    assert f"{spec:>20}" == "    dct_chop(keep=3)"
    assert tuckfold.CodecSpec.of("raw") == tuckfold.CodecSpec("raw")
    for wrong in (
        lambda: spec | 3,
        lambda: tuckfold.CodecSpec(None),
        lambda: tuckfold.CodecSpec(3),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_takes_is_whether_layout_has_an_answer() -> None:
    for spec in ("dct_quant(rate=4)", "bits", "pool_index(width=8)", "bounded(abs=0.1)", "raw"):
        for dtype in ("f32", "bf16", "u8", "i64", "bool"):
            for shape in ((), (0,), (7,), (16, 24), (3, 1, 2)):
                try:
                    tuckfold.layout(spec, dtype, shape)
                    expected = True
                except ValueError:
                    expected = False
                assert tuckfold.takes(spec, dtype, shape) is expected
    with pytest.raises(ValueError, match="unknown codec"):
        tuckfold.takes("nonsense", "f32", (3,))
    with pytest.raises(ValueError, match="dtype"):
        tuckfold.takes("raw", "f33", (3,))
