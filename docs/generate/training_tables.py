"""Tables of training, for docs/generate/benchmarks.py: activations, studies, structured layers."""

from __future__ import annotations

from results import ROOT, Results, table

NETWORKS = {
    "alexnet_cifar": "AlexNet for CIFAR-10, f32",
    "vgg16_f32": "VGG-16, f32",
    "vgg16_bf16": "VGG-16, bf16",
    "resnet50_tf32": "ResNet-50, batch 256, 256², TF32",
    "resnet50_bf16": "ResNet-50, batch 256, 224², bf16, channels_last",
    "unet_bf16": "UNet, bf16",
    "vit_s": "ViT-S/16, batch 512, bf16",
    "vit_b": "ViT-B/16, batch 128, bf16",
    "gpt": "GPT, 12 × 768, dropout, bf16",
    "gpt_lora": "GPT, LoRA on all linears, bf16",
    "resnet50_frozen": "ResNet-50, mostly frozen, bf16",
    "resnet50_small": "ResNet-50, batch 8, bf16",
    "gpt_small": "GPT, batch 1, bf16",
}
LOSSY = {"resnet50_bf16": "ResNet-50", "vit_b": "ViT-B/16", "gpt": "GPT 12 × 768"}
EAGER = LOSSY | {"vit_s": "ViT-S/16", "resnet50_tf32": "ResNet-50, TF32, rows, 256²"}
TRAINED = {
    "resnet18_trained": "ResNet-18, CIFAR-10",
    "vit_trained": "ViT of six blocks, CIFAR-10",
    "gpt_trained": "GPT of six blocks, text",
}


def activations_table() -> str:
    results = Results("activations")
    text = "## Activations stored exactly\n\n`tuckfold.torch.wrap(model)` on one H200: forward, backward and SGD with momentum, medians. Peak is torch's largest allocation\nin a step. *Same bits*: every gradient is that of the plain model, bit by bit.\n\n"
    lines = []
    for work, name in NETWORKS.items():
        rows = {row["variant"]: row for row in results.rows if row["work"] == work}
        wrap = rows["wrap"]
        same = (
            "yes" if wrap["identical"] else "no" if wrap["plain_repeats"] else "plain varies, too"
        )
        lines.append(
            [
                name,
                f"{wrap['stored_ratio']:.2f}",
                _peak_and_time(wrap),
                _peak_and_time(rows["wrap, recompute=2"]),
                f"{100 * rows['wrap, nothing to gain']['time_over_plain'] - 100:+.0f} %",
                same,
                _peak_and_time(rows.get("checkpoint")),
            ]
        )
    text += table(
        [
            "",
            "saved / stored",
            "`wrap`: peak, times less; time",
            "`recompute=2`",
            "nothing to gain: time",
            "same bits",
            "checkpoint of each block",
        ],
        lines,
    )
    predicted = [row["predicted_over_peak"] for row in results.rows if "predicted_over_peak" in row]
    near = sum(abs(ratio - 1) <= 0.03 for ratio in predicted)
    text += (
        "\n*Nothing to gain*: wrapped so that every tensor is kept. Where the GPU waits for the host (batch 8, batch 1, AlexNet) times of the same step vary by a tenth and\n"
        "more from run to run. `act.peak`, asked before the first step, was within 3 % of the measured peak in\n"
        f"{near} of {len(predicted)} cells, and {100 - 100 * min(predicted):.0f} % off at worst.\n"
    )
    return (
        text
        + f"\n{results.link}; [bench/experiments/activations](../bench/experiments/activations/README.md) has the command.\n\n"
        + recipes_table()
    )


def recipes_table() -> str:
    """What gives the same bits again, by the operator that comes last."""
    names = {"activations_recipes": "CPU", "activations_recipes_gpu": "H200"}
    found = {
        name: Results(name) for name in names if (ROOT / f"bench/results/{name}.json").exists()
    }
    cells: dict[str, dict[str, list[int]]] = {}
    before: dict[str, set[str]] = {}
    for name, results in found.items():
        for row in results.rows:
            last, _, rest = row["operators"].partition("(")
            same, sizes = cells.setdefault(last, {}).setdefault(name, [0, 0])
            cells[last][name] = [same + row["same_bits"], sizes + row["sizes"]]
            before.setdefault(last, set()).update({rest.removesuffix(")")} - {""})
    lines = [
        [f"`{last}`", ", ".join(f"`{b}`" for b in sorted(before[last]))]
        + ["{} of {}".format(*of[name]) if name in of else "" for name in found]
        for last, of in sorted(cells.items())
    ]
    links = " and ".join(results.link for results in found.values())
    return (
        "### Operators that give the same bits again\n\nWhat `wrap` recomputes is compared first, on the device. In how many of the compared sizes, strides and dtypes it had the same bits, by the operator that comes last, and what comes before it:\n\n"
        + table(["operator", "after", *(names[name] for name in found)], lines)
        + f"\n`normalize` and `normalize_rows` are kernels of ours. {links}.\n\n"
    )


