#!/usr/bin/env python3
"""Writes docs/benchmarks.md, and the table of README.md, from bench/results; --check only compares.

docs/generate/benchmarks.py [--check]
"""

from __future__ import annotations

import re
import sys

from results import ROOT, Results, median_factor, median_rows, span, table
from training_tables import activations_table, butterfly_table, codecs_table, studies_table

PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
MARKS = ("<!-- measured: docs/generate/benchmarks.py writes this table -->", "<!-- end -->")


def cpu_tables() -> str:
    chop, quant = Results("dct_chop_cpu"), Results("dct_quant_cpu")
    block, bounded, torch = Results("block_quant_cpu"), Results("bounded_cpu"), Results("torch_cpu")
    text = "## CPU\n\nTwo cores of an AMD EPYC (Zen 4), AVX-512, f32 on huge pages. A *copy* is a plain non-temporal copy of the\n"
    text += "same array in the same process; figures are its time over ours, medians over the rounds, geometric means over the shapes.\n\n"
    for threads in (1, 2):
        rows = median_rows(chop, "keep", list(range(2, 8)), threads=threads)
        text += f"`dct_chop` over a copy, {threads} thread{'s' if threads > 1 else ''}:\n\n"
        text += table(["keep", *map(str, range(2, 8))], rows) + "\n"
    text += f"{chop.link}, `./dev bench dct_chop`\n\n"
    specs = [f"block_quant(bits={bits})" for bits in (2, 4, 8)]
    specs += ["block_quant(bits=4, round=stochastic)", "block_quant(bits=4, group=64)"]
    text += "`block_quant` over a copy, 1 thread:\n\n"
    rows = [
        [
            f"`{spec}`",
            *(
                f"{block.one(f'{w}_of_copy', 'median', codec=spec, threads=1):.2f}"
                for w in ("pack", "unpack")
            ),
        ]
        for spec in specs
    ]
    text += (
        table(["codec", "pack", "unpack"], rows) + f"\n{block.link}, `./dev bench block_quant`\n\n"
    )
    rates = [2, 3, 4, 6, 8]
    rows = [
        [
            "PSNR over zfp's, dB, mean of the arrays",
            *(f"+{quant.one('gain_db_mean', rate=r):.1f}" for r in rates),
        ],
        [
            "the array with the least",
            *(f"+{quant.one('gain_db_least', rate=r):.1f}" for r in rates),
        ],
        [
            "pack, times zfp's speed",
            *(f"{median_factor(quant, 'pack', 'dct_quant', 'zfp', r):.0f}" for r in rates),
        ],
        [
            "unpack, times zfp's speed",
            *(f"{median_factor(quant, 'unpack', 'dct_quant', 'zfp', r):.0f}" for r in rates),
        ],
        *[[f"{row[0]} over a copy", *row[1:]] for row in median_rows(quant, "rate", rates)],
    ]
    text += "`dct_quant` beside zfp of the same fixed rate, 1 thread; photographs, electron microscopy, CIFAR-10, climate and\nweather fields, activations of a network. Masks of a few levels and very smooth fields are not among them: zfp is often better there, and can be exact.\n\n"
    text += table(["rate", *map(str, rates)], rows) + f"\n{quant.link}, `./dev bench dct_quant`\n\n"
    rows = [
        [
            f"`{codec}`",
            peer,
            *(
                f"{bounded.one(f, codec=codec, peer=peer.lower()):.2f}"
                for f in ("ratio_of_mean", "ratio_of_least")
            ),
            *(
                f"{median_factor(bounded, way, codec, peer.lower()):.1f}"
                for way in ("pack", "unpack")
            ),
        ]
        for codec, peer in (("bounded", "SZx"), ("bounded", "PFPL"), ("bounded | zstd", "SZ3"))
        if any(row["codec"].startswith(f"{peer.lower()}(") for row in bounded.rows)
    ]
    rows = [[cell.replace(" | zstd", " \\| zstd") for cell in row] for row in rows]
    text += "The same error bound, 1 thread, the same arrays, bounds of 1e-2, 1e-3 and 1e-4 of the range:\n\n"
    text += table(
        [
            "codec",
            "against",
            "ratio over theirs, mean",
            "least",
            "pack, times their speed",
            "unpack",
        ],
        rows,
    )
    text += f"\n{bounded.link}, `./dev bench bounded`\n\n"
    rows = [
        [
            name,
            *(
                f"{torch.one(f, against=key):.1f} ({torch.one(f, 'min', against=key):.1f})"
                for f in ("pack_factor", "unpack_factor")
            ),
        ]
        for name, key in (
            ("the paper's two matrix products", "paper"),
            ("the fastest of four ways", "best_torch"),
        )
    ]
    text += "`dct_chop` beside PyTorch, times its speed, geometric mean over six shapes, keep 2 to 7, one and two threads, and\nthe least in brackets; medians:\n\n"
    return (
        text
        + table(["against", "pack", "unpack"], rows)
        + f"\n{torch.link}, `./dev bench torch`\n\n"
    )


