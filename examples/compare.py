"""docs/tasks/compare.md with real images: codecs beside each other, and what choose takes.

python examples/compare.py [--samples 1000]

TUCKFOLD_DATA names the folder that holds cifar10/; without it, Debian's Fashion-MNIST is used.
"""

import argparse

import numpy as np
from real_images import real_images

import tuckfold

SPECS = ("dct_chop(keep=4)", "dct_quant(rate=4)", "dct_quant(rate=2)", "block_quant(bits=4)", "bounded(abs=4)", "zstd")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1000)
    name, images, _ = real_images(parser.parse_args().samples)
    images = images.astype(np.float32)
    print(f"{name}, f32, {images.nbytes / 1e6:.1f} MB")
    for spec in SPECS:
        packed = tuckfold.pack(images, spec)
        back = tuckfold.unpack(packed, spec, shape=images.shape, dtype="f32")
        most = np.abs(back - images).max()
        print(f"{spec:20} {images.nbytes / packed.nbytes:5.1f} x  {tuckfold.psnr(images, back):5.1f} dB  largest error {most:.1f}")  # fmt: skip
    choice = tuckfold.choose(images, psnr=40)
    print(f"choose, 40 dB: {choice.codec}, {choice.ratio:.1f} x, {choice.psnr:.1f} dB")


if __name__ == "__main__":
    main()
