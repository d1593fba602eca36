"""Image sets for the demo and the benchmarks: real, u8, and none with the 8x8 grid that JPEG leaves.

JPEG has already removed 8x8 DCT coefficients on the grid that dct_chop uses, which would flatter
it. Of scikit-image's pictures that rules out chelsea, coins, grass, ihc and page, though all are
PNG files. Packages supply two kinds of picture on any machine; TUCKFOLD_DATA may add more.
"""

import gzip
import importlib.util
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared/data"
CROP = 256
ZOOM = 64  # side of the part that is shown enlarged


class ImagesError(Exception):
    """Why images cannot be read; the text says what to do."""


@dataclass(frozen=True)
class ImageSet:
    name: str  # of its file
    title: str
    source: str  # a sentence
    images: np.ndarray  # u8, N x H x W or N x 3 x H x W
    shown: tuple[int, ...]  # which images the report shows
    zoom: tuple[int, int] | None = None  # top, left of the enlarged part; None: all is enlarged

    @property
    def shape_text(self) -> str:
        return " × ".join(map(str, self.images.shape))


def crops(picture: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """rows x cols overlapping squares, spread evenly over an H x W or H x W x 3 picture."""
    tops = np.linspace(0, picture.shape[0] - CROP, rows).round().astype(int)
    lefts = np.linspace(0, picture.shape[1] - CROP, cols).round().astype(int)
    squares = [picture[y : y + CROP, x : x + CROP] for y in tops for x in lefts]
    stack = np.stack(squares)
    return stack if stack.ndim == 3 else stack.transpose(0, 3, 1, 2)


def scikit_image_folder() -> Path:
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise ImagesError(
            "scikit-image is not installed; run ./dev demo, which installs it in .venv"
        )
    return Path(spec.origin).parent / "data"


def read_picture(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as picture:
            return np.asarray(picture)
    except OSError as error:
        raise ImagesError(f"cannot read the picture {path}: {error}") from error


def photographs(quick: bool) -> ImageSet:
    grids = {"astronaut.png": (4, 5), "coffee.png": (2, 7), "motorcycle_left.png": (2, 7)}
    if quick:
        grids = {"astronaut.png": (1, 5)}
    folder = scikit_image_folder()
    stacks = [crops(read_picture(folder / name), *grid) for name, grid in grids.items()]
    images = np.concatenate(stacks)
    names = ", ".join(name.removesuffix(".png").removesuffix("_left") for name in grids)
    return ImageSet(
        name="photographs",
        title="Photographs",
        source=f"{len(images)} overlapping colour crops of scikit-image’s {names}.",
        images=images,
        shown=(0,) if quick else (43,),
        zoom=(66, 168),
    )


def astronaut(images: ImageSet) -> ImageSet:
    """The picture that the report opens with, one of the photographs."""
    return replace(images, name="astronaut", title="Astronaut", shown=(2,), zoom=(78, 46))


def camera() -> ImageSet:
    return ImageSet(
        name="camera",
        title="Camera",
        source="144 overlapping crops of scikit-image’s grey photograph camera.",
        images=crops(read_picture(scikit_image_folder() / "camera.png"), 12, 12),
        shown=(39,),
        zoom=(62, 168),
    )


def fashion_mnist() -> ImageSet | None:
    if not FASHION_MNIST.exists():
        return None
    with gzip.open(FASHION_MNIST) as file:
        magic, count, height, width = np.frombuffer(file.read(16), ">u4").tolist()
        count = min(count, 12000)
        values = np.frombuffer(file.read(count * height * width), np.uint8)
    if magic != 0x803 or values.size != count * height * width:
        raise ImagesError(f"{FASHION_MNIST} is not an IDX file of images; reinstall the package")
    return ImageSet(
        name="fashion_mnist",
        title="Fashion-MNIST",
        source=f"The first {count:,} training images. 8 does not divide {width}, so that edge blocks "
        "are padded and ratios are lower.",
        images=values.reshape(count, height, width),
        shown=(0, 3, 5, 9, 11, 22, 26, 23, 36),
    )


def cifar10_part(path: Path) -> np.ndarray:
    """1,000 images, N x 3 x 32 x 32, from a montage of 25 rows of 40."""
    montage = read_picture(path).reshape(25, 32, 40, 32, 3)
    return montage.transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)


def cifar10(folder: Path) -> ImageSet | None:
    parts = sorted(folder.glob("cifar10/train_0[0-2].webp"))
    if not parts:
        return None
    images = np.concatenate([cifar10_part(part) for part in parts])
    lossy = folder / "cifar10/LOSSY_INDICES.txt"
    if lossy.exists():  # images that went through JPEG at this size
        rows = [line.split() for line in lossy.read_text().splitlines()]
        drop = [int(row[1]) for row in rows if row[0] == "train" and int(row[1]) < len(images)]
        images = np.delete(images, drop, axis=0)
    return ImageSet(
        name="cifar10",
        title="CIFAR-10",
        source=f"The first {len(images):,} training images, 32 × 32, in colour (Krizhevsky 2009).",
        images=images,
        shown=(0, 4, 5, 7, 8, 13, 18, 19, 35),
    )


def electron_microscopy(folder: Path) -> ImageSet | None:
    places = ("isbi2012_em/test/*.png", "isbi2012_em/train/image/*.png")
    paths = [path for place in places for path in sorted(folder.glob(place))][:36]
    if not paths:
        return None
    return ImageSet(
        name="electron_microscopy",
        title="Electron microscopy",
        source=f"{len(paths)} sections of nerve cord, 512 × 512, from the ISBI 2012 challenge.",
        images=np.stack([read_picture(path) for path in paths]),
        shown=(0,),
        zoom=(262, 324),
    )


def data_folder() -> Path | None:
    """The folder of further sets: TUCKFOLD_DATA, or shared/data beside the repository."""
    named = os.environ.get("TUCKFOLD_DATA")
    if not named:
        return SHARED_DATA if SHARED_DATA.is_dir() else None
    if not Path(named).is_dir():
        raise ImagesError(f"TUCKFOLD_DATA names {named}, which is no folder; correct or unset it")
    return Path(named)


def load_sets(quick: bool) -> tuple[list[ImageSet], list[str]]:
    """The sets there are, and a line for each that is missing."""
    if quick:
        return [photographs(quick=True)], []
    sets: list[ImageSet | None] = [photographs(quick=False), camera(), fashion_mnist()]
    missing = []
    if sets[-1] is None:
        missing.append("Fashion-MNIST left out: Debian's package dataset-fashion-mnist is missing")
    if (folder := data_folder()) is not None:
        sets += [cifar10(folder), electron_microscopy(folder)]
    return [images for images in sets if images is not None], missing
