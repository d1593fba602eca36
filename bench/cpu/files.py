"""Dataset files: speed beside the codec alone, memory, access, kills, and sizes beside others.

Speeds come from file_bench (bench/cpu/file_bench.cc), in one process; the rest from the command line.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.cpu.run import BenchError, Runner
from bench.cpu.sizes import cifar10_images, measure_lossless, measure_photographs
from bench.images import data_folder
from bench.record import ROOT, Figure, Record

METHOD = (
    "speed: file_bench, one process, best of the rounds, 2 threads, inputs in the page cache, the "
    ".tuck file in memory (tmpfs); pack_of_parts = speed / what reading the inputs from the page cache, the "
    "codec on the same chunks in memory, and a plain write of as many bytes to a file (by one thread: "
    "half of it counts) take one after the other in the same run; pack_of_codec = the same without the write; unpack_of_codec = speed / the "
    "codec's; of_codec_alone = speed / the codec; samples are compared with what the codec gives. memory: largest resident size of "
    "tuckfold pack and tuckfold cat over sets of 1 to 8 GB. kills: tuckfold pack is killed (-9) at a "
    "random time and resumed, and tuckfold pack --append is killed; then the file is verified, and "
    "its samples are compared. flips: every byte of a small file is changed to another value; its "
    "samples must come back right or be refused. sizes: whole files; zstd -19 of the same .npy; "
    "45 dB: the smallest of each codec that reaches it, JPEG by libjpeg without chroma subsampling and "
    "with its own tables, as one picture a file and as one montage"
)
GB = 10**9
SIDE, CHANNELS = 64, 3  # of the synthetic samples: 48 KiB each


# ---- data


def synthetic(path: Path, size: float) -> Path:
    """Smooth surfaces with noise, f32, N x 3 x 64 x 64."""
    samples = int(size * GB) // (CHANNELS * SIDE * SIDE * 4)
    values = np.lib.format.open_memmap(path, "w+", np.float32, (samples, CHANNELS, SIDE, SIDE))
    generator = np.random.default_rng(1)
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / SIDE
    waves = np.stack([np.ones_like(x), x, y, np.sin(6 * y), np.cos(20 * x * y), np.sin(9 * x)])
    flat = waves.reshape(len(waves), -1)
    for first in range(0, samples, 256):
        part = values[first : first + 256]
        weights = generator.standard_normal((part.shape[0] * CHANNELS, len(waves)), np.float32)
        noise = generator.standard_normal(part.shape, np.float32)
        part[:] = (weights @ flat).reshape(part.shape) + np.float32(0.02) * noise
    values.flush()
    return path


def cifar10_batches(folder: Path, quick: bool) -> list[Path]:
    """The official binary batches: a label and 3,072 bytes an image."""
    labels = np.fromfile(data_folder() / "cifar10/train_labels.u8", np.uint8)
    paths = []
    for batch in range(1 if quick else 5):
        first = 10 * batch
        images = cifar10_images(range(first, first + (1 if quick else 10)))
        rows = labels[1000 * first : 1000 * first + len(images)]
        path = folder / f"data_batch_{batch + 1}.bin"
        np.hstack([rows[:, None], images.reshape(len(images), -1)]).astype(np.uint8).tofile(path)
        paths.append(path)
    return paths


def fast_folder(scratch: Path) -> Path:
    """Where a file costs no disk."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else scratch


# ---- speed and access

SPEED = {
    "cifar10": (
        "dct_quant(rate=4)",
        "bounded(abs=2.4) | zstd(level=1)",
        "bounded(abs=2.4)",
        "zstd(level=1)",
    ),
    "synthetic": (
        "dct_quant(rate=4)",
        "dct_chop(keep=4)",
        "bounded(abs=0.01)",
        "bounded(abs=0.01) | zstd(level=1)",
        "zstd(level=1)",
    ),
}


