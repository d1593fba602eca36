"""Every sentence that promises something is held by a test that exists."""

import promise_words as words
import pytest
from program import PROGRAM
from promises import PROMISES


def unheld(found: dict[str, list[str]]) -> list[str]:
    """Sentences without a row."""
    return [
        f'    ("{where}", "{sentence}", ""),'
        for where, sentences in found.items()
        for sentence in sentences
        if not any(page == where and text in sentence for page, text, _ in PROMISES)
    ]


def test_every_promise_of_the_documents_has_a_row():
    missing = unheld(words.in_documents())
    assert not missing, "add to promises.py, each with its test:\n" + "\n".join(missing)


def test_every_promise_of_the_help_has_a_row():
    if not PROGRAM.exists():
        pytest.skip(f"no {PROGRAM}; run ./dev build")
    missing = unheld(words.in_help())
    assert not missing, "add to promises.py, each with its test:\n" + "\n".join(missing)


def test_every_row_has_a_test_that_exists():
    missing = [
        test for *_, test in PROMISES if not test.startswith("- ") and not words.has_test(test)
    ]
    assert not missing


def test_the_walk_would_see_a_new_promise():
    new = words.promising("Fast.\nNothing is lost,\never. A row | every value within 3 | x\n")
    assert new == ["Nothing is lost, ever.", "A row | every value within 3 | x"]
    assert unheld({"docs/new.md": new}) == [
        f'    ("docs/new.md", "{sentence}", ""),' for sentence in new
    ]
    assert not words.has_test("tests/promises/test_promises.py::test_that_is_not_there")
    assert not words.has_test("src/codec/contract_test.cc::Contract.IsNotThere")
    assert not words.has_test("tests/cli/cases/is_not_there.sh")
