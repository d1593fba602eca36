"""Sizes of dataset files beside those of others: zstd without loss, zfp and JPEG at 45 dB."""

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.cpu.run import BenchError, Runner
from bench.images import cifar10_part, data_folder, read_picture, scikit_image_folder
from bench.record import Figure, Record

TARGET_DB = 45


def cifar10_images(parts: Iterator[int]) -> np.ndarray:
    folder = data_folder()
    if folder is None or not (folder / "cifar10").is_dir():
        raise BenchError("no CIFAR-10; let TUCKFOLD_DATA name the folder that holds cifar10/")
    return np.concatenate([cifar10_part(folder / f"cifar10/train_{i:02}.webp") for i in parts])


def tuck_bytes(runner: Runner, record: Record, source: Path, path: Path, *options: object) -> int:
    command = [runner.tuckfold, "pack", source, "-o", path, "-qf", *options]
    list(runner.lines(record, command))
    return path.stat().st_size


def measure_lossless(runner: Runner, record: Record, folder: Path) -> None:
    images = cifar10_images(range(1 if runner.quick else 10))
    for name, values in (("cifar10", images), ("photographs", photograph("astronaut"))):
        runner.say(f"files: lossless {name}")
        source = folder / "exact.npy"
        np.save(source, values / np.float32(255))
        size = tuck_bytes(
            runner, record, source, folder / "x.tuck", "--codec", "bytes_of | zstd(level=19)"
        )
        peer = folder / "exact.zst"
        subprocess.run(["zstd", "-19", "-T2", "-qf", source, "-o", peer], check=True)
        record.commands.append('zstd -19 "$TMPDIR/exact.npy"')
        unpacked = folder / "back.npy"
        subprocess.run(
            [runner.tuckfold, "unpack", folder / "x.tuck", "-o", unpacked, "-qf"], check=True
        )
        if unpacked.read_bytes()[-values.size * 4 :] != source.read_bytes()[-values.size * 4 :]:
            raise BenchError(f"{name} did not come back as it was")
        record.rows.append(
            {
                "part": "lossless",
                "set": name,
                "bytes": values.size * 4,
                "tuck_bytes": size,
                "zstd_19_bytes": peer.stat().st_size,
            }
        )
        of = {"part": "lossless", "set": name, "peer": "zstd -19"}
        record.figures.append(Figure(of, "of_peer", size / peer.stat().st_size, ceiling=1.0))


def photograph(name: str) -> np.ndarray:
    """1 x C x H x W, u8."""
    picture = read_picture(scikit_image_folder() / f"{name}.png")
    planes = picture[None] if picture.ndim == 2 else picture[..., :3].transpose(2, 0, 1)
    return np.ascontiguousarray(planes[None])


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return float("inf") if error == 0 else 10 * np.log10(255**2 / error)


def jpeg(images: np.ndarray, quality: int) -> tuple[int, float]:
    """Bytes of a JPEG for each H x W x C image, and their PSNR."""
    from PIL import Image

    size, seen = 0, np.empty_like(images)
    for number, image in enumerate(images):
        stream = io.BytesIO()
        Image.fromarray(image.squeeze()).save(
            stream, "JPEG", quality=quality, subsampling=0, optimize=True
        )
        size += stream.tell()
        seen[number] = np.asarray(Image.open(stream)).reshape(image.shape)
    return size, psnr(images, seen)


def first_that_reaches(attempts: Iterator[tuple[int, float]]) -> tuple[int, float]:
    for size, quality in attempts:
        if quality >= TARGET_DB:
            return size, quality
    raise BenchError(f"nothing reaches {TARGET_DB} dB")


def montage(images: np.ndarray) -> np.ndarray:
    """One picture of N x H x W x C pictures, 40 side by side."""
    count, height, width, channels = images.shape
    rows = images.reshape(count // 40, 40, height, width, channels)
    return rows.transpose(0, 2, 1, 3, 4).reshape(1, count // 40 * height, 40 * width, channels)


def attempts(
    runner: Runner,
    record: Record,
    source: Path,
    folder: Path,
    specs: Iterator[str],
    wanted: np.ndarray,
) -> Iterator[tuple[int, float]]:
    for spec in specs:
        size = tuck_bytes(runner, record, source, folder / "lossy.tuck", "--codec", spec)
        unpacked = folder / "lossy.npy"
        subprocess.run(
            [runner.tuckfold, "unpack", folder / "lossy.tuck", "-o", unpacked, "-qf"], check=True
        )
        seen = np.load(unpacked)
        yield size, psnr(wanted, seen if seen.dtype == np.uint8 else np.rint(seen).clip(0, 255))


def measure_photographs(runner: Runner, record: Record, folder: Path) -> None:
    sets = {name: photograph(name) for name in ("astronaut", "camera")}
    sets["cifar10"] = cifar10_images(range(1))
    for name, images in sets.items():
        runner.say(f"files: {name} at {TARGET_DB} dB")
        source = folder / f"{name}.npy"
        np.save(source, images)
        floats = folder / f"{name}_f32.npy"
        np.save(floats, images.astype(np.float32))
        last = images.transpose(0, 2, 3, 1)
        accuracies = (f"zfp(accuracy={2.0**k})" for k in range(7, -3, -1))
        rates = (f"zfp(rate={r / 4})" for r in range(8, 40))
        pictures = montage(last) if name == "cifar10" else last
        ways = {
            "jpeg_files": (jpeg(last, q) for q in range(85, 101)),
            "jpeg_montage": (jpeg(pictures, q) for q in range(85, 101)),
            # zfp takes floats; its accuracies are powers of two.
            "zfp": attempts(runner, record, floats, folder, accuracies, images),
            "zfp_rate": attempts(runner, record, floats, folder, rates, images),
        }
        row: dict[str, object] = {"part": "photographs", "set": name, "bytes": images.size}
        for way, tries in ways.items():
            row[f"{way}_bytes"], row[f"{way}_psnr_db"] = first_that_reaches(tries)
        size = tuck_bytes(runner, record, source, folder / "lossy.tuck", "--target-psnr", TARGET_DB)
        row["target_bytes"] = size
        bounds = (b / 8 + 0.5 for b in range(40, 0, -1))
        specs = (f"bounded(abs={bound}) | zstd(level=19)" for bound in bounds)
        row["tuck_bytes"], row["tuck_psnr_db"] = first_that_reaches(
            attempts(runner, record, source, folder, specs, images)
        )
        record.rows.append(row)
        for peer, ceiling in (
            ("zfp", 1.0),
            ("zfp_rate", 1.0),
            ("jpeg_files", 1.5),
            ("jpeg_montage", 1.5),
        ):
            of = {"part": "photographs", "set": name, "peer": peer}
            value = row["tuck_bytes"] / row[f"{peer}_bytes"]
            record.figures.append(Figure(of, "of_peer", value, ceiling=ceiling))