def _peak_and_time(row: dict | None) -> str:
    if row is None:
        return "–"
    return f"{row['peak_ratio']:.2f}, {100 * row['time_over_plain'] - 100:+.0f} %"


def _trained(rows: list[dict]) -> str:
    """Gradients of networks that were trained for a while, and the largest batch."""
    lines = [
        [f"{TRAINED[row['work']]}, {row['variant']}", f"{row['cosine']:.4f}", f"{row['bias']:.4f}", f"{row['variance']:.4f}"]
        for row in rows
        if row["work"] in TRAINED and "variance" in row
    ]  # fmt: skip
    text = ""
    if lines:
        text += "Gradients of networks that were trained for a short while, over eight batches: the least cosine of a parameter, the bias, and the variance that the codec adds, as a part of that between batches:\n\n"
        text += table(["", "cosine", "bias", "added variance"], lines) + "\n"
    batches = {row["variant"]: row["batch"] for row in rows if "batch" in row}
    if batches:
        text += f"Within 16 GiB the largest batch of the ResNet-50, its first steps included, was {batches['plain']} images plain and {batches['4 bits']} with 4 bits.\n\n"
    return text


def codecs_table() -> str:
    """Activations that codecs store, eager and compiled."""
    text = "## Activations packed by codecs\n\nThe same steps on one H200 with `wrap(model, codec=...)` of 4 bits a value, 8 for what attention computes scores from, and with budgets; bf16, random images and weights:\n\n"
    results, compiled = Results("activations_lossy"), Results("activations_compiled")
    variants = ["wrap", "4 bits", "budget 6 GiB", "budget 4 GiB"]
    lines = []
    for work, name in EAGER.items():
        rows = {row["variant"]: row for row in results.rows if row["work"] == work}
        if rows:
            lines.append([name, *(_peak_and_time(rows.get(v)) for v in variants)])
    text += table(["eager", "`wrap`: peak, times less; time", "4 bits", *variants[2:]], lines)
    text += "\n" + _trained(results.rows)
    text += f"{results.link}\n\n"
    lines = []
    for work, name in LOSSY.items():
        rows = {row["variant"]: row for row in compiled.rows if row["work"] == work}
        variants = ["wrap", "codec", "budget 0.5"]
        lines.append([name, *(_peak_and_time(rows[v]) for v in variants)])
    heads = ["compiled", "`wrap`: peak, times less; time", "4 bits", "torch's own budget of 0.5"]
    return text + table(heads, lines) + f"\n{compiled.link}\n\n"


def studies_table() -> str:
    """Trainings with activations that codecs store."""
    curves, scores = Results("loss_curves_gpu"), Results("adaptive_activations_gpu")
    text = '## Training with packed activations\n\nTraining loss at the end above that of the plain model with the same seed, means of three seeds; "noise 1%" is `wrap(model, noise="1%")`:\n\n'
    ways = ("exact", "4 bits", "2 bits", "noise 1%")
    names = {"resnet": "ResNet-18, CIFAR-10", "gpt": "GPT, 6 × 384, text"}
    above = [
        [name, *(f"{curves.one('loss_above_plain', network=n, way=w):+.3f}" for w in ways)]
        for n, name in names.items()
    ]
    text += table(["", *ways], above)
    text += f"\n{curves.link}; [bench/experiments/loss_curves](../bench/experiments/loss_curves/README.md) has the command.\n\n"
    text += "Points of accuracy lost against exact storage at an average score of 0.7, means and deviations of three seeds, and bytes saved over bytes stored:\n\n"
    names = {"alexnet": "AlexNet", "transformer": "transformer", "gcn": "GCN"}
    lines = []
    for family in ("bounded", "block_quant", "dct_quant", "adaptive"):
        cells = []
        for network in names:
            of = {"network": network, "family": family}
            lost, spread, ratio = (
                scores.one("points_lost_at_0.7", key, **of)
                for key in ("value", "deviation", "ratio")
            )
            cells.append(f"{lost:.1f} ± {spread:.1f}; {ratio:.1f}")
        lines.append([f"`{family}`" if family != "adaptive" else "the best for each", *cells])
    text += table(["", *names.values()], lines)
    return (
        text
        + f"\n{scores.link}; [bench/experiments/adaptive_activations](../bench/experiments/adaptive_activations/README.md) has the command.\n\n"
    )


def butterfly_table() -> str:
    """Butterflies on a GPU beside dense layers."""
    results = Results("layers_cuda")
    text = "## Butterflies on a GPU\n\nThe time of `nn.Linear` over that of `Butterfly` on an H200, 4,096 samples: forward; and forward with backward:\n\n"
    lines = []
    for features in (512, 1024, 2048, 4096, 8192):
        cells = []
        for linear in ("tf32", "bf16"):
            of = {"features": features, "batch": 4096, "layer": "butterfly", "linear": linear}
            both = [results.one(f"{w}_of_linear", **of) for w in ("forward", "step")]
            cells.append("; ".join(f"{value:.2f}" for value in both))
        lines.append([str(features), *cells])
    text += table(["features", "TF32", "bf16"], lines)
    return text + f"\n{results.link}; below 512 features training is slower than dense.\n\n"
