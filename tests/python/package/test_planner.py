"""The solver for storage, from Python."""

import pytest

from tuckfold._planner import plan_storage

STEP = {
    "base": [10, 10, 10],
    "items": [
        {
            "name": "relu",
            "choices": [
                {"how": "keep", "spans": [[0, 2, 96]]},
                {"kind": "exact", "how": "1 bit", "spans": [[0, 2, 3]], "seconds": 1e-3},
                {
                    "kind": "codec",
                    "how": "block_quant(bits=4)",
                    "spans": [[0, 2, 12]],
                    "noise": 1.0,
                },
            ],
        }
    ],
}


def test_the_cheapest_choice_within_the_budget() -> None:
    assert plan_storage({**STEP, "budget": 106})["choice"] == [0]
    plan = plan_storage({**STEP, "budget": 105})
    assert plan["fits"] and plan["choice"] == [1] and plan["peak"] == 13


def test_the_smallest_peak_within_limits() -> None:
    assert plan_storage({**STEP, "noise": 0})["choice"] == [1]
    assert plan_storage({**STEP, "noise": 0, "seconds": 1e-4})["choice"] == [0]


def test_an_impossible_budget_says_why() -> None:
    plan = plan_storage({**STEP, "budget": 12})
    assert not plan["fits"]
    assert plan["why"].startswith("the smallest peak found is 13 bytes, at position 0: 10 bytes of")


def test_a_wrong_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="a kind must be one of keep, exact, recompute"):
        plan_storage({"base": [1], "items": [{"choices": [{"kind": "zip", "spans": []}]}]})
