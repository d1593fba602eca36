"""Files for vendors' SDKs run on the CPU under stubs of the calls they make, and keep to what a target has."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import export, images, load, pack, run, ulps_of_largest, unpack

torch = pytest.importorskip("torch")

STUBS = Path(__file__).parent / "stubs"
SHAPE = (4, 3, 64, 64)
TARGETS = ["poptorch", "samba", "cerebras", "groq"]


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUBS))


def run_on(target: str, file, name: str, value: torch.Tensor) -> torch.Tensor:
    """One module of an exported file by the calls that it makes of the SDK."""
    module = file.MODULES[name]()
    if target == "poptorch":
        return file.compiled(module)(value)
    if target == "groq":
        inputs = {next(iter(module.INPUTS)): value}
        return file.compiled(module, inputs)(**inputs)
    if target == "cerebras":
        return file.run(module, [(value,), (value,)])[1]
    with torch.no_grad():
        return module(value)  # main() takes inputs of its own; see below


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("serialize", [1, 2])
def test_what_they_pack_is_the_librarys(target: str, serialize: int, tmp_path: Path) -> None:
    spec = f"dct_chop(keep=5, serialize={serialize})"
    said = export(spec, SHAPE, target, tmp_path / f"{target}_codec.py")
    assert said["device"] is not None
    file = load(tmp_path / f"{target}_codec.py")
    x = images(SHAPE)
    packed = pack(x, spec)
    theirs = run_on(target, file, "Pack", torch.from_numpy(x)).numpy()
    assert ulps_of_largest(theirs - packed, packed) <= 2
    back = run_on(target, file, "Unpack", torch.from_numpy(packed)).numpy()
    assert ulps_of_largest(back - unpack(packed, spec, "f32", SHAPE), packed) <= 2


@pytest.mark.parametrize(
    ("target", "commands"),
    [
        ("poptorch", [[]]),
        ("groq", [[]]),
        ("cerebras", [["Pack"], ["Unpack"]]),
        ("samba", [["compile"], ["compile", "--module", "Unpack"], ["run", "--pef", "a.pef"],
                   ["run", "--pef", "a.pef", "--module", "Unpack"]]),
    ],
)  # fmt: skip
def test_they_run_as_programs(
    target: str,
    commands: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "codec.py"
    export("dct_chop(keep=4)", SHAPE, target, out)
    for command in commands:
        monkeypatch.setattr(sys, "argv", [str(out), *command])
        runpy.run_path(str(out), run_name="__main__")
    said = capsys.readouterr().out
    assert "Pack (4, 3, 32, 32) torch.float32" in said
    assert "Unpack (4, 3, 64, 64) torch.float32" in said


def test_the_ipu_takes_triangles_codes_and_dct_quant(tmp_path: Path) -> None:
    x = images(SHAPE)
    for spec in "dct_chop(keep=5, shape=triangle)", "dct_quant(rate=4)":
        only = ["--only", "unpack"] if "quant" in spec else []
        export(spec, SHAPE, "poptorch", tmp_path / "ipu_codec.py", *only)
        file = load(tmp_path / "ipu_codec.py")
        packed = pack(x, spec)
        back = file.compiled(file.Unpack())(torch.from_numpy(packed)).numpy()
        want = unpack(packed, spec, "f32", SHAPE)
        assert np.abs(back - want).max() <= 1e-5 * np.abs(want).max()
    export("dct_chop(keep=4) | block_quant(bits=8)", SHAPE, "poptorch", tmp_path / "ipu_quant.py")
    file = load(tmp_path / "ipu_quant.py")
    codes, headers = file.compiled(file.Pack())(torch.from_numpy(x))
    back = file.compiled(file.Unpack())(codes, headers).numpy()
    want = unpack(pack(x, "dct_chop(keep=4)"), "dct_chop(keep=4)", "f32", SHAPE)
    assert np.abs(back - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize(
    ("target", "spec", "named"),
    [
        ("samba", "dct_chop(keep=4, shape=triangle)", "operator gather"),
        ("groq", "dct_chop(keep=4, shape=triangle)", "operator gather"),
        ("cerebras", "dct_chop(keep=4, shape=triangle)", "operator gather"),
        ("groq", "dct_chop(keep=4, order=rows) | block_quant(bits=8)", "operator min"),
    ],
)
def test_an_operator_that_is_missing_is_named(
    target: str, spec: str, named: str, tmp_path: Path
) -> None:
    done = run(
        "export",
        "codec",
        spec,
        "--shape",
        "4,3,64,64",
        "--target",
        target,
        "-o",
        tmp_path / "codec.py",
    )
    assert done.returncode == 4 and named in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", [*TARGETS, "torch"])
def test_files_import_nothing_of_ours(target: str, tmp_path: Path) -> None:
    export("dct_chop(keep=4)", SHAPE, target, tmp_path / "codec.py")
    lines = (tmp_path / "codec.py").read_text().splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert imports and not any("tuckfold" in line for line in imports)


def test_operators_of_a_file_are_those_that_were_checked(tmp_path: Path) -> None:
    """What torch.fx sees in the module is what the tool counted and held against the device."""
    names = {"to": "cast", "getitem": "slice", "amax": "max", "amin": "min", "gt": "greater",
             "new_zeros": "fill", "truediv": "div"}  # fmt: skip
    for spec, only in [
        ("dct_chop(keep=4, serialize=2)", None),
        ("dct_chop(keep=3, shape=triangle)", None),
        ("dct_chop(keep=3, coef=f16) | block_quant(bits=8)", None),
        ("dct_quant(rate=3)", "unpack"),
    ]:
        more = [] if only is None else ["--only", only]
        said = export(spec, (2, 32, 48), "torch", tmp_path / "counted.py", *more)
        file = load(tmp_path / "counted.py")
        for name, module in file.MODULES.items():
            graph = torch.fx.symbolic_trace(module()).graph
            calls = [node for node in graph.nodes if node.op.startswith("call")]
            used = {getattr(node.target, "__name__", node.target) for node in calls}
            used = {names.get(word, word) for word in used} - {"check"}
            listed = set(said[name.lower()]["operators"])
            # torch.fx expands an index that is constant while it traces.
            assert used <= listed and listed - used <= {"expand"}, (spec, used, listed)


@pytest.mark.parametrize(
    ("target", "sdk"),
    [("poptorch", "PopTorch"), ("samba", "SambaFlow"), ("cerebras", "cerebras_pytorch"), ("groq", "GroqFlow")],
)  # fmt: skip
def test_a_file_without_its_sdk_names_it(target: str, sdk: str, tmp_path: Path) -> None:
    export("dct_chop(keep=4)", SHAPE, target, tmp_path / "codec.py")
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "codec.py")], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: this file needs ") and sdk in last, last
    assert "--target torch" in last
