// dct_chop: keep the low frequencies of every block ("A Portable, Fast, DCT-based Compressor for AI
// Accelerators", HPDC 2024). Parameters, geometry, sizes; the arithmetic is in dct_chop_block.h.
#pragma once

#include <cstdint>
#include <span>

#include "base/strided.h"
#include "codec/blocks/block_rows.h"
#include "codec/registry.h"

namespace tuckfold::dct_chop {

enum class Transform : unsigned char { Dct, Zfp };

struct Params {
  int block;
  int keep;
  bool triangle;
  DType coef;
  Transform transform;
  int serialize;
  bool planes;  // whether equal frequencies of all blocks are stored together

  static Params of(const Stage& stage);
  int values_per_block() const { return triangle ? keep * (keep + 1) / 2 : keep * keep; }
};

// The shape's blocks; throws InvalidArgument where it has none, or `serialize` does not fit them.
Blocks blocks_of(const Params& params, const Shape& shape);

// The buffers of a CPU thread.
inline constexpr std::int64_t kFlushFloats = 2048;  // packed values collected before they go out
inline constexpr std::int64_t kSlack = 16;          // a vector may write junk this far past the end
inline constexpr int kMaxBlock = 16;
inline constexpr std::int64_t kLineValues = kBlockRowFloats / 4;
struct PackBuffers {
  alignas(64) float gathered[kBlockRowFloats];
  alignas(64) float square[kBlockRowFloats + kSlack];
  alignas(64) float values[kFlushFloats + kBlockRowFloats + kSlack];  // on their way out
  alignas(64) std::uint16_t narrow[kFlushFloats + kBlockRowFloats];
  alignas(64) float flat[kTileFloats + kCopySlack];  // a tile's values before they are padded
  alignas(64) float line[kLineValues];               // of one plane
  alignas(64) std::uint16_t narrow_line[kLineValues];
  alignas(64) float slots[2][kFlushFloats + kBlockRowFloats + 8 * 16];
};
struct UnpackBuffers {
  alignas(64) float linear[kBlockRowFloats + kSlack];
  alignas(64) float square[kBlockRowFloats + kMaxBlock * kSlack];
  alignas(64) float values[kBlockRowFloats];
  alignas(64) float flat[kTileFloats + kCopySlack];
  alignas(64) float line[kLineValues];
};

// The kernels, over block rows [begin, end). They never throw.
using PackJob = PackBlockRows<Params>;
using UnpackJob = UnpackBlockRows<Params>;
void pack_block_rows(const PackJob& job, std::int64_t begin, std::int64_t end,
                     PackBuffers& buffers);
void unpack_block_rows(const UnpackJob& job, std::int64_t begin, std::int64_t end,
                       UnpackBuffers& buffers);

// On CUDA, tensors of up to so many blocks for each multiprocessor are small: a separate kernel
// takes several of them at once. Larger ones keep one thread per block busy.
inline constexpr std::int64_t kSmallBlocks = 512;

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::dct_chop