def measure_speed(runner: Runner, record: Record, name: str, inputs: list[Path], to: Path) -> None:
    program = runner.tuckfold.parent / "file_bench"
    if not program.exists():
        raise BenchError(f"no {program}; run ./dev bench files, which builds it")
    for spec in SPEED[name]:
        runner.say(f"files: {name}, {spec}")
        command = [program, spec, 2, 0.1 if runner.quick else 2, to, *inputs]
        row = json.loads("".join(runner.lines(record, command)))
        both = 1 / row["codec_pack_gbps"] + 1 / row["input_gbps"]
        # One thread writes; others go on meanwhile.
        parts = both + row["write_seconds"] / row["threads"] / (row["bytes"] / 1e9)
        row |= {
            "set": name,
            "pack_of_codec": row["pack_gbps"] * both,
            "pack_of_parts": row["pack_gbps"] * parts,
            "pack_of_codec_alone": row["pack_gbps"] / row["codec_pack_gbps"],
            "unpack_of_codec": row["unpack_gbps"] / row["codec_unpack_gbps"],
        }
        record.rows.append({"part": "speed", **row})
        of = {"part": "speed", "set": name, "codec": row["codec"]}
        for figure in ("pack_of_parts", "unpack_of_codec"):
            record.figures.append(Figure(of, figure, row[figure], 0.8))
        for figure in ("pack_of_codec", "pack_of_codec_alone"):
            record.figures.append(Figure(of, figure, row[figure]))
        # Codecs that end in zstd unpack a whole chunk for a sample.
        more = {"at_99": row["access_us_99"]}
        record.figures.append(Figure(of, "access_us", row["access_us"], None, more, ceiling=50.0))


# ---- memory


