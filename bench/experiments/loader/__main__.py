"""Batches of CIFAR-10 in random order, beside a reader of a plain array in a mapped file, and JPEG.

python -m bench.experiments.loader [--quick] [--out bench/results]
python -m bench.experiments.loader --device cuda [--quick] [--data FILE] [--part small] [--out bench/results]
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tuckfold
from bench.record import ROOT, Figure, Record, figure_table

METHOD = (
    "CIFAR-10's training images, 3 x 32 x 32, and labels, in random order, batches of 256, one thread "
    "(set_num_threads(1), prefetch=0); rounds of all readers turn by turn in one process, a new order in each round. "
    "memmap: images[samples] and labels[samples] of arrays in mapped files, as FFCV keeps raw images. Both go through "
    "tuckfold.Batches. of_memmap: the median over the rounds of memmap's processor time over ours. wall_of_memmap: the same "
    "of the time that passed, of_memmap_cold of epochs that begin with nothing of the file in memory, and cold_bytes_of_memmap what the disk reads for one, "
    "over memmap's. bytes_of holds "
    "f32 images, and is beside f32 images in a mapped file. throttled: a token bucket of 500 MB/s that both draw "
    "their samples' bytes from, before they read them, with prefetch=2 for both; time that passed. of_jpeg: processor "
    "time of Pillow (libjpeg-turbo) to decode the same images from memory, at the least quality that reaches our PSNR and "
    "without chroma subsampling, over ours. Every batch of a first round is compared with the images"
)
BATCH, RATE = 256, 500e6
PARTS = ("small", "large", "training")  # on a GPU


class Bucket:
    """Lets so many bytes a second pass."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock, self._free_at = rate, threading.Lock(), 0.0

    def take(self, size: float) -> None:
        with self._lock:
            self._free_at = max(self._free_at, time.perf_counter()) + size / self._rate
            until = self._free_at
        time.sleep(max(0.0, until - time.perf_counter()))


