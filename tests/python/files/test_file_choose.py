"""choose and psnr."""

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tuckfold

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "build/release/tuckfold"
RNG = np.random.default_rng(5)
SMOOTH = np.cumsum(np.cumsum(RNG.standard_normal((4, 96, 96)), 1), 2).astype(np.float32)
NOISE = RNG.random((64, 32, 32), dtype=np.float32)


@pytest.mark.parametrize("name, target", [("smooth", {"psnr": 50}), ("noise", {"psnr": 40}), ("smooth", {"ratio": 8}),
                                          ("noise", {"ratio": 3}), ("smooth", {"max_error": 0.5})])  # fmt: skip
def test_the_choice_is_that_of_the_command_line(tmp_path: Path, name: str, target: dict) -> None:
    if not TOOL.exists():
        pytest.skip("no build/release/tuckfold")
    array = {"smooth": SMOOTH, "noise": NOISE}[name]
    np.save(tmp_path / "a.npy", array)
    ((kind, value),) = target.items()
    option = {"psnr": "--target-psnr", "ratio": "--target-ratio", "max_error": "--max-error"}[kind]
    command = [TOOL, "choose", tmp_path / "a.npy", option, str(value), "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    tried = (said[0] if isinstance(said, list) else said)["tried"]
    choice = tuckfold.choose(array, **target)
    assert str(choice.codec) == tried[0]["codec"]
    assert choice.ratio == pytest.approx(tried[0]["ratio"])
    assert [str(t.codec) for t in choice.tried] == [t["codec"] for t in tried]


def test_a_choice_reaches_its_target() -> None:
    choice = tuckfold.choose(SMOOTH, psnr=45)
    back = tuckfold.loads(tuckfold.dumps(SMOOTH, choice.codec))
    assert tuckfold.psnr(SMOOTH, back) == pytest.approx(choice.psnr) and choice.psnr >= 45
    assert choice.tried[0].reaches and choice.tried[0].codec == choice.codec
    assert tuckfold.choose(SMOOTH, max_error=0).max_error == 0
    seen: list[str] = []
    tuckfold.choose(NOISE, ratio=2, progress=seen.append)
    assert len(seen) > 3


def test_a_file_is_chosen_for_too(tmp_path: Path) -> None:
    tuckfold.save(tmp_path / "a.tuck", x=NOISE)
    with tuckfold.open(tmp_path / "a.tuck") as f:
        assert tuckfold.choose(f["x"], psnr=40).codec == tuckfold.choose(NOISE, psnr=40).codec


def test_large_arrays_are_tried_in_part() -> None:
    from tuckfold._choose import trial_part

    for shape in [
        (100, 8, 8),
        (3, 4, 40, 40),
        (1, 1000, 50),
        (1, 2, 3, 200, 10),
        (5000,),
        (2, 3000),
    ]:
        part = trial_part(np.zeros(shape, np.float32), 1000)
        assert 0 < part.size <= 1600 and part.flags.c_contiguous, shape
    whole = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(trial_part(whole, 100), whole)


@pytest.mark.parametrize("wrong", [{}, {"psnr": 40, "ratio": 2}, {"ratio": 0}, {"max_error": -1}, {"psnr": math.nan},
                                   {"ratio": 1e9}])  # fmt: skip
def test_targets_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"\[choose\]"):
        tuckfold.choose(NOISE, **wrong)
    with pytest.raises(ValueError, match="values"):
        tuckfold.choose(np.zeros((0, 3)), psnr=3)


def test_psnr() -> None:
    a = np.array([0.0, 1.0, 2.0, np.nan])
    b = np.array([0.0, 1.5, 2.0, np.nan])
    assert tuckfold.psnr(a, b) == pytest.approx(20 * math.log10(2) - 10 * math.log10(0.25 / 3))
    assert tuckfold.psnr(a, a) == math.inf
    assert math.isnan(tuckfold.psnr(a, np.array([0, np.nan, 2, 1])))
    assert tuckfold.psnr(a.astype(np.float32), b) == pytest.approx(tuckfold.psnr(a, b))
    assert tuckfold.psnr(NOISE[:, ::2].T, NOISE[:, ::2].T) == math.inf
    reference = 20 * math.log10(np.ptp(NOISE)) - 10 * math.log10(
        np.mean((NOISE[::-1] - NOISE).astype(float) ** 2)
    )
    assert tuckfold.psnr(NOISE, NOISE[::-1]) == pytest.approx(reference)
    with pytest.raises(ValueError, match="shapes"):
        tuckfold.psnr(a, a[:2])
