"""Exported PyTorch files: stand-alone, compiled by torch.compile, on the CPU and on CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import export, images, load, pack

torch = pytest.importorskip("torch")

SPECS = [
    "dct_chop(keep=4)",
    "dct_chop(keep=4, serialize=2)",
    "dct_chop(keep=3, shape=triangle)",
    "dct_chop(keep=4) | block_quant(bits=8)",
]
SHAPE = (2, 3, 32, 48)


def test_files_run_alone(tmp_path: Path) -> None:
    """In a folder of their own, by a Python that sees neither our package nor its environment."""
    for number, spec in enumerate(SPECS):
        export(spec, SHAPE, "torch", tmp_path / f"codec_{number}.py")
    program = (
        "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, run_name='__main__')"
    )
    files = [path.name for path in sorted(tmp_path.iterdir())]
    done = subprocess.run([sys.executable, "-I", "-c", program, *files], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Unpack (2, 3, 32, 48) torch.float32") == len(SPECS)


def round_trip(file, module, device: str, example=None) -> None:
    """A module's outputs compiled in one graph are those of the module as it is."""
    torch.compiler.reset()
    plain = module().to(device)
    compiled = torch.compile(plain, fullgraph=True, backend=BACKEND)
    inputs = {key: value.to(device) for key, value in file.example(example or module).items()}
    with torch.no_grad():
        want, ours = plain(**inputs), compiled(**inputs)
    for a, b in zip(
        want if isinstance(want, tuple) else (want,),
        ours if isinstance(ours, tuple) else (ours,),
        strict=True,
    ):
        if a.dtype == torch.uint8:  # sums are rounded in another order, so a code may be the next
            assert (a.int() - b.int()).abs().max() <= 1
        else:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(a.abs().max()))


BACKEND = "aot_eager"


@pytest.mark.parametrize("spec", SPECS)
def test_files_compile_without_a_break(spec: str, tmp_path: Path) -> None:
    export(spec, SHAPE, "torch", tmp_path / "compiled.py")
    file = load(tmp_path / "compiled.py")
    for module in file.MODULES.values():
        round_trip(file, module, "cpu")


def test_the_decoder_of_dct_quant_compiles_without_a_break(tmp_path: Path) -> None:
    spec, shape = "dct_quant(rate=2)", (2, 16, 24)
    export(spec, shape, "torch", tmp_path / "decoder.py", "--only", "unpack")
    module = load(tmp_path / "decoder.py").Unpack()
    packed = torch.from_numpy(pack(images(shape), spec))
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True, backend=BACKEND)(packed)
        torch.testing.assert_close(compiled, module(packed))


def test_the_default_compiler_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "BACKEND", "inductor")
    export("dct_chop(keep=4)", SHAPE, "torch", tmp_path / "inductor.py")
    file = load(tmp_path / "inductor.py")
    round_trip(file, file.Pack, "cpu")


def test_any_batch_goes_through_a_file_without_reshapes(tmp_path: Path) -> None:
    export("dct_chop(keep=4)", SHAPE, "torch", tmp_path / "batch.py")
    file = load(tmp_path / "batch.py")
    x = torch.from_numpy(images((7, 5, 32, 48)))
    assert file.Unpack()(file.Pack()(x)).shape == x.shape


def test_gradients_flow(tmp_path: Path) -> None:
    """The products are linear: what comes back is the projection onto the kept frequencies."""
    export("dct_chop(keep=4)", SHAPE, "torch", tmp_path / "gradient.py")
    file = load(tmp_path / "gradient.py")
    x = torch.from_numpy(images(SHAPE)).requires_grad_()
    back = file.Unpack()(file.Pack()(x))
    back.backward(back.detach())
    torch.testing.assert_close(x.grad, back.detach(), rtol=1e-4, atol=1e-4)


def test_packed_values_of_a_constant_are_its_mean(tmp_path: Path) -> None:
    export("dct_chop(keep=2)", (1, 16, 16), "torch", tmp_path / "constant.py")
    packed = load(tmp_path / "constant.py").Pack()(torch.full((1, 16, 16), 3.0))
    assert torch.allclose(packed[0, ::2, ::2], torch.tensor(24.0), atol=1e-5)
    assert packed[0, 1::2].abs().max() < 1e-5


@pytest.mark.parametrize("target", ["torch", "poptorch", "groq", "samba", "cerebras"])
@pytest.mark.parametrize("serialize", [1, 2])
def test_another_resolution_is_refused(
    target: str, serialize: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles are slices: of a larger tensor they would take a part."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stubs"))
    spec, shape = f"dct_chop(keep=4, serialize={serialize})", (2, 3, 64, 64)
    export(spec, shape, target, tmp_path / "sides.py")
    file = load(tmp_path / "sides.py")
    assert file.Pack()(torch.rand(5, 64, 64)).shape == (5, 32, 32)
    for module, right, wrong in [
        (file.Pack(), "(64, 64)", (2, 3, 128, 128)),
        (file.Pack(), "(64, 64)", (2, 3, 64, 72)),
        (file.Pack(), "(64, 64)", (64,)),
        (file.Unpack(), "(32, 32)", (2, 3, 40, 40)),
        (file.Unpack(), "(32, 32)", (2, 3, 64, 32)),
    ]:
        with pytest.raises(ValueError, match="must end in") as error:
            module(torch.rand(wrong))
        assert right in str(error.value) and str(wrong) in str(error.value)


