"""nonzero_quant, from docs/codecs/nonzero_quant.md."""

from math import ceil, prod

import numpy as np
from decode_spec import from_f32, need, unpack_block_quant

TILE = 2048
SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "u8": 1.0, "u16": 1.0}


def unpack_nonzero_quant(parameters, dtype, shape, packed):
    bits, group = int(parameters.get("bits", 3)), int(parameters.get("group", 64))
    count = prod(shape)
    tiles, mask_bytes = ceil(count / TILE), ceil(count / 32) * 4
    need(len(packed) >= 4 * tiles + mask_bytes, "nonzero_quant: cut off")
    ends = np.frombuffer(packed, "<u4", tiles).tolist()
    mask = np.frombuffer(packed, np.uint8, mask_bytes, 4 * tiles)
    mask = np.unpackbits(mask, bitorder="little")[:count].astype(bool)
    values, payloads, at = np.zeros(count, np.float32), packed[4 * tiles + mask_bytes :], 0
    for tile, end in enumerate(ends):
        set_bits = mask[tile * TILE : (tile + 1) * TILE]
        number = int(set_bits.sum())
        groups = ceil(number / group)
        need(end - at == groups + ceil(number * bits / 32), "nonzero_quant: wrong size of a tile")
        payload = payloads[4 * at : 4 * end]
        need(len(payload) == 4 * (end - at), "nonzero_quant: cut off within a tile")
        # The same as block_quant's packed bytes, but for the order of headers and codes.
        codes = payload[4 * groups : 4 * groups + ceil(number * bits / 8)]
        of = {"bits": bits, "group": group}
        kept = unpack_block_quant(of, "f32", (number,), codes + payload[: 4 * groups])
        smallest = np.float32(SMALLEST.get(dtype, 2.0**-149))
        kept = np.where(np.abs(kept) < smallest, np.where(kept < 0, -smallest, smallest), kept)
        values[tile * TILE : (tile + 1) * TILE][set_bits] = kept
        at = end
    need(4 * at == len(payloads), "nonzero_quant: bytes left over")
    return from_f32(values, dtype).reshape(shape)


UNPACK = {"nonzero_quant": unpack_nonzero_quant}
