"""Callbacks for Lightning and for transformers' Trainer, where these are installed: real trainings, some steps each."""

import copy
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.slow
STEPS = 4


def net() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(4):
        layers += [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 32 * 32, 10))


class Lightning:
    """A module whose training_step calls it, or a part of it."""

    def __init__(self) -> None:
        self.lightning = pytest.importorskip("lightning", reason="lightning is missing")

    def module(self, part: bool = False) -> nn.Module:
        class Module(self.lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = net()
                self.seen: list[int] = []

            def forward(self, x):
                return self.net(x)

            def training_step(self, batch, index):
                x, y = batch
                return F.cross_entropy(self.net(x) if part else self(x), y)

            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters(), 1e-3)

        return Module()

    def fit(self, module: nn.Module, folder: Path, *callbacks) -> Path:
        torch.manual_seed(1)
        x, y = torch.rand(16 * STEPS, 3, 32, 32), torch.arange(16 * STEPS) % 10
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16)
        trainer = self.lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=list(callbacks),
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
        trainer.save_checkpoint(folder / "last.ckpt")
        return folder / "last.ckpt"


@pytest.fixture
def lightning() -> Lightning:
    return Lightning()


def same_states(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def spy(callback, seen: list):
    """The callback, which notes its handle at the end of each step."""
    ended = callback._wrapping.step_ended

    def step_ended() -> None:
        seen.append(callback.handle)
        ended()

    callback._wrapping.step_ended = step_ended
    return callback


def test_lightning_trains_the_same_weights(lightning: Lightning, tmp_path: Path) -> None:
    from tuckfold.lightning import Activations

    plain = lightning.module()
    wrapped = copy.deepcopy(plain)
    seen: list = []
    callback = spy(Activations(), seen)
    a = lightning.fit(plain, tmp_path / "a")
    b = lightning.fit(wrapped, tmp_path / "b", callback)
    assert len(seen) == STEPS and all(handle is not None for handle in seen)
    assert seen[0].problems == [] and callback.handle is None
    assert same_states(plain.state_dict(), wrapped.state_dict())
    assert type(wrapped) is type(plain) and not wrapped._forward_pre_hooks
    a, b = (torch.load(path, weights_only=False) for path in (a, b))
    assert same_states(a["state_dict"], b["state_dict"])
    assert a.keys() == b.keys()
    assert "tuckfold" not in str(b["callbacks"]) and a.get("hyper_parameters") == b.get(
        "hyper_parameters"
    )


def test_lightning_keeps_a_budget_with_the_optimizers_state(
    lightning: Lightning, tmp_path: Path
) -> None:
    from tuckfold.lightning import Activations

    module = lightning.module()
    budget = 14 << 20
    seen: list = []
    callback = spy(Activations(budget=budget), seen)
    lightning.fit(module, tmp_path, callback)
    fit = seen[0].goal.fitted
    assert fit is not None and fit.peak.total <= budget
    own = sum(p.nbytes for p in module.parameters())
    assert fit.peak.optimizer >= 2 * own  # Adam's, before its first step
    assert all(handle.goal.fitted is fit for handle in seen)


def test_lightning_says_when_nothing_is_called(lightning: Lightning, tmp_path: Path) -> None:
    from tuckfold.lightning import Activations

    with pytest.warns(UserWarning, match="did not call the model itself.*module="):
        lightning.fit(lightning.module(part=True), tmp_path, Activations())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*did not call.*")
        lightning.fit(lightning.module(part=True), tmp_path, Activations(module="net"))
    with pytest.raises(ValueError, match=r"module must be the path of a part.*has net; got 'nets'"):
        lightning.fit(lightning.module(), tmp_path, Activations(module="nets"))


def test_lightning_leaves_the_model_after_an_error(lightning: Lightning, tmp_path: Path) -> None:
    from tuckfold.lightning import Activations

    module = lightning.module()
    callback = Activations(budget="10KiB")
    with pytest.raises(ValueError, match="cannot be kept"):
        lightning.fit(module, tmp_path, callback)
    assert callback.handle is None and not module._forward_pre_hooks


class Texts(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, i: int) -> dict:
        tokens = torch.randint(0, 256, (64,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


def trained(folder: Path, *callbacks) -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is missing")
    pytest.importorskip("accelerate", reason="accelerate is missing")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        save_steps=STEPS,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        seed=3,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=Texts(), callbacks=[*callbacks])
    trainer.train()
    return model


def test_transformers_writes_the_same_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is missing")
    from tuckfold.transformers import Activations

    seen: list = []
    callback = spy(Activations(least=4096), seen)
    plain, wrapped = trained(tmp_path / "a"), trained(tmp_path / "b", callback)
    assert len(seen) == STEPS and seen[0].problems == []
    assert callback.handle is None and type(wrapped) is type(plain)
    assert same_states(plain.state_dict(), wrapped.state_dict())
    folders = [tmp_path / name / f"checkpoint-{STEPS}" for name in "ab"]
    for name in ("model.safetensors", "config.json"):
        a, b = ((folder / name).read_bytes() for folder in folders)
        assert a == b, name
    assert {p.name for p in folders[0].iterdir()} == {p.name for p in folders[1].iterdir()}


def test_transformers_keeps_a_budget(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is missing")
    from tuckfold.transformers import Activations

    seen: list = []
    trained(tmp_path, spy(Activations(noise="1%", least=4096), seen))
    fit = seen[0].goal.fitted
    assert fit is not None and 0 < fit.noise <= 0.01 and fit.peak.optimizer > 0
