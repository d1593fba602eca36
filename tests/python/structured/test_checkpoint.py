"""tuckfold factorize: a checkpoint in, a smaller one out, loaded again."""

import json
import struct
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tuckfold  # noqa: E402
import tuckfold.torch as tt  # noqa: E402
from tuckfold.torch._structured import _file  # noqa: E402
from tuckfold.torch._structured.__main__ import main  # noqa: E402


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(96, 80), torch.nn.ReLU(), torch.nn.Linear(80, 10))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    _file.write(path, net().state_dict() | {"steps": torch.tensor(7)}, {"format": "pt"})
    return path


def test_files_come_back(checkpoint: Path) -> None:
    tensors, metadata = _file.read(checkpoint)
    assert metadata == {"format": "pt"}
    assert tensors["steps"] == 7
    assert all(torch.equal(tensors[k], v) for k, v in net().state_dict().items())


def test_a_checkpoint_is_factorized_and_loaded(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    tensors = dict(net().state_dict())
    _file.write(checkpoint, tensors, {})
    small = tmp_path / "small.safetensors"
    assert main([str(checkpoint), "--budget", "40%", "-o", str(small), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weights"] <= 0.4 * report["weights_before"]
    assert [row["name"] for row in report["layers"]] == ["0"]  # the other has few weights
    model = net(seed=1)
    assert tt.load_factorized(model, small) == ["0"]
    assert small.stat().st_size < checkpoint.stat().st_size
    text = report["layers"][0]["text"]
    want = tt.project(tensors["0.weight"], text).to_dense().float()
    torch.testing.assert_close(model[0].to_dense(), want, rtol=1e-4, atol=1e-5)
    assert torch.equal(model[2].weight, tensors["2.weight"])
    with pytest.raises(ValueError, match="which has no matrix here"):
        tt.load_factorized(torch.nn.Sequential(torch.nn.ReLU()), small)
    assert main([str(small)]) == 2  # factorized already


def test_embeddings_get_the_product(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"e": torch.nn.Embedding(1000, 64), "a": torch.nn.Linear(64, 64)})
    path, small = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    _file.write(path, dict(model.state_dict()), {})
    assert main([str(path), "--budget", "50%", "--families", "low_rank", "-o", str(small)]) == 0
    tensors, _ = _file.read(small)
    names = tt.load_factorized(model, small)
    assert "e" not in names and type(model["e"]) is torch.nn.Embedding
    product = tensors["e.second"] @ tensors["e.first"]
    torch.testing.assert_close(model["e"].weight, product, rtol=1e-4, atol=1e-5)
    model["a"](model["e"](torch.tensor([3, 5]))).sum().backward()
    assert model["e"].weight.grad is not None


def test_tied_layers_stay_tied(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {"e": torch.nn.Embedding(100, 64), "head": torch.nn.Linear(64, 100)}
    )
    model["head"].weight = model["e"].weight
    path, small = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    _file.write(path, {k: v.clone() for k, v in model.state_dict().items()}, {})
    assert main([str(path), "--budget", "50%", "--families", "low_rank", "-o", str(small)]) == 0
    assert tt.load_factorized(model, small) == []
    assert model["head"].weight is model["e"].weight
    tensors, _ = _file.read(small)
    product = tensors["head.second"] @ tensors["head.first"]
    torch.testing.assert_close(model["head"].weight, product, rtol=1e-4, atol=1e-5)


def test_a_model_that_does_not_fit_stays_as_it_was(checkpoint: Path, tmp_path: Path) -> None:
    _file.write(checkpoint, dict(net().state_dict()), {})
    small = tmp_path / "small.safetensors"
    assert main([str(checkpoint), "--budget", "40%", "-o", str(small)]) == 0
    model = torch.nn.Sequential(*net(), torch.nn.Linear(10, 10))
    first = model[0]
    with pytest.raises(ValueError, match="Missing key"):
        tt.load_factorized(model, small)
    assert model[0] is first


def test_layers_are_skipped_by_name(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(0)
    weights = {f"{name}.weight": torch.randn(64, 64) for name in ("enc.a", "enc.b", "head")}
    path, small = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    _file.write(path, weights, {})
    words = ["--budget", "40%", "--families", "low_rank", "--skip", "enc.*", "-o", str(small)]
    assert main([str(path), *words, "--json"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert [row["name"] for row in report["layers"]] == ["head"] and said.err == ""
    assert report["left"] == ["enc.a", "enc.b"]
    tensors, _ = _file.read(small)
    assert torch.equal(tensors["enc.a.weight"], weights["enc.a.weight"])


def test_each_layer_is_said_before_it_is_tried() -> None:
    seen: list[str] = []
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    tt.factorize(model, "40%", families=["low_rank"], progress=seen.append)
    assert seen == ["0", "2"]


def test_files_that_exist_are_not_replaced(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    before, other = checkpoint.read_bytes(), tmp_path / "other.safetensors"
    (tmp_path / "link.safetensors").symlink_to(checkpoint)
    for out in (checkpoint, tmp_path / "link.safetensors"):
        for force in ([], ["--force"]):
            assert main([str(checkpoint), "--budget", "40%", "-o", str(out), *force]) == 2
            assert "is the input" in capsys.readouterr().err
    other.write_text("precious")
    assert main([str(checkpoint), "--budget", "40%", "-o", str(other)]) == 2
    assert "add --force" in capsys.readouterr().err and other.read_text() == "precious"
    assert main([str(checkpoint), "--budget", "40%", "-o", str(other), "-f"]) == 0
    assert checkpoint.read_bytes() == before and other.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--budget", "0.1%"], 2, "the budget must be at least"),
        (["--budget", "much"], 2, "budget must be like 25%"),
        (["--families", "wavelet"], 2, "families are low_rank"),
        (["--least", "1000000"], 2, "no matrices NAME.weight"),
        (["--skip", "0"], 2, "that are not skipped"),
        (["--skip", "encoder.*"], 2, "--skip encoder.* names no matrix"),
    ],
)
def test_refusals(
    checkpoint: Path, arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture
) -> None:
    assert main([str(checkpoint), *arguments]) == status
    assert said in capsys.readouterr().err
    assert sorted(p.name for p in checkpoint.parent.iterdir()) == ["model.safetensors"]


def test_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path / "none.safetensors")]) == 5
    assert "none.safetensors" in capsys.readouterr().err


def entry(**changes: object) -> bytes:
    row = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes
    text = json.dumps({"a": row}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 3) + b"{a}",
        entry(dtype="X9"),
        entry(shape=[3]),
        entry(shape=[-2]),
        entry(shape=["x"]),
        entry(data_offsets=[0, 16]),
        entry(data_offsets=[8, 0]),
        entry(data_offsets=None),
    ],
)
def test_corrupt_files(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(tuckfold.CorruptDataError, match="is no safetensors file"):
        _file.read(path)
    assert main([str(path)]) == 3
    capsys.readouterr()
