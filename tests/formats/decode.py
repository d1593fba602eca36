#!/usr/bin/env python3
"""Decodes .tuck files without Tuckfold: written from docs/format.md and docs/codecs/ alone, plain Python and numpy.

It is no second implementation to use, but the proof that the documents are enough to read the files.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import decode_bounded
import decode_dct
import decode_nonzero_quant
import numpy as np
from decode_spec import DTYPES, PACKED, UNPACK, CorruptError, from_f32, need, to_f32, unpack

UNPACK |= decode_dct.UNPACK | decode_bounded.UNPACK | decode_nonzero_quant.UNPACK
PACKED |= decode_dct.PACKED

FRAME_DTYPES = ["f32", "f16", "bf16", "f64", "u8", "i32", "i64"]
FRAME_DTYPES += ["u16", "i16", "i8", "u32", "u64", "bool"]
SCHEMA, CHUNK, INDEX = 1, 2, 3


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def checked(data, at):
    """Whether the checksum at `at`, taken as zeros, is that of `data`."""
    return crc32c(data[:at] + b"\0\0\0\0" + data[at + 4 :]) == u32(data, at)


def u32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def decode_frame(frame):
    """The tensor of a frame, with its spec and dtype; bytes after the frame are not looked at."""
    need(len(frame) >= 32 and frame[:4] == b"TkFr", "not a frame")
    need(frame[4] == 1 and frame[7] == 0, "a frame of another version")
    dtype, rank, spec_bytes = FRAME_DTYPES[frame[5]], frame[6], u32(frame, 8)
    head = -(-(32 + 8 * rank + spec_bytes) // 16) * 16
    need(checked(frame[:head], 12), "frame: checksum of the header")
    shape = [u64(frame, 32 + 8 * i) for i in range(rank)]
    spec = frame[32 + 8 * rank : 32 + 8 * rank + spec_bytes].decode()
    packed = frame[head : head + u64(frame, 16)]
    need(len(packed) == u64(frame, 16), "frame: cut off")
    need(crc32c(packed) == u32(frame, 24), "frame: checksum of the packed bytes")
    return unpack(spec, dtype, shape, packed), spec, dtype


def element_of(text, dtype):
    """The element of a dtype that is nearest to a number, as schemas have fill values."""
    if dtype == "bf16":
        return from_f32(np.array([float(text)], np.float32), dtype)[0]
    return DTYPES[dtype].type(float(text))


def next_to(word, words, dtype):
    """The bits that a valid value gets in place of those of a fill value, which are `word`."""
    largest = {"u8": 0xFF, "u16": 0xFFFF, "f16": 0x7BFF, "bf16": 0x7F7F, "f32": 0x7F7FFFFF}
    largest = largest.get(dtype, (0x7FF << 52) - 1)  # finite value
    sign = 0 if dtype in ("u8", "u16") else word & 1 << 8 * DTYPES[dtype].itemsize - 1
    size = word - sign
    if size > largest + 1:  # NaN
        return word
    for other in itertools.chain(range(size - 1, -1, -1), range(size + 1, largest + 1)):
        if sign + other not in words:
            return sign + other
    return word


class File:
    """One .tuck file: `arrays` is its schema's list, `samples` their number."""

    def __init__(self, data):
        self.data = data
        need(
            data[:8] == b"TuckFile" and u32(data, 8) == 1 and u32(data, 12) == 0, "not a .tuck file"
        )
        trailer = self.last_trailer()
        index = self.payload(u64(data, trailer), INDEX)
        self.index_crc = crc32c(index)
        self.samples, entries, schema_bytes = u64(index, 0), u64(index, 16), u64(index, 24)
        end = 32 + 40 * entries
        need(len(index) == end + schema_bytes, "index: wrong size")
        need(
            self.samples == u64(data, trailer + 24),
            "index and trailer have other numbers of samples",
        )
        self.schema = json.loads(index[end:])
        self.columns = self.schema["arrays"]
        self.arrays = [array for array in self.columns if "mask_of" not in array]
        self.entries = [index[32 + 40 * i : 72 + 40 * i] for i in range(entries)]

    def last_trailer(self):
        for at in range(len(self.data) // 64 * 64 - 64, 0, -64):
            trailer = self.data[at : at + 64]
            if trailer[56:] == b"TuckEnd." and checked(trailer, 52) and u64(trailer, 16) == at + 64:
                need(u32(trailer, 48) == 1, "a trailer of another version")
                return at
        raise CorruptError("no trailer")

    def payload(self, at, kind):
        """The payload of the record at `at`, its own checksum compared."""
        need(at % 64 == 0 and at + 32 <= len(self.data), "a record beyond the file")
        head = self.data[at : at + 32]
        need(head[:4] == b"TkRc" and u32(head, 4) == kind and u64(head, 24) == at, "not a record")
        need(checked(head, 16), "record: checksum of the head")
        payload = self.data[at + 32 : at + 32 + u64(head, 8)]
        need(len(payload) == u64(head, 8), "record: cut off")
        covered = payload[:16] if kind == CHUNK else payload
        need(crc32c(covered) == u32(head, 20), "record: checksum of the payload")
        return payload

    def array(self, name):
        """All samples of an array, with its dtype; fill values are put back."""
        number = [array["name"] for array in self.arrays].index(name)
        values, dtype = self.column(number), self.arrays[number]["dtype"]
        for i, mask in enumerate(self.columns):
            if mask.get("mask_of") != name:
                continue
            fill, marks = self.arrays[number]["fill"], self.column(i)
            need(mask["dtype"] == "u8" and marks.shape == values.shape, "not a mask")
            need(marks.max(initial=0) <= len(fill), "a mark of no fill value")
            elements = np.array([element_of(text, dtype) for text in fill], values.dtype)
            bits = values.view(f"u{values.itemsize}")
            words = {int(word) for word in elements.view(bits.dtype)}
            sign = 0 if dtype in ("u8", "u16") else 1 << 8 * values.itemsize - 1
            words |= {0, sign} if words & {0, sign} else set()
            lossy = self.lossy(number).reshape(-1, *[1] * (values.ndim - 1))
            steps = [(word, next_to(word, words, dtype)) for word in words]
            for word, other in steps:
                bits[(marks == 0) & lossy & (bits == word)] = other
            for k, element in enumerate(elements):
                values[marks == k + 1] = element
        return values, dtype

    def lossy(self, number):
        """Which samples of an array with a mask a lossy codec has packed: those that are not raw."""
        found = np.zeros(self.samples, bool)
        for entry in self.entries:
            if u32(entry, 0) == number:
                _, spec, _ = decode_frame(self.payload(u64(entry, 16), CHUNK)[16:])
                first = u64(entry, 8)
                found[first : first + u32(entry, 4)] = spec != "raw"
        return found

    def column(self, number):
        """All samples as they are packed, of an array or a mask."""
        array = self.columns[number]
        parts, expected = [], 0
        for entry in self.entries:
            if u32(entry, 0) != number:
                continue
            samples, first, skipped = u32(entry, 4), u64(entry, 8), u32(entry, 32)
            need(first == expected, "index: samples are missing")
            expected += samples
            payload = self.payload(u64(entry, 16), CHUNK)
            need(len(payload) == u64(entry, 24), "index: wrong size of a chunk")
            need(u32(payload, 0) == number, "a chunk of another array")
            need(u32(entry, 36) == u32(payload, 16 + 24), "index: another checksum of a chunk")
            values, _, dtype = decode_frame(payload[16:])
            need(dtype == array["dtype"], "a chunk of another dtype")
            need(
                list(values.shape) == [u32(payload, 4), *array["shape"]], "a chunk of another shape"
            )
            need(skipped + samples <= len(values), "index: more samples than the chunk has")
            parts.append(values[skipped : skipped + samples])
        need(expected == self.samples, "index: samples are missing")
        empty = np.zeros([0, *array["shape"]], DTYPES[array["dtype"]])
        return np.concatenate([empty, *parts])


def kinds_of(file):
    keys = ("name", "dtype", "shape", "fill", "mask_of")
    return [[array.get(key) for key in keys] for array in file.columns]


class Manifest:
    """Several files as one."""

    def __init__(self, text, folder):
        manifest = json.loads(text)
        need(manifest["tuckfold_manifest"] == 1, "a manifest of another version")
        self.files = []
        for shard in manifest["shards"]:
            data = (folder / shard["file"]).read_bytes()
            need(len(data) >= shard["bytes"], "a shard that was truncated")
            self.files.append(File(data[: shard["bytes"]]))
        for file, shard in zip(self.files, manifest["shards"], strict=True):
            need(file.index_crc == int(shard["index_crc"], 16), "a shard with another index")
            need(file.samples == shard["samples"], "a shard with another number of samples")
            need(kinds_of(file) == kinds_of(self.files[0]), "a shard with other arrays")
        self.arrays, self.schema = self.files[0].arrays, self.files[0].schema
        self.samples = sum(file.samples for file in self.files)

    def array(self, name):
        parts = [file.array(name) for file in self.files]
        return np.concatenate([values for values, _ in parts]), parts[0][1]


def open_file(path):
    data = path.read_bytes()
    return Manifest(data, path.parent) if data[:1] == b"{" else File(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a .tuck file or a manifest")
    parser.add_argument("--array", help="its name; else the arrays are listed")
    parser.add_argument("-o", "--output", type=Path, help="the .npy file to write; bf16 as f32")
    options = parser.parse_args()
    file = open_file(options.file)
    if not options.array:
        for array in file.arrays:
            shape = "x".join(map(str, [file.samples, *array["shape"]]))
            print(f"{array['name']}: {array['dtype']} {shape} {array['codec']}")
        return
    values, dtype = file.array(options.array)
    if dtype == "bf16":
        values = to_f32(values, dtype)
    if options.output:
        np.save(options.output, values)
    else:
        print(values)


if __name__ == "__main__":
    main()