# A process begins with what its parent had: so a small one starts the program and asks.
PEAK = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(command: list[object]) -> int:
    """The largest resident size of a program."""
    words = [sys.executable, "-c", PEAK, *map(str, command)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{command} failed with status {done.returncode}")
    return int(done.stdout)


def measure_memory(runner: Runner, record: Record, scratch: Path, to: Path) -> None:
    peaks: dict[str, list[int]] = {"pack": [], "cat": []}
    sizes = (0.05, 0.1) if runner.quick else (1, 2, 4, 8)
    spec = "dct_quant(rate=4)"
    for size in sizes:
        runner.say(f"files: memory, {size} GB")
        source = synthetic(scratch / "memory.npy", size)
        packed = to / "tuckfold-memory.tuck"
        pack = [runner.tuckfold, "pack", source, "-o", packed, "-qf", "--codec", spec]
        cat = [runner.tuckfold, "cat", packed]
        record.commands += [" ".join(map(runner.as_recorded, words)) for words in (pack, cat)]
        row = {
            "part": "memory",
            "gigabytes": size,
            "codec": spec,
            "pack_peak_bytes": peak_bytes(pack),
            "cat_peak_bytes": peak_bytes(cat),
        }
        record.rows.append(row)
        for verb, seen in peaks.items():
            seen.append(row[f"{verb}_peak_bytes"])
        packed.unlink()
        source.unlink()
    for verb, seen in peaks.items():
        of = {"part": "memory", "verb": verb}
        more = {"peak_bytes": seen[-1]}
        record.figures.append(Figure(of, "growth", seen[-1] / seen[0], None, more, ceiling=1.05))


# ---- kills and flips


def small_set(folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (1500, 3, 32, 32), np.uint8)
    labels = np.arange(1500, dtype=np.int64)
    np.savez(folder / "small.npz", image=images, label=labels)
    return folder / "small.npz", images, labels


def holds(runner: Runner, path: Path, images: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the file is whole and has these samples, bit for bit."""
    if subprocess.run([runner.tuckfold, "verify", path], capture_output=True).returncode != 0:
        return False
    for name, wanted in (("image", images), ("label", labels)):
        bytes_of = subprocess.run(
            [runner.tuckfold, "cat", path, "--select", name], capture_output=True, check=True
        ).stdout
        if bytes_of != wanted.tobytes():
            return False
    return True


def kill_some_time(command: list[object], longest: float) -> bool:
    """Runs and kills a command; whether it was still running."""
    child = subprocess.Popen([str(word) for word in command])
    time.sleep(random.uniform(0, longest))
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def measure_kills(runner: Runner, record: Record, folder: Path) -> None:
    random.seed(7)
    source, images, labels = small_set(folder)
    path = folder / "killed.tuck"
    pack = [runner.tuckfold, "pack", source, "-o", path, "-q", "--codec", "zstd(level=9)"]
    pack += ["--samples-per-chunk", "16"]
    record.commands += [" ".join(map(runner.as_recorded, [*pack, "--resume"]))]
    start = time.monotonic()
    subprocess.run([*pack, "-f"], check=True)
    longest = 1.1 * (time.monotonic() - start)
    twice = np.concatenate([images, images]), np.concatenate([labels, labels])
    total = 20 if runner.quick else 1000
    killed = appends = wrong = resumed = 0
    while killed < total:
        if killed % 50 == 0:
            runner.say(f"files: kills {killed}/{total}")
        if killed % 2 == 0:  # a new file, which goes on with what the last one left
            if path.exists():
                path.unlink()
            killed += kill_some_time([*pack, "--resume"], longest)
            if path.exists():
                wrong += not holds(runner, path, images, labels)
            elif random.random() < 0.25:
                subprocess.run([*pack, "--resume"], check=True)
                resumed += 1
                wrong += not holds(runner, path, images, labels)
        else:  # samples appended to a complete file
            if not path.exists():
                subprocess.run([*pack, "--resume"], check=True)
            if kill_some_time([*pack, "--append"], longest):
                killed += 1
                appends += 1
            # Either as it was, or with all of the new samples.
            same = holds(runner, path, images, labels) or holds(runner, path, *twice)
            wrong += not same
            path.unlink()
    runner.say("")
    record.rows.append(
        {"part": "kills", "kills": killed, "appends": appends, "resumed": resumed, "wrong": wrong}
    )
    of = {"part": "kills", "kills": killed}
    record.figures.append(Figure(of, "lost_or_wrong", wrong, ceiling=0))


def measure_flips(runner: Runner, record: Record, folder: Path) -> None:
    """Every byte of a small file in turn becomes another one."""
    golden = bytearray((ROOT / "tests/formats/twice.tuck").read_bytes())
    path = folder / "flipped.tuck"

    def cat(name: str) -> bytes | None:
        done = subprocess.run(
            [runner.tuckfold, "cat", path, "--select", name], capture_output=True, check=False
        )
        if done.returncode not in (0, 2, 3, 4):
            raise BenchError(f"byte {at} of twice.tuck: status {done.returncode}")
        return done.stdout if done.returncode == 0 else None

    at = 0
    path.write_bytes(golden)
    names = [array["name"] for array in runner.info(path)["arrays"]]
    wanted = {name: cat(name) for name in names}
    wrong = refused = older = 0
    total = len(golden) if not runner.quick else 50
    for at in range(total):
        if at % 500 == 0:
            runner.say(f"files: flips {at}/{total}")
        flipped = golden.copy()
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        for name in names:
            seen = cat(name)
            refused += seen is None
            if seen is None or seen == wanted[name]:
                continue
            # A file whose last state is broken shows the one before it, and verify says so.
            verify = [runner.tuckfold, "verify", path]
            reported = subprocess.run(verify, capture_output=True, check=False).returncode == 3
            older += reported and wanted[name].startswith(seen)
            wrong += not (reported and wanted[name].startswith(seen))
    runner.say("")
    record.rows.append(
        {
            "part": "flips",
            "file": "twice.tuck",
            "bytes": total,
            "refused": refused,
            "older_state_told": older,
            "wrong": wrong,
        }
    )
    of = {"part": "flips", "bytes": total}
    record.figures.append(Figure(of, "lost_or_wrong", wrong, ceiling=0))


def files(runner: Runner) -> Record:
    record = runner.record("files", METHOD)
    with runner.scratch() as scratch:
        to = fast_folder(scratch)
        measure_photographs(runner, record, scratch)
        measure_lossless(runner, record, scratch)
        measure_speed(runner, record, "cifar10", cifar10_batches(scratch, runner.quick), to)
        big = synthetic(scratch / "synthetic.npy", 0.05 if runner.quick else 4)
        measure_speed(runner, record, "synthetic", [big], to)
        big.unlink()
        measure_memory(runner, record, scratch, to)
        measure_flips(runner, record, to)
        measure_kills(runner, record, scratch)
    return record
