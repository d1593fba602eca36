"""Real arrays for the comparison with other compressors: images, and fields of floating point."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.images import camera, data_folder, electron_microscopy

MIN_BYTES = 32 << 20  # as f32, so that speed is that of memory and not of a cache


def arrays(quick: bool) -> Iterator[tuple[str, str, np.ndarray]]:
    """Name, a sentence on the source, and the values as they are stored."""
    pictures = camera()
    yield pictures.name, pictures.source, pictures.images[:8] if quick else pictures.images
    folder = data_folder()
    if quick or folder is None:
        return
    if (pictures := electron_microscopy(folder)) is not None:
        yield pictures.name, pictures.source, pictures.images
    if (path := folder / "graphene_stem/librarynet_256x256_u16.npz").exists():
        values = np.load(path)["x"].astype(np.float32) / np.float32(65535)
        yield "graphene_stem", "140 frames of graphene by electron microscope, 256 x 256.", values
    if (path := folder / "sci_float/uk_hires_stash4_21_204_187.f32").exists():
        values = np.fromfile(path, "<f4").reshape(21, 204, 187)
        yield "uk_temperature", "Air temperature of the UK Met Office's model.", values
    if (path := folder / "eolearn_s2/NDVI.npy").exists():
        yield "ndvi", "Vegetation index of Sentinel-2, 68 times 101 x 100.", np.load(path)[..., 0]


def write_arrays(folder: Path, quick: bool) -> Iterator[tuple[Path, dict[str, object]]]:
    """Each array as a .npy file, repeated along its first axis to a size that no cache holds."""
    for name, source, values in arrays(quick):
        times = 1 if quick else -(-MIN_BYTES // (values.size * 4))
        path = folder / f"{name}.npy"
        np.save(path, np.concatenate([values] * times))
        yield path, {"name": name, "source": source, "repeated": times}