def real_cpu_tables() -> str:
    """Codecs on tensors as networks save them, over what they reach on f32 rows."""
    real = Results("real_cpu")
    threads = min(row["threads"] for row in real.rows)
    groups = [
        ("bf16 rows", {"memory": "rows", "dtype": "bf16"}),
        ("f16 rows", {"memory": "rows", "dtype": "f16"}),
        ("f32 channels_last", {"memory": "channels_last", "dtype": "f32"}),
        ("bf16 channels_last", {"memory": "channels_last", "dtype": "bf16"}),
        ("f32 transposed", {"memory": "transposed", "dtype": "f32"}),
        ("f32 padded rows", {"memory": "padded", "dtype": "f32"}),
    ]

    def cells(spec: str, way: str, sides: str, **where: object) -> str:
        found = [
            row
            for row in real.figures
            if row["figure"] == f"{way}_of_f32_rows"
            and row["threads"] == threads
            and row["codec"] == spec
            and row["sides"] == sides
            and all(row[key] == value for key, value in where.items())
        ]
        return f"{found[0]['value']:.2f} ({found[0]['mean']:.2f})" if found else "–"

    specs = list(dict.fromkeys(row["codec"] for row in real.rows if row["dtype"] == "f32"))
    text = "### Tensors that networks save, on the CPU\n\n"
    text += "Activations of convolutions and transformers, one thread. The first columns are f32 rows of 64 × 64 planes over a copy. The others are what\n"
    text += "a codec reaches of that, byte for byte: the least tensor, and in brackets the mean. A tensor of f16 or bf16 has twice the values in as many\n"
    text += "bytes, so a codec whose time is arithmetic reaches a half. *Odd* sides are 56, 28, 14, 7 and 197 × 384; others are multiples of 64.\n\n"
    for way in ("pack", "unpack"):
        rows = []
        for spec in specs:
            reference = next(
                row[f"{way}_of_copy"]
                for row in real.rows
                if row["codec"] == spec
                and row["sides"] == "reference"
                and row["memory"] == "rows"
                and row["dtype"] == "f32"
                and row["threads"] == threads
            )
            line = [f"`{spec}`".replace("|", "\\|"), f"{reference:.2f}"]
            line.append(cells(spec, way, "odd", memory="rows", dtype="f32"))
            line += [cells(spec, way, "odd", **where) for _, where in groups]
            rows.append(line)
        text += f"{way}:\n\n"
        text += table(["", "of a copy", "f32 rows, odd", *(f"{n}, odd" for n, _ in groups)], rows)
        text += "\n"
    judged = [row for row in real.figures if "pass" in row and row["threads"] == threads]
    missed = [row for row in judged if not row["pass"]]
    text += (
        f"The aim is 0.7 where sides are multiples of 8 and 0.6 elsewhere: {len(judged) - len(missed)} of {len(judged)} "
        "pairs of codec and memory reach it with their slowest tensor. "
    )
    by_codec = {
        spec: sum(row["codec"] == spec for row in missed) for spec in {r["codec"] for r in missed}
    }
    order = sorted(by_codec, key=lambda spec: (-by_codec[spec], spec))
    text += (
        "Those that miss, by codec: " + ", ".join(f"`{s}` {by_codec[s]}" for s in order) + ".\n\n"
    )
    return text + f"{real.link}, `./dev bench real`\n\n"


