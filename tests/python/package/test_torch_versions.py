"""One wheel for several versions of torch; slow, since each is gigabytes to download.

.venv/bin/python -m pytest -m slow tests/python/package/test_torch_versions.py
"""

import subprocess
import sys
from pathlib import Path

import pytest

from test_wheel import CLEAN, run, wheel  # noqa: F401

VERSIONS = ["2.10.0", "2.15.0"]
USE = """
import torch, tuckfold.torch
print(torch.__version__)
x = torch.rand(4, 3, 32, 32)
for spec in ("dct_chop(keep=4)", "block_quant(bits=8)", "zstd"):
    packed = tuckfold.torch.pack(x, spec)
    assert torch.equal(packed, torch.from_numpy(tuckfold.pack(x.numpy(), spec)))
    torch.library.opcheck(torch.ops.tuckfold.pack.default, (x, spec, 0))
    args = (packed, spec, list(x.shape), x.dtype)
    torch.library.opcheck(torch.ops.tuckfold.unpack.default, args)
for wrong, error in ((bytes(9), tuckfold.CorruptDataError), (bytes(8), None)):
    try:
        tuckfold.torch.unpack(torch.frombuffer(bytearray(wrong), dtype=torch.uint8), "raw", (2,))
        assert error is None
    except ValueError as raised:
        assert type(raised) is error
codec = tuckfold.torch.Codec("dct_chop(keep=4)")
x.requires_grad_()
torch.compile(lambda t: codec(t).sum(), fullgraph=True, backend="aot_eager")(x).backward()
assert x.grad.shape == x.shape
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_serves_another_torch(wheel: Path, tmp_path: Path, version: str) -> None:  # noqa: F811
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", f"torch=={version}", "numpy")
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)
    done = subprocess.run(
        [python, "-c", USE], capture_output=True, text=True, env=CLEAN, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(version)
