// The buffers in which a thread packs or unpacks a part of codes=bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/bounded/bounded.h"

namespace tuckfold::bounded {

inline constexpr std::int64_t kSlack = 16;  // elements about a row that kernels may touch

// A part's codes, in bytes.
struct Planes {
  static constexpr std::int64_t kRoom = (kPartValues + 96) / 8 * 8;  // whole words
  alignas(64) std::uint8_t low[kRoom];   // two codes of 4 bits, the first lowest, or one of 8
  alignas(64) std::uint8_t high[kRoom];  // what codes of 16 bits have beside
  alignas(64) std::uint8_t more[kRoom];  // of escapes of 4 bits, in the order of their places
};

template <class Real>
struct PartBuffers {
  alignas(64) Real values[kPartValues + kSlack];
  alignas(64) Real moved[kPartValues];                 // rows on their way to or from a band
  alignas(64) Real levels[kPartValues + 4 * kSlack];   // of a Pyramid
  alignas(64) Real odd[kPartValues / 2 + 2 * kSlack];  // every other value of a row
  alignas(64) std::int32_t codes[kPartValues + kSlack];
  alignas(64) std::int32_t row[kPartValues];          // codes of one, or their differences
  alignas(64) std::uint8_t kept[kPartValues];         // whether a value is stored as it is
  alignas(64) std::byte narrowed[kPartValues * 2];    // values as elements
  alignas(64) std::byte present[Planes::kRoom + 32];  // groups of a plane that are not 0
  Planes planes;
};

union AnyPartBuffers {
  PartBuffers<float> f32;
  PartBuffers<double> f64;
};

}  // namespace tuckfold::bounded
