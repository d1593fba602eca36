"""Real arrays of floating point to judge a codec's quality on: images, fields and activations.

None has been through JPEG, which removes what an 8x8 transform would store, or through zfp (as
CESM's PRECT among the samples has). Those in TUCKFOLD_DATA are left out where it is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.cpu.activations import activations
from bench.images import (
    cifar10_part,
    data_folder,
    electron_microscopy,
    read_picture,
    scikit_image_folder,
)

CIFAR_PARTS = 4  # of 1,000 images, to train on


@dataclass(frozen=True)
class Set:
    name: str
    kind: str  # image, field or activation
    source: str  # a sentence
    values: np.ndarray  # f32, planes in the last two axes


def cifar10(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first images, N x 3 x 32 x 32, and their labels."""
    parts = [folder / f"cifar10/train_{index:02}.webp" for index in range(CIFAR_PARTS)]
    images = np.concatenate([cifar10_part(part) for part in parts])
    return images, np.fromfile(folder / "cifar10/train_labels.u8", np.uint8)[: len(images)]


def netcdf(path: Path, name: str) -> np.ndarray:
    import h5py
    from scipy.io import netcdf_file

    if h5py.is_hdf5(path):
        with h5py.File(path) as file:
            return file[name][...].astype(np.float32)
    with netcdf_file(path, mmap=False) as file:
        variable = file.variables[name]
        return (variable[:] * variable.scale_factor + variable.add_offset).astype(np.float32)


def images(folder: Path | None) -> Iterator[Set]:
    pictures = scikit_image_folder()
    for name in ("camera", "astronaut"):
        picture = read_picture(pictures / f"{name}.png")
        planes = picture if picture.ndim == 2 else picture[..., :3].transpose(2, 0, 1)
        yield Set(name, "image", f"scikit-image’s {name}.", planes / np.float32(255))
    if folder is None:
        return
    if (microscopy := electron_microscopy(folder)) is not None:
        yield Set("em", "image", microscopy.source, microscopy.images[:4] / np.float32(255))
    if (path := folder / "graphene_stem/librarynet_256x256_u16.npz").exists():
        values = np.load(path)["x"][:8].astype(np.float32) / np.float32(65535)
        yield Set("stem", "image", "8 frames of graphene by electron microscope.", values)


def fields(folder: Path) -> Iterator[Set]:
    floats = folder / "sci_float"
    for name, file, variable, source in (
        ("cesm_t", "cesm_cam-fv.T.3months.fpzip.nc", "T", "Temperature of CESM, a month."),
        ("era_u", "eraint_uvz.nc", "u", "Wind of ERA-Interim at three heights."),
    ):
        if (path := floats / file).exists():
            values = netcdf(path, variable)
            yield Set(name, "field", source, values[0])
    for name, file, shape, source in (
        (
            "uk_temperature",
            "uk_hires_stash4_21_204_187.f32",
            (21, 204, 187),
            "potential temperature",
        ),
        ("uk_orography", "uk_hires_stash33_1_204_187.f32", (1, 204, 187), "height of the ground"),
    ):
        if (path := floats / file).exists():
            values = np.fromfile(path, "<f4").reshape(shape)
            yield Set(name, "field", f"The UK Met Office’s model: {source}.", values)


def sets() -> Iterator[Set]:
    folder = data_folder()
    yield from images(folder)
    if folder is None:
        return
    if (folder / "cifar10").is_dir():
        cifar, labels = cifar10(folder)
        planes = cifar[:64] / np.float32(255)
        yield Set("cifar10", "image", "The first 64 images of CIFAR-10.", planes)
    yield from fields(folder)
    if (folder / "cifar10").is_dir():
        for name, values in activations(cifar, labels).items():
            source = "A layer of a small residual network trained on CIFAR-10, 64 unseen images."
            yield Set(f"act_{name}", "activation", source, values)