def gpu_table() -> str:
    gpu = Results("gpu")
    rows = []
    for name, where in (
        (
            "`dct_chop` square, 1 GB and more",
            {"kernel": "dct_chop", "size": ">=1 GB", "kind": "square"},
        ),
        (
            "`dct_chop` square, 80 to 320 MB",
            {"kernel": "dct_chop", "size": "80-320 MB", "kind": "square"},
        ),
        ("`dct_chop` bf16, 1 GB and more", {"kernel": "dct_chop bf16", "size": ">=1 GB"}),
        (
            "`dct_chop \\| block_quant`, 1 GB and more",
            {"kernel": "fused", "size": ">=1 GB", "keep": "to 7"},
        ),
        ("`dct_quant`, rates 2 to 8", {"kernel": "dct_quant"}),
        *(
            (f"`block_quant(bits={bits})`", {"kernel": "block_quant", "bits": bits})
            for bits in (2, 4, 8)
        ),
        ("`bounded(abs=…)`", {"kernel": "bounded"}),
    ):
        rows.append(
            [name, *(f"{gpu.one(f'{w}_of_copy', **where):.2f}" for w in ("pack", "unpack"))]
        )
    text = "## GPU\n\nOne H200, f32 rows unless named. Each figure is the least of its cells, medians of 25 calls, over a copy of 4 GB in the\nsame run. Other layouts and dtypes are slower: see [limitations](limitations.md).\n\n"
    text += table(["kernel", "pack", "unpack"], rows)
    return text + f"\n{gpu.link}, `./dev bench gpu`\n\n"


def least_and_mean(rows: list[dict], way: str, **where: object) -> str:
    """Of a copy of the same bytes, plain calls and graphs, whichever is slower."""
    found = [
        row["of_same_copy"]
        for row in rows
        if row["way"] == way
        and "of_same_copy" in row
        and all(row.get(k) == v for k, v in where.items())
    ]
    return f"{min(found):.2f} ({sum(found) / len(found):.2f})" if found else "–"


def bounded_tables() -> str:
    """Codecs within a bound, and unpacking with what follows."""
    file = Results("gpu_real_bounded")
    dtypes = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    kinds = [(dtype, way) for dtype in dtypes for way in ("pack", "unpack")]
    rows = [row for row in file.rows if row["kernel"] == "real bounded"]
    text = "`bounded` in storage order, of tensors from 100 MB to 800 MB. `pack_checked` and `unpack_checked` do not wait for the size and for the verdict, which takes 30 to 120 µs of `unpack`. A relative\nbound reads all values once more.\n\n"
    lines = [
        [f"`{spec}`", *(least_and_mean(rows, w, codec=spec, dtype=d) for d, w in kinds)]
        for spec in dict.fromkeys(row["codec"] for row in rows)
    ]
    text += table(["", *(f"{dtypes[d]} {w}" for d, w in kinds)], lines) + "\n"
    least = min(row["graph_of_same_copy"] for row in rows if row["way"] == "unpack")
    text += f"In a CUDA graph, where nothing waits, all of these tensors are unpacked at {least:.2f} or more.\n\n"
    after = [row for row in file.rows if row["kernel"] == "real then"]
    text += "`unpack(then=...)`, a normalization and ReLU of 256 × 56 × 56 and 1024 × 14 × 14 channels × planes, beside `unpack` alone:\n\n"
    shown = [
        (dtype, memory) for dtype in ("float32", "bfloat16") for memory in ("rows", "channels_last")
    ]
    lines = []
    for spec in dict.fromkeys(row["codec"] for row in after):
        line = [f"`{spec}`"]
        for dtype, memory in shown:
            some = [
                r for r in after if (r["codec"], r["dtype"], r["data"]) == (spec, dtype, memory)
            ]
            more = max(row["us"] / row["unpack_us"] for row in some)
            line.append(f"{least_and_mean(some, 'unpack')[:4]}, {more:.2f}× the time")
        lines.append(line)
    head = ["", *(f"{dtypes[dtype]} {memory}" for dtype, memory in shown)]
    text += table(head, lines) + "\n"
    return text + f"{file.link}, `./dev bench gpu --only real_bounded,real_then,real_exact`\n\n"