def images_of(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    from bench.images import cifar10_part, data_folder

    data = data_folder()
    if data is None:
        sys.exit("loader: no CIFAR-10; let TUCKFOLD_DATA name the folder that holds cifar10/")
    folder = data / "cifar10"
    parts = range(5 if quick else 50)
    images = np.concatenate([cifar10_part(folder / f"train_{i:02d}.webp") for i in parts])
    labels = np.fromfile(folder / "train_labels.u8", np.uint8, len(images)).astype(np.int64)
    return np.ascontiguousarray(images), labels


def epoch(read: Callable[[Any], Any], samples: int, seed: int, prefetch: int = 0) -> tuple[float, float]:  # fmt: skip
    """Processor time and time of an epoch."""
    batches = tuckfold.Batches(read, samples, BATCH, shuffle=True, seed=seed, prefetch=prefetch)
    spent, start = time.process_time(), time.perf_counter()
    for _ in batches:
        pass
    return time.process_time() - spent, time.perf_counter() - start


def drop(path: Path) -> None:
    """From the page cache; what is mapped stays there."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def check(read: Callable[[Any], Any], images: np.ndarray, labels: np.ndarray) -> float:
    """The PSNR of all samples, infinite where nothing differs."""
    error = 0.0
    order = np.random.default_rng(0).permutation(len(images))
    for begin in range(0, len(order), BATCH):
        samples = order[begin : begin + BATCH]
        got, label = read(samples)
        if not np.array_equal(label, labels[samples]):
            sys.exit("loader: a batch has wrong labels")
        error += float(np.square(got.astype(np.float64) - images[samples]).sum())
    peak = 255.0 if images.dtype == np.uint8 else 1.0
    return float(10 * np.log10(peak**2 * images.size / error)) if error else float("inf")


def jpeg_time(images: np.ndarray, psnr: float) -> dict[str, float]:
    """Processor time a sample of decoding JPEGs that have the PSNR."""
    from PIL import Image

    pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    for quality in range(50, 101):
        files = []
        for one in pixels:
            out = io.BytesIO()
            Image.fromarray(one).save(out, "JPEG", quality=quality, subsampling=0)
            files.append(out.getvalue())
        spent = time.process_time()
        back = [np.asarray(Image.open(io.BytesIO(data))) for data in files]
        spent = time.process_time() - spent
        error = np.square(np.stack(back).astype(np.float64) - pixels).mean()
        reached = float(10 * np.log10(255**2 / error))
        if reached >= psnr:
            size = sum(map(len, files)) / len(files)
            return {"quality": quality, "psnr_db": reached, "bytes": size, "us": 1e6 * spent / len(files)}  # fmt: skip
    sys.exit(f"loader: JPEG does not reach {psnr:.1f} dB")


def memmap_of(path: Path) -> Callable[[Any], Any]:
    array, label = (np.load(p, mmap_mode="r") for p in (path, path.with_name("label.npy")))
    return lambda samples: (array[samples], label[samples])


def fetched_bytes() -> int:
    """Bytes that this process had the disk read until now."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def cold_epochs(
    names: list[str], paths: dict[str, Path], specs: dict[str, str], samples: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Times of epochs that begin with nothing of the file in memory, and bytes that the disk read for one."""
    times: dict[str, list[float]] = {name: [] for name in names}
    fetched: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(3):
        for name in names:
            gc.collect()
            for path in (paths[name], paths[name].with_name("label.npy")):
                drop(path)
            before = fetched_bytes()
            if name in specs:
                read = tuckfold.Dataset(paths[name], ("image", "label")).read
            else:
                read = memmap_of(paths[name])
            times[name].append(epoch(read, samples, turn)[1])
            fetched[name].append(fetched_bytes() - before)
            del read
    return times, {name: statistics.median(sizes) for name, sizes in fetched.items()}


def measure(record: Record, folder: Path, quick: bool) -> None:
    images, labels = images_of(quick)
    floats = images.astype(np.float32) / np.float32(255)
    for name, values in (("u8", images), ("f32", floats), ("label", labels)):
        np.save(folder / f"{name}.npy", values)
    specs = {"raw": "u8", "bytes_of": "f32", "dct_quant(rate=2)": "u8", "dct_quant(rate=3)": "u8", "dct_quant(rate=4)": "u8"}  # fmt: skip
    readers, each = (
        {name: memmap_of(folder / f"{name}.npy") for name in ("u8", "f32")},
        {"u8": 3072.0, "f32": 12288.0},
    )
    quality = {}
    paths = {name: folder / f"{name}.npy" for name in ("u8", "f32")}
    for number, (spec, kind) in enumerate(specs.items()):
        paths[spec] = folder / f"{number}.tuck"
        values = images if kind == "u8" else floats
        tuckfold.save(paths[spec], image=values, label=labels, codec={"image": spec})
        data = tuckfold.Dataset(paths[spec], ("image", "label"))
        readers[spec] = data.read
        each[spec] = data.arrays[0].packed_bytes / len(images)
        quality[spec] = check(data.read, values, labels)
    del data
    rounds = 3 if quick else 9
    spent: dict[str, list[float]] = {name: [] for name in readers}
    passed: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(rounds):
        for name, read in readers.items():
            cpu, wall = epoch(read, len(images), turn)
            spent[name].append(cpu)
            passed[name].append(wall)
    slow = {}
    for name, read in readers.items():
        bucket, size = Bucket(RATE), each[name]

        def throttled(samples: Any, read=read, bucket=bucket, size=size) -> Any:
            bucket.take(size * len(samples))
            return read(samples)

        slow[name] = statistics.median(
            epoch(throttled, len(images), turn, prefetch=2)[1] for turn in range(3)
        )
    names = list(readers)
    readers.clear()  # and with them, and what still holds some, what is mapped
    del read, throttled
    cold, fetched = cold_epochs(names, paths, specs, len(images))
    for name in names:
        record.rows.append({
            "reader": name if name in specs else f"memmap of {name}",
            "cpu_target": tuckfold.cpu_target(),
            "bytes_a_sample": each[name],
            "us_a_sample": 1e6 * statistics.median(spent[name]) / len(images),
            "us_a_sample_wall": 1e6 * statistics.median(passed[name]) / len(images),
            "us_a_sample_cold": 1e6 * statistics.median(cold[name]) / len(images),
            "cold_bytes_a_sample": fetched[name] / len(images),
            "us_a_sample_throttled": 1e6 * slow[name] / len(images),
            "psnr_db": quality.get(name),
        })  # fmt: skip
    floors = {"raw": 0.95, "bytes_of": 0.95, "dct_quant(rate=4)": 0.45}
    for spec, kind in specs.items():

        def of(times: dict[str, list[float]], spec=spec, kind=kind) -> float:
            return statistics.median(a / b for a, b in zip(times[kind], times[spec], strict=True))

        more = {
            "wall_of_memmap": of(passed),
            "of_memmap_cold": of(cold),
            "cold_bytes_of_memmap": fetched[spec] / fetched[kind] if fetched[kind] else None,
        }
        record.figures.append(Figure({"codec": spec}, "of_memmap", of(spent), floors.get(spec), more))  # fmt: skip
        floor = 2.0 if spec.startswith("dct_quant") else None
        # What processor time alone would allow, on a machine that does nothing else.
        wait = {name: each[name] / RATE for name in (kind, spec)}
        work = {name: statistics.median(spent[name]) / len(images) for name in (kind, spec)}
        allowed = max(wait[kind], work[kind]) / max(wait[spec], work[spec])
        record.figures.append(
            Figure(
                {"codec": spec},
                "throttled_of_memmap",
                slow[kind] / slow[spec],
                floor,
                {"by_processor_time": allowed},
            )
        )
    some = images[: 200 if quick else 2000]
    for spec in specs:
        if not spec.startswith("dct_quant"):
            continue
        jpeg = jpeg_time(some, quality[spec])
        ours = 1e6 * statistics.median(spent[spec]) / len(images)
        record.figures.append(Figure({"codec": spec}, "of_jpeg", jpeg["us"] / ours, 5.0, jpeg))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a tenth of the images, few rounds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dry-run", action="store_true", help="cuda: on the CPU, to see that it runs")  # fmt: skip
    parser.add_argument("--data", type=Path, help="cuda: images of 3 x 32 x 32, a .npy file or a batch of CIFAR-10's binary version; else synthetic ones")  # fmt: skip
    parser.add_argument("--part", action="append", choices=PARTS, help="cuda: this part; again for several; else all")  # fmt: skip
    parser.add_argument("--out", type=Path, help="the folder for loader_cpu.json, or loader_cuda.json")  # fmt: skip
    options = parser.parse_args()
    library = Path(os.environ.get("TUCKFOLD_LIBRARIES", "."))
    build = (ROOT / library).parent
    command = "PYTHONPATH=python:. TUCKFOLD_LIBRARIES=build/release/python python -m bench.experiments.loader "  # fmt: skip
    if options.device == "cuda":
        from bench.experiments.loader import cuda

        record = Record("loader_cuda", options.quick, build, cuda.METHOD)
        record.commands.append(command + "--device cuda --out bench/results")
        cuda.measure(
            record, options.data, options.quick, options.part or list(PARTS), options.dry_run
        )
        return written(record, options.out)
    tuckfold.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    record = Record("loader_cpu", options.quick, build, METHOD)
    record.commands.append(command + "--out bench/results")
    with tempfile.TemporaryDirectory(prefix="tuckfold-") as folder:
        measure(record, Path(folder), options.quick)
    record.extra["load_average_after"] = os.getloadavg()[0]
    return written(record, options.out)


def written(record: Record, out: Path | None) -> int:
    print(figure_table(record.figures))
    if out:
        print(record.write(out, f"tuckfold {tuckfold.version()}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