@pytest.mark.parametrize(
    "spec",
    ["dct_chop(keep=4, shape=triangle)", "dct_chop(keep=4, order=planes)", "block_quant(bits=8)"],
)
def test_files_with_reshapes_take_one_shape(spec: str, tmp_path: Path) -> None:
    """A reshape takes whatever has as many values, and would mix them."""
    export(spec, SHAPE, "torch", tmp_path / "shapes.py")
    file = load(tmp_path / "shapes.py")
    for module in file.MODULES.values():
        inputs = file.example(module)
        module()(**inputs)
        for name, value in inputs.items():
            with pytest.raises(ValueError, match=f"the shape of {name} must be"):
                module()(**{**inputs, name: value.movedim(0, -1).reshape(-1, 2, 1)})


@pytest.mark.parametrize("spec", [*SPECS, "dct_chop(keep=4, coef=bf16)", "block_quant(bits=8)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(tmp_path: Path, spec: str, dtype: torch.dtype) -> None:
    """It would round the products to that dtype, and give outputs of it."""
    export(spec, SHAPE, "torch", tmp_path / "autocast.py")
    file = load(tmp_path / "autocast.py")
    for module in file.MODULES.values():
        inputs, plain = file.example(module), module()
        torch.compiler.reset()
        compiled = torch.compile(plain, fullgraph=True, backend=BACKEND)
        with torch.no_grad():
            want = plain(**inputs)
            with torch.autocast("cpu", dtype=dtype):
                assert torch.matmul(torch.ones(2, 2), torch.ones(2, 2)).dtype == dtype
                outputs = plain(**inputs), compiled(**inputs)
        for ours in outputs:
            assert_all_equal(want, ours)


def assert_all_equal(want, ours) -> None:
    pairs = zip(want, ours, strict=True) if isinstance(want, tuple) else [(want, ours)]
    for a, b in pairs:
        assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("target", ["poptorch", "groq", "samba", "cerebras"])
def test_files_for_sdks_refuse_autocast(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stubs"))
    export("dct_chop(keep=4)", SHAPE, target, tmp_path / "refused.py")
    file = load(tmp_path / "refused.py")
    for module in file.MODULES.values():
        inputs = file.example(module)
        module()(**inputs)
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            pytest.raises(ValueError, match="leave it for this module"),
        ):
            module()(**inputs)


def test_files_run_on_the_meta_device_and_export(tmp_path: Path) -> None:
    export("dct_chop(keep=4)", SHAPE, "torch", tmp_path / "meta.py")
    file = load(tmp_path / "meta.py")
    assert file.Pack().to("meta")(torch.empty(SHAPE, device="meta")).shape == (2, 3, 16, 24)
    x = torch.from_numpy(images(SHAPE))
    program = torch.export.export(file.Pack(), (x,))
    calls = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert calls == {"aten.matmul.default"}
    assert torch.equal(program.module()(x), file.Pack()(x))


@pytest.mark.parametrize("spec", ["dct_chop(keep=4)", "block_quant(bits=8)"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_dtype_is_refused(tmp_path: Path, spec: str, dtype: torch.dtype) -> None:
    export(spec, (2, 3, 16, 16), "torch", tmp_path / "codec.py")
    file = load(tmp_path / "codec.py")
    with pytest.raises(ValueError, match="must be torch.float32, got torch"):
        file.Pack()(torch.rand(2, 3, 16, 16).to(dtype))


def assert_casts_change_nothing(file) -> None:
    casts = [
        lambda m: m.half(),
        lambda m: m.bfloat16().float(),
        lambda m: m.double(),
        lambda m: m.to(torch.float16),
        lambda m: m.to("meta").to_empty(device="cpu"),
        lambda m: m.to_empty(device="cpu"),
    ]
    for module in file.MODULES.values():
        inputs = file.example(module)
        with torch.no_grad():
            want = module()(**inputs)
            for cast in casts:
                model = cast(torch.nn.Sequential(module()))
                assert_all_equal(want, model[0](**inputs))
            with torch.device("meta"):
                made = module()
            assert_all_equal(want, made.to_empty(device="cpu")(**inputs))
            for dtype in (torch.float64, torch.float16):
                torch.set_default_dtype(dtype)
                try:
                    ours = module()(**inputs)
                finally:
                    torch.set_default_dtype(torch.float32)
                assert_all_equal(want, ours)


@pytest.mark.parametrize("spec", [*SPECS, "dct_chop(keep=4, coef=f16)", "block_quant(bits=8)"])
def test_casts_of_the_model_leave_constants_as_they_are(spec: str, tmp_path: Path) -> None:
    export(spec, SHAPE, "torch", tmp_path / "casts.py")
    assert_casts_change_nothing(load(tmp_path / "casts.py"))


@pytest.mark.parametrize("target", ["poptorch", "groq", "samba", "cerebras"])
def test_constants_of_files_for_sdks_too(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stubs"))
    export("dct_chop(keep=4)", SHAPE, target, tmp_path / "casts.py")
    assert_casts_change_nothing(load(tmp_path / "casts.py"))


def test_a_module_that_was_cast_compiles_without_a_break(tmp_path: Path) -> None:
    export("dct_chop(keep=4)", SHAPE, "torch", tmp_path / "cast.py")
    file = load(tmp_path / "cast.py")
    round_trip(file, lambda: file.Pack().half(), "cpu", file.Pack)
