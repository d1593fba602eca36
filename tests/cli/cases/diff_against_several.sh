# MNIST's two files are one original.
python3 - <<PY
import struct
from pathlib import Path
pixels = bytes((7 * i + i // 28) % 256 for i in range(5 * 28 * 28))
Path("train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 5, 28, 28) + pixels)
Path("train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 5) + bytes(range(5)))
PY
"$TUCKFOLD" pack train-* -o train.tuck --codec "dct_quant(rate=4)" --quiet
"$TUCKFOLD" diff train.tuck --against train-images-idx3-ubyte train-labels-idx1-ubyte
"$TUCKFOLD" diff train.tuck train-labels-idx1-ubyte
"$TUCKFOLD" diff train.tuck train-labels-idx1-ubyte --rename label=image || echo "exit $?"
