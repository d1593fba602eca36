// block_quant: integer codes of `bits` bits, with a scale and a minimum for each group of values in
// row-major order.
//
// Packed: the codes of all groups, where each group begins at a byte and code i of a group has bits
// i*bits … of its bytes, lowest first; then the groups' headers, four bytes each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::block_quant {

struct Params {
  int bits;
  std::int64_t group;
  bool stochastic;
  bool exact_zero;

  static Params of(const Stage& stage);
  std::int64_t code_bytes(std::int64_t values) const { return (values * bits + 7) / 8; }
};

inline constexpr std::size_t kHeaderBytes = 4;

struct Sizes {
  std::int64_t groups;
  std::size_t codes_bytes;  // where the headers begin
  std::size_t total_bytes() const {
    return codes_bytes + static_cast<std::size_t>(groups) * kHeaderBytes;
  }
};
Sizes sizes_of(const Params& params, std::int64_t elems);

// The kernels, over groups [begin, end). They never throw.
struct PackJob {
  Params params;
  std::uint64_t seed;
  const FlatReader* in;
  std::byte* codes;
  std::byte* headers;
};
struct UnpackJob {
  Params params;
  const std::byte* codes;
  const std::byte* headers;
  const FlatWriter* out;
  bool stream;
};
void pack_groups(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_groups(const UnpackJob& job, std::int64_t begin, std::int64_t end);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::block_quant