def real_tables() -> str:
    real = Results("gpu_real")
    text = "### Tensors that networks save\n\nActivations of ResNet-50, ViT and GPT, 50 MB to 1 GB, through the operators of `tuckfold.torch`, over a copy of as many bytes: the least\ncell, and in brackets the mean. `block_quant` packs in storage order, so rows and channels_last are alike.\n\n"
    groups = [row for row in real.rows if row["kernel"] == "real"]
    others = Results("gpu_real_exact")
    exact = [row for row in others.rows if row["kernel"] == "real exact"]
    of_planes = Results("gpu_real_planes")
    planes = [row for row in of_planes.rows if not row["codec"].startswith("bounded")]
    kinds = [(dtype, way) for dtype in ("float32", "bfloat16") for way in ("pack", "unpack")]
    head = [
        "",
        *(f"{ {'float32': 'f32', 'bfloat16': 'bf16'}[dtype] } {way}" for dtype, way in kinds),
    ]
    lines = [
        [f"`{spec}`", *(least_and_mean(groups, w, codec=spec, dtype=d) for d, w in kinds)]
        for spec in dict.fromkeys(row["codec"] for row in groups)
    ]
    lines += [
        [f"`{spec}`", *(least_and_mean(exact, w, codec=spec, dtype=d) for d, w in kinds)]
        for spec in ("positive",)
    ]
    text += table(head, lines) + "\n"
    text += "Codecs of planes pack in logical order. `multiples of 8`: planes of 56 × 56, 128 × 128 and 1024 × 3072; `others`: 28 × 28, 14 × 14, 7 × 7\nand 197 × 1536. Padding to whole blocks makes 28 × 28 and 14 × 14 planes 1.31 times as large for the arithmetic.\n\n"
    lines = [
        [
            f"`{spec}`, {memory}, {sides}".replace("|", "\\|"),
            *(
                least_and_mean(planes, w, codec=spec, dtype=d, data=memory, sides=sides)
                for d, w in kinds
            ),
        ]
        for spec in dict.fromkeys(row["codec"] for row in planes)
        for memory in ("rows", "channels_last")
        for sides in ("multiples of 8", "others")
    ]
    text += table(head, lines) + "\n"
    text += f"{of_planes.link}, `./dev bench gpu --only real_planes`\n\n"
    text += bounded_tables()
    indices = [row for row in exact if row["shape"] == "pool indices"]
    ways = " and ".join(
        f"{least_and_mean(indices, way)[:4]} {way}ing" for way in ("pack", "unpack")
    )
    text += f"`mask` and `bytes_of` on dropout masks and images: {least_and_mean([row for row in exact if row['codec'].startswith(('mask', 'bytes_of'))], 'pack')[:4]} packing or more. `pool_index` of a 3 × 3 pooling: {ways}.\n\n"
    steps = [row for row in others.rows if row["kernel"] == "real step"]
    text += "A training step whose saved activations over 64 KB are packed in 4 bits by hooks, bf16 autocast, SGD with momentum:\n\n"
    text += table(
        ["", "ms", "peak GiB"],
        [
            [f"{row['shape']}, {row['data']}", f"{row['ms']:.1f}", f"{row['peak_gib']:.2f}"]
            for row in steps
        ],
    )
    return text + f"\n{real.link}, `./dev bench gpu --only real,real_exact,real_many,real_step`\n\n"


def killed(files: Results) -> str:
    return f"{files.one('lost_or_wrong', 'kills', part='kills'):,} killed writers"


def changed(files: Results) -> str:
    return f"{files.one('lost_or_wrong', 'bytes', part='flips'):,} changed bytes"


