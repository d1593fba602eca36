// nonzero_quant: one bit for each value that says whether it is 0, and block_quant's codes of the
// others alone. The number of packed bytes depends on how many values are not 0.
//
// Packed: for each tile of 2048 values the end of its payload, u32, in 32-bit words from the first
// payload on; a bit for each value, padded to a word; the payloads. A payload has the headers of the
// tile's groups, then the codes of its values that are not 0, padded to a word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/strided.h"
#include "codec/nonzero_quant/nonzero_quant_block.h"
#include "codec/registry.h"

namespace tuckfold::nonzero_quant {

struct Params {
  int bits;
  std::int64_t group;
  bool stochastic;

  static Params of(const Stage& stage);
  std::int64_t words(std::int64_t count) const { return tile_words(bits, group, count); }
};

// Sizes that follow from the number of values alone.
struct Sizes {
  std::int64_t elems, tiles;

  explicit Sizes(std::int64_t count) : elems(count), tiles((count + kTile - 1) / kTile) {}
  std::int64_t tile_elems(std::int64_t tile) const {
    return elems - tile * kTile < kTile ? elems - tile * kTile : kTile;
  }
  std::size_t mask_at() const { return static_cast<std::size_t>(tiles) * 4; }
  std::size_t front_bytes() const {
    return mask_at() + static_cast<std::size_t>((elems + 31) / 32) * 4;
  }
  // Of all payloads, if no value is 0.
  std::uint64_t most_words(const Params& params) const;
};

// The kernels. They never throw.
struct PackJob {
  Params params;
  std::uint64_t seed;
  const FlatReader* in;
  std::byte* ends;  // pack_tiles stores each tile's own words there
  std::byte* mask;
};
struct UnpackJob {
  Params params;
  const std::byte* ends;
  const std::byte* mask;
  const std::byte* payloads;
  const FlatWriter* out;
  bool stream;
};
// Packs tiles [begin, end) to payloads that follow each other from `out` on; returns their words.
std::int64_t pack_tiles(const PackJob& job, std::int64_t begin, std::int64_t end, std::byte* out);
// False if a payload has not the words that its bits of the mask need; its values are then not
// written. All payloads end within the packed bytes.
bool unpack_tiles(const UnpackJob& job, std::int64_t begin, std::int64_t end);

// The workspace of CUDA kernels: a control block, and a word for each kTogether tiles.
inline constexpr std::int64_t kTogether = 8;
inline constexpr std::size_t kCudaControlBytes = 64;
inline std::size_t cuda_workspace_bytes(const Sizes& sizes) {
  if (sizes.tiles == 0) return 0;
  return kCudaControlBytes +
         8 * static_cast<std::size_t>((sizes.tiles + kTogether - 1) / kTogether);
}

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::nonzero_quant

namespace tuckfold {

extern const Codec kNonzeroQuant;

}  // namespace tuckfold
