"""Pictures in the documentation show the bytes that pack makes."""

import subprocess
import sys
from pathlib import Path

import tuckfold

ROOT = Path(__file__).parents[3]


def test_the_drawings_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs/generate/pictures.py", tmp_path], check=True)
    drawn = sorted(tmp_path.iterdir())
    assert drawn
    for picture in drawn:
        committed = ROOT / "docs/images" / picture.name
        assert picture.read_text() == committed.read_text(), "run docs/generate/pictures.py"


def test_every_codec_has_a_page_with_a_picture() -> None:
    pages = [page for page in (ROOT / "docs/codecs").iterdir() if page.suffix == ".md"]
    assert len(pages) == len(tuckfold.list_codecs()) - 1  # raw needs none
    for page in pages:
        (line,) = [line for line in page.read_text().splitlines() if line.startswith("![")]
        image = line.rsplit("(", 1)[1].rstrip(")")
        assert (page.parent / image).exists(), page
