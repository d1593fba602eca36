"""What step_memory predicts, against the pages that training steps take."""

import pytest

torch = pytest.importorskip("torch")

from bench.experiments.memory.__main__ import families, measured  # noqa: E402
from tuckfold.torch import nn as tnn  # noqa: E402

FEATURES, SAMPLES = 1024, 4096


def test_predictions_are_within_ten_per_cent_for_every_family() -> None:
    texts = families(FEATURES)
    assert {text.partition("(")[0] for text in texts} == set(tnn.families())
    peaks = measured(texts, FEATURES, SAMPLES, "cpu")
    for text, peak in peaks.items():
        memory = tnn.Structured(text, FEATURES, FEATURES).step_memory(SAMPLES, threads=1)
        assert memory.peak == pytest.approx(peak, rel=0.1), (text, memory)


def test_parts_are_those_of_the_tensors() -> None:
    layer = tnn.Fastfood(784, 10)
    memory = layer.step_memory(50, states=2, threads=1)
    trained = sum(p.nbytes for p in layer.parameters())
    assert memory.gradients == trained and memory.optimizer == 2 * trained
    assert memory.weights == trained + layer.permutation.nbytes
    assert memory.saved == layer.saved_bytes(50) == 50 * 784 * 4
    assert memory.passing == 50 * (784 + 10) * 4
    assert memory.workspace > 0
    fields = (memory.weights, memory.gradients, memory.optimizer, memory.saved, memory.passing)
    assert memory.peak == sum(fields) + memory.workspace


def test_more_threads_and_wider_types_take_more() -> None:
    layer = tnn.Butterfly(1024, 1024)
    one, two = (layer.step_memory(4096, threads=threads).workspace for threads in (1, 2))
    assert one < two <= 2 * one
    assert layer.double().step_memory(256).saved == 2 * tnn.Butterfly(1024, 1024).saved_bytes(256)
    narrow = tnn.Butterfly(1024, 1024, dtype=torch.bfloat16).step_memory(256)
    assert narrow.weights == 2 * (20480 + 1024)


def test_wrong_numbers_are_refused() -> None:
    layer = tnn.LowRank(64, 64)
    with pytest.raises(ValueError, match="samples must be 0"):
        layer.step_memory(-1)
    with pytest.raises(ValueError, match=r"states must be 0\.\.8"):
        layer.step_memory(8, states=9)
    with pytest.raises(ValueError, match="no kernel of the CPU takes"):
        tnn.Butterfly(64, 64, dtype=torch.complex64).step_memory(8)
    assert layer.step_memory(0).workspace == 0
