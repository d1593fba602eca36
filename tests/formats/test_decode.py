"""The format is a document: what decode.py, written from the documents, reads of the tool's files is what the tool reads.

Bit for bit, over codecs, parameters, dtypes, odd shapes and hostile values.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import decode
import grid
import numpy as np
import pytest
from decode_spec import DTYPES, UNPACK, CorruptError, from_f32

FORMATS = Path(__file__).parent
PER_CHUNK, SAMPLES = 8, 19  # chunks of 8, 8 and 3


def agree(path, cases):
    """What decode.py reads of each array against what the tool unpacks. Returns the complaints."""
    file, wanted = decode.open_file(path), grid.tool_unpacks(path)
    complaints = []
    for name, case in cases.items():
        count = grid.differing(grid.ours(file, name), wanted[name])
        if count:
            complaints.append(f"{case}: {count} of {wanted[name].size} differ")
    return complaints


def packed(cases, path, samples=SAMPLES, *more):
    cases = {f"a{i}": case for i, case in enumerate(cases)}
    arrays = {name: (case.dtype, case.values(samples)) for name, case in cases.items()}
    specs = {name: case.spec for name, case in cases.items()}
    done = grid.pack(arrays, specs, path, *more)
    assert done.returncode == 0, done.stderr
    return cases


def groups():
    cases = [case for case in grid.fast_cases() if not grid.grows(case, PER_CHUNK)]
    by_codec = {}
    for case in cases:
        by_codec.setdefault(case.spec.split("(")[0].split(" ")[0], []).append(case)
    return by_codec


@pytest.mark.parametrize("codec", groups())
def test_decode_agrees_with_the_tool(codec, tmp_path):
    cases = packed(groups()[codec], tmp_path / "t.tuck", SAMPLES, "--samples-per-chunk", PER_CHUNK)
    assert agree(tmp_path / "t.tuck", cases) == []


def test_every_codec_of_the_tool_is_in_the_grid():
    listed = grid.run("codecs").stdout
    names = [line.split(":")[0].split(" ")[0] for line in listed.splitlines() if line[:1].isalpha()]
    assert "raw" in names
    specs = " | ".join(case.spec for case in grid.fast_cases())
    missing = [name for name in names if name not in UNPACK or name not in specs]
    assert missing == [], "add them to decode_spec.py and grid.py, from their pages"


def test_decode_agrees_on_planes_of_several_tiles(tmp_path):
    cases = packed(grid.tile_cases(), tmp_path / "t.tuck", 2, "--samples-per-chunk", 2)
    assert agree(tmp_path / "t.tuck", cases) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_decode_agrees_at_random(seed, tmp_path):
    generator = np.random.default_rng(seed)
    samples, per_chunk = int(generator.integers(1, 20)), int(generator.integers(1, 9))
    cases = packed(
        grid.random_cases(generator, per_chunk, 60),
        tmp_path / "t.tuck",
        samples,
        "--samples-per-chunk",
        per_chunk,
    )
    assert agree(tmp_path / "t.tuck", cases) == []


def test_the_tool_refuses_what_would_grow(tmp_path):
    growing = [case for case in grid.fast_cases() if grid.grows(case, PER_CHUNK)]
    assert len(growing) > 20
    for case in growing[:: len(growing) // 12]:
        arrays = {"a": (case.dtype, case.values(SAMPLES))}
        done = grid.pack(
            arrays, {"a": case.spec}, tmp_path / "t.tuck", "--samples-per-chunk", PER_CHUNK
        )
        assert (done.returncode, "would grow" in done.stderr) == (2, True), case


def test_zstd_of_several_chunks(tmp_path):
    cases = packed(
        [grid.Case("zstd", "u8", (800_000,), "smooth"), grid.Case("zstd", "f32", (2,), "noise")],
        tmp_path / "t.tuck",
        3,
        "--samples-per-chunk",
        3,
    )
    assert agree(tmp_path / "t.tuck", cases) == []


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "u8", "u16"])
def test_fill_values_are_put_back(dtype, tmp_path):
    whole = dtype in ("u8", "u16")
    values = np.add.outer(np.arange(SAMPLES), np.add.outer(np.arange(16), np.arange(24))) + 100.0
    values[:, 0] = 255 if whole else -999.5
    values[3] = 0 if whole else np.nan
    values[:, 8:, 20:] = 0 if whole else np.nan
    values[5:, 8:, :4] = 1 if whole else -999  # valid, and decoded to fill values by some codecs
    fill = ("255", "0") if whole else ("-999.5", "nan")
    stored = values.astype(DTYPES["f32" if dtype == "bf16" else dtype])
    specs = {"a": "dct_quant(rate=8)", "b": "bounded(abs=0.5) | zstd", "c": "zstd"}
    if dtype == "bf16":
        stored = from_f32(stored, "bf16")
    done = grid.pack(
        dict.fromkeys(specs, (dtype, stored)),
        specs,
        tmp_path / "t.tuck",
        *("--samples-per-chunk", PER_CHUNK, "--fill", fill[0], "--fill", fill[1]),
    )
    assert done.returncode == 0, done.stderr
    assert agree(tmp_path / "t.tuck", dict(zip(specs, specs, strict=True))) == []
    file = decode.open_file(tmp_path / "t.tuck")
    assert [array["name"] for array in file.arrays] == list(specs)
    marked = np.isin(values, [255, 0]) if whole else (values == -999.5) | np.isnan(values)
    for name in specs:
        np.testing.assert_array_equal(file.array(name)[0][marked], stored[marked])
    assert sum("mask_of" in array for array in file.columns) == 2


# ---- bytes that no packer wrote -----------------------------------------------------------------

SCRAMBLED = [
    grid.Case("dct_chop(keep=4)", "f32", (16, 24)),
    grid.Case("dct_chop(block=4, keep=2, coef=f16, shape=triangle)", "f16", (16, 24)),
    grid.Case("dct_chop(block=16, keep=3, coef=bf16, order=planes)", "f64", (16, 24)),
    *(
        grid.Case(f"dct_quant(rate={rate}{more})", "f32", (16, 24))
        for rate in ("1", "1.375", "2.5", "4", "8", "8.125", "12", "16")
        for more in ("", ", dc=4", ", dc=12, offset=3, clamp=zero")
    ),
    grid.Case("block_quant(bits=3, group=64)", "f32", (50, 7)),
    grid.Case("block_quant(bits=8)", "f64", (50, 7)),
    grid.Case("bits(width=5)", "u8", (50, 7), "constant"),
    grid.Case("bits(width=61)", "i64", (50, 7)),
    grid.Case("mask(values=sign)", "f16", (5, 7)),
    grid.Case("bytes_of(scale=1/127.5, add=-1)", "bf16", (5, 7)),
]


def scramble(data, file, seed):
    """Other packed bytes in every frame, with the checksums that fit."""
    data, generator = bytearray(data), np.random.default_rng(seed)
    index = decode.u64(data, file.last_trailer())
    for number, entry in enumerate(file.entries):
        frame = decode.u64(entry, 16) + 48
        rank, spec_bytes = data[frame + 6], decode.u32(data, frame + 8)
        head = frame + -(-(32 + 8 * rank + spec_bytes) // 16) * 16
        size = decode.u64(data, frame + 16)
        noise = generator.integers(0, 256, size, np.uint8)
        # A part stays, so that headers of blocks are often right.
        old = np.frombuffer(bytes(data[head : head + size]), np.uint8)
        noise = np.where(generator.random(size) < 0.1, noise, old) if seed % 2 else noise
        data[head : head + size] = noise.tobytes()
        checksum = decode.crc32c(noise.tobytes()).to_bytes(4, "little")
        data[frame + 24 : frame + 28] = checksum
        in_entry = index + 32 + 32 + 40 * number + 36
        data[in_entry : in_entry + 4] = checksum
        seal(data, frame, head, 12)
    payload = data[index + 32 : index + 32 + decode.u64(data, index + 8)]
    data[index + 20 : index + 24] = decode.crc32c(payload).to_bytes(4, "little")
    seal(data, index, index + 32, 16)
    return bytes(data)


def seal(data, first, end, at):
    """Makes the checksum right that is part of data[first:end], `at` bytes from its start."""
    data[first + at : first + at + 4] = bytes(4)
    data[first + at : first + at + 4] = decode.crc32c(data[first:end]).to_bytes(4, "little")


@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_decode_to_the_same(seed, tmp_path):
    cases = packed(SCRAMBLED, tmp_path / "t.tuck", 6, "--samples-per-chunk", 4)
    file = decode.open_file(tmp_path / "t.tuck")
    path = tmp_path / "scrambled.tuck"
    path.write_bytes(scramble(file.data, file, seed))
    assert agree(path, cases) == []


# ---- files --------------------------------------------------------------------------------------

MIXED = [
    grid.Case("dct_chop(keep=3)", "f32", (9, 10)),
    grid.Case("bounded(rel=1e-3) | zstd", "f16", (9, 10)),
    grid.Case("bits", "i64", ()),
    grid.Case("raw", "bf16", (3,)),
]


def test_an_appended_file_and_what_a_stopped_append_leaves(tmp_path):
    path = tmp_path / "t.tuck"
    cases = packed(MIXED, path, 21, "--samples-per-chunk", 4)
    arrays = {name: (case.dtype, case.values(7, seed=1)) for name, case in cases.items()}
    before = path.read_bytes()
    assert grid.pack(arrays, {}, path, "--append").returncode == 0
    assert decode.open_file(path).samples == 28
    assert agree(path, cases) == []
    after = path.read_bytes()
    for end in (len(before) + 64, len(after) - 64, len(after) - 1):
        path.write_bytes(after[:end])
        assert decode.open_file(path).samples == 21
        assert agree(path, cases) == []


def test_shards(tmp_path):
    cases = packed(MIXED, tmp_path / "t.tuck", 21, "--samples-per-chunk", 4, "--shards", 3)
    assert decode.open_file(tmp_path / "t.tuck").samples == 21
    assert agree(tmp_path / "t.tuck", cases) == []


def test_a_repaired_file_skips_rows(tmp_path):
    path, repaired = tmp_path / "t.tuck", tmp_path / "repaired.tuck"
    cases = packed(
        [grid.Case("dct_chop(keep=2)", "f32", (64, 64)), grid.Case("zstd", "i32", (2,))], path, 40
    )
    file = decode.open_file(path)
    image = [array["name"] for array in file.arrays].index("a0")
    chunks = [entry for entry in file.entries if decode.u32(entry, 0) == image]
    assert len(chunks) == 3
    data, middle = bytearray(file.data), chunks[1]
    data[decode.u64(middle, 16) + 32 + decode.u64(middle, 24) - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError):
        decode.open_file(path).array("a0")
    grid.run_well("repair", path, "-o", repaired)
    file = decode.open_file(repaired)
    assert file.samples == 40 - decode.u32(middle, 4)
    assert any(decode.u32(entry, 32) > 0 for entry in file.entries)
    assert agree(repaired, cases) == []


@pytest.mark.parametrize("name", ["once.tuck", "twice.tuck"])
def test_the_files_that_are_kept(name, tmp_path):
    path = tmp_path / name
    path.write_bytes((FORMATS / name).read_bytes())
    file, wanted = decode.open_file(path), grid.tool_unpacks(path)
    assert [array["name"] for array in file.arrays] == ["plane", "mask", "label"]
    for array in wanted:
        assert grid.differing(grid.ours(file, array), wanted[array]) == 0


def test_every_damaged_byte_is_seen():
    data = (FORMATS / "once.tuck").read_bytes()
    whole = decode.File(data)
    wanted = {array["name"]: whole.array(array["name"])[0] for array in whole.arrays}
    unseen = 0
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 1
        try:
            file = decode.File(bytes(damaged))
            for name, values in wanted.items():
                assert np.array_equal(file.array(name)[0], values), at
            unseen += (
                1  # padding between records, or the schema at the start, which the index has too
            )
        except CorruptError:
            pass
    assert unseen < len(data) / 7 / 2


def test_the_checksum():
    assert decode.crc32c(b"123456789") == 0xE3069283


def test_the_command_line(tmp_path):
    program = [sys.executable, FORMATS / "decode.py", FORMATS / "twice.tuck"]
    listed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert listed.splitlines()[0] == "plane: f32 10x8x8 dct_chop(keep=2)"
    subprocess.run([*program, "--array", "label", "-o", tmp_path / "label.npy"], check=True)
    assert np.load(tmp_path / "label.npy").tolist() == [1000003 * i for i in range(10)]
