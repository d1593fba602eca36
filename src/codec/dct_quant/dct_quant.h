// dct_quant: a fixed number of bits for every block of 8 x 8 values, assigned to the frequencies
// that need them. Parameters and sizes; the arithmetic and the bits are in dct_quant_block.h.
//
// Packed: the blocks one after the other, by rows of blocks, 8 * rate bytes each.
#pragma once

#include <cstdint>

#include "base/strided.h"
#include "codec/blocks/block_rows.h"
#include "codec/dct_quant/dct_quant_block.h"
#include "codec/registry.h"

namespace tuckfold::dct_quant {

struct Params {
  Form form;
  float offset;  // subtracted before, added after
  bool clamp;    // negative values become 0

  static Params of(const Stage& stage);
};

// The kernels, over block rows [begin, end). They never throw.
using PackJob = PackBlockRows<Params>;
using UnpackJob = UnpackBlockRows<Params>;
void pack_block_rows(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_block_rows(const UnpackJob& job, std::int64_t begin, std::int64_t end);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::dct_quant