def files_table() -> str:
    files = Results("files")
    rows = [
        [
            "packing, over reading the input, the codec and a plain write one after the other",
            span(files.values("pack_of_parts")),
        ],
        [
            "packing to a file, over the codec from memory to memory",
            span(files.values("pack_of_codec_alone")),
        ],
        ["reading all samples, over the codec alone", span(files.values("unpack_of_codec"))],
        ["one sample at random, in the page cache, µs", span(files.values("access_us"), ".0f")],
        ["memory for 8 GB over that for 1 GB", span(files.values("growth"))],
        [
            "size at 45 dB, over zfp's",
            span(files.values("of_peer", part="photographs", peer="zfp")),
        ],
        [
            "size at 45 dB, over JPEG's",
            span(files.values("of_peer", part="photographs", peer="jpeg_files")),
        ],
        ["size without loss, over `zstd -19`", span(files.values("of_peer", part="lossless"))],
        [
            f"samples lost or silently wrong after {killed(files)}",
            f"{files.one('lost_or_wrong', part='kills'):.0f}",
        ],
        [f"the same after {changed(files)}", f"{files.one('lost_or_wrong', part='flips'):.0f}"],
    ]
    return (
        "## Dataset files\n\nTwo cores, best rounds, over all codecs measured:\n\n"
        + table(["", ""], rows)
        + f"\n{files.link}, `./dev bench files`\n"
    )


def loader_table() -> str:
    loader = Results("loader_cpu")
    quiet = loader.machine["load_average"] < 1.5  # else times that pass are those of other programs
    rows = []
    for spec in dict.fromkeys(row["codec"] for row in loader.figures):
        reader = next(row for row in loader.rows if row["reader"] == spec)
        jpeg = [f for f in loader.figures if f["figure"] == "of_jpeg" and f["codec"] == spec]
        psnr = reader["psnr_db"]
        rows.append(
            [
                f"`{spec}`",
                f"{reader['bytes_a_sample']:.0f}",
                "exact" if psnr is None else f"{psnr:.1f} dB",
                f"{loader.one('of_memmap', codec=spec):.2f}",
                f"{loader.one('of_memmap', 'of_memmap_cold', codec=spec):.2f}"
                if quiet
                else f"≈ {1 / loader.one('of_memmap', 'cold_bytes_of_memmap', codec=spec):.1f}",
                f"{loader.one('throttled_of_memmap', codec=spec):.1f}"
                if quiet
                else f"≈ {loader.one('throttled_of_memmap', 'by_processor_time', codec=spec):.1f}",
                f"{jpeg[0]['value']:.0f}" if jpeg else "–",
            ]
        )
    head = ["codec", "bytes an image", "quality", "beside a mapped file", "cold cache", "500 MB/s", "beside JPEG"]  # fmt: skip
    return (
        "\n## Batches in random order\n\nCIFAR-10 in batches of 256, one core. The speed over that of plain images in a mapped file, which `raw` and `dct_quant` "
        "hold as u8 and `bytes_of` as f32: by processor\ntime with all in memory; by time with a cold cache; and by time if reads are limited to 500 MB/s. "
        "*Beside JPEG*: times the speed of libjpeg-turbo at the same PSNR.\n\n"
        + table(head, rows)
        + f"\n{loader.link}; [bench/experiments/loader](../bench/experiments/loader/README.md) has the command. "
        + (
            ""
            if quiet
            else "The machine was busy: times that pass were not taken, and ≈ follows from bytes, with a cold cache those that the disk read, and processor time."
        )
        + "\n"
    )


