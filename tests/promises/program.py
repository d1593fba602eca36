"""The command line for tests of what it leaves on the disk: build/release/tuckfold, or $TUCKFOLD."""

import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("TUCKFOLD", ROOT / "build/release/tuckfold")).resolve()


class Tool:
    """The program, run in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def command(self, *args) -> list[str]:
        return [str(PROGRAM), *map(str, args)]

    def run(self, *args, exit: int | None = 0, **kwargs) -> subprocess.CompletedProcess:
        """Runs it, and holds its exit status against `exit` unless that is None."""
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            capture_output="stdout" not in kwargs,
            text=kwargs.pop("text", True),
            timeout=kwargs.pop("timeout", 60),
            check=False,
            **kwargs,
        )
        if exit is not None:
            assert done.returncode == exit, (args, done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *args, **kwargs) -> subprocess.Popen:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.command(*args), cwd=self.folder, **kwargs)

    def unpacked(self, file: str) -> np.ndarray:
        """All samples of a file with one array, read from what `unpack` writes."""
        out = self.folder / "read_back.npy"
        self.run("unpack", file, "-o", out, "-f")
        values = np.load(out)
        out.unlink()
        return values

    def files(self) -> set[str]:
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()}


def ramp(samples: int, start: int = 0, shape: tuple[int, ...] = (4, 4)) -> np.ndarray:
    """Values that tell which sample and which version they belong to."""
    size = int(np.prod(shape))
    return (np.arange(samples * size, dtype=np.int64) + start).reshape(samples, *shape)
