"""The Python of documentation pages, for tests that run it."""

import contextlib
import io
import re
import sys
from pathlib import Path

ON_A_GPU = "# on a GPU\n"  # the first line of a snippet that needs one
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[tuple[str, str | None]]:
    """Python code, and the text that directly follows it, if any."""
    found: list[tuple[str, str | None]] = []
    blocks = FENCE.findall(page.read_text())
    for number, (language, code) in enumerate(blocks):
        if language == "python":
            following = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            found.append((code, following[1] if following[0] == "text" else None))
    return found


def needs_gpu(page: Path) -> bool:
    return any(code.startswith(ON_A_GPU) for code, _ in snippets(page))


def run_snippets(page: Path, *, gpu: bool) -> None:
    """In order, with the names that those before it have left; each prints what the page says."""
    names: dict = {"__name__": "__main__"}
    main = sys.modules["__main__"]
    sys.modules["__main__"] = sys.modules[__name__]
    try:
        for code, expected in snippets(page):
            if code.startswith(ON_A_GPU) and not gpu:
                continue
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(code, str(page), "exec"), names)
            if expected is not None:
                assert said.getvalue() == expected
    finally:
        sys.modules["__main__"] = main