def loader_cuda_table() -> str:
    """Nothing, as long as it was not measured."""
    if not (ROOT / "bench/results/loader_cuda.json").exists():
        return ""
    loader = Results("loader_cuda")

    def cell(part: str, figure: str, spec: str, form: str) -> str:
        found = [f["value"] for f in loader.figures if f["figure"] == figure and (f["part"], f["codec"]) == (part, spec)]  # fmt: skip
        return format(found[0], form) if found else "–"

    rows = [
        [
            f"`{spec}`",
            cell("small", "of_memmap", spec, ".2f"),
            cell("large", "of_memmap", spec, ".2f"),
            cell("large", "decoded_gb_s", spec, ".0f"),
            cell("training", "slower", spec, ".3f"),
        ]
        for spec in dict.fromkeys(row["codec"] for row in loader.figures)
    ]
    head = ["codec", "3x32x32", "3x224x224", "GB/s of f32 pixels", "training"]
    return (
        "\n### Batches on a GPU\n\nOn an H200, from the page cache: images a second over those of a plain array in a mapped file that torch's operators normalize on the "
        "GPU; f32 pixels made in a second; and the time of an epoch of ResNet-18\nin bf16 over that with all images in the GPU's memory, with the same crops and flips.\n\n"
        + table(head, rows)
        + f"\n{loader.link}; [bench/experiments/loader](../bench/experiments/loader/README.md) has the command.\n"
    )


def page() -> str:
    head = '# How fast is it, and beside what?\n\nEvery table here is made from a file of `bench/results`, which holds the machine, the commit and the command.\nA file also says which of its figures fall short of what we want (`"pass": false`).\n\n'
    return (
        head
        + activations_table()
        + codecs_table()
        + studies_table()
        + butterfly_table()
        + cpu_tables()
        + real_cpu_tables()
        + gpu_table()
        + real_tables()
        + files_table()
        + loader_table()
        + loader_cuda_table()
    )


def readme_table() -> str:
    quant, gpu = Results("dct_quant_cpu"), Results("gpu")
    bounded, files = Results("bounded_cpu"), Results("files")
    ways = ("pack", "unpack")
    networks = ("resnet50_tf32", "resnet50_bf16", "unet_bf16", "vit_s", "vit_b")
    wrapped = [
        row
        for row in Results("activations").rows
        if row["variant"] == "wrap" and row["work"] in networks
    ]
    packed = [
        row
        for row in Results("activations_lossy").rows
        if row["variant"] == "4 bits" and row["work"] in networks and "peak_ratio" in row
    ]
    rows = [
        [
            "`wrap(model)`: ResNet-50, UNet and ViT on an H200, exact gradients; with `codec=` of 4 bits",
            f"{span([row['peak_ratio'] for row in wrapped])} times less memory at the peak, steps {span([100 * row['time_over_plain'] - 100 for row in wrapped], '.0f')} % longer; "
            f"{span([row['peak_ratio'] for row in packed])} times, {span([100 * row['time_over_plain'] - 100 for row in packed], '.0f')} %",
        ],
        [
            "`dct_quant` beside zfp at the same rate, mean over images and fields",
            f"{span(quant.values('gain_db_mean'), '.1f')} dB better, {span([median_factor(quant, w, 'dct_quant', 'zfp', r) for w in ways for r in (2, 3, 4, 6, 8)], '.0f')} times as fast",
        ],
        [
            "`bounded` beside SZx at the same bound",
            f"{bounded.one('ratio_of_mean', codec='bounded', peer='szx'):.2f} times the ratio, {median_factor(bounded, 'pack', 'bounded', 'szx'):.0f} and {median_factor(bounded, 'unpack', 'bounded', 'szx'):.0f} times as fast",
        ],
        [
            "`block_quant`, 2 to 8 bits, on an H200",
            "packs and unpacks at "
            + " and ".join(span(gpu.values(f"{w}_of_copy", kernel="block_quant")) for w in ways)
            + " of a copy's speed",
        ],
        [
            f"{killed(files)}, {changed(files)}",
            f"{sum(files.values('lost_or_wrong')):.0f} samples lost or silently wrong",
        ],
    ]
    return table(["", "measured"], rows)


def main() -> int:
    start, end = MARKS
    before = README.read_text()
    block = re.compile(re.escape(start) + r"\n.*?" + re.escape(end), re.S)
    readme = block.sub(lambda _: f"{start}\n{readme_table()}{end}", before)
    if "--check" in sys.argv[1:]:
        same = readme == before and PAGE.exists() and PAGE.read_text() == page()
        if not same:
            print("the benchmark tables are out of date; run docs/generate/benchmarks.py")
        return not same
    README.write_text(readme)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
