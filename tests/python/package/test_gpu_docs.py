"""The snippets of documentation pages that need a GPU."""

from pathlib import Path

import gpu
from snippets import needs_gpu, run_snippets

pytestmark = gpu.marks
# In the repository, or beside the tests where they were copied to.
PAGES = [
    page
    for root in Path(__file__).parents[1:4]
    for page in sorted(root.glob("docs/tasks/*.md"))
    if needs_gpu(page)
]


@gpu.each(*[(page.name,) for page in PAGES])
def test_snippets_on_a_gpu_run(name: str) -> None:
    if not gpu.ON_GPU:
        gpu.skip("the CPU is no GPU")
    run_snippets(next(page for page in PAGES if page.name == name), gpu=True)
