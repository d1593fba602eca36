// unpack_then from its definition, one value at a time. For tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/tensor_fixture.h"
#include "tuckfold/unpack_then.h"

namespace tuckfold::ref {

// The numbers of some channels, with those that need care: 0, -0, infinities and NaN in results.
struct Channels {
  std::vector<float> scale, shift;

  explicit Channels(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>(i % 101);
      scale.push_back(i % 13 == 5 ? 0.0f : i % 17 == 3 ? 3e38f : 0.37f * x - 9);
      shift.push_back(i % 13 == 5 ? -0.0f : i % 19 == 4 ? NAN : 1.7f - 0.21f * x);
    }
  }
  // Those of a tensor that is added to it.
  Channels others() const {
    Channels found(static_cast<std::int64_t>(scale.size()));
    for (float& each : found.scale) each = 0.5f - 0.125f * each;
    return found;
  }
  Then then(std::int64_t inner, bool relu) const {
    return {.scale = scale.data(),
            .shift = shift.data(),
            .channels = static_cast<std::int64_t>(scale.size()),
            .inner = inner,
            .relu = relu};
  }
};

// Bits for so many values.
inline std::vector<std::byte> gate_of(std::int64_t elems) {
  std::vector<std::byte> bits;
  for (std::int64_t i = 0; i < elems; i += 8) {
    bits.push_back(static_cast<std::byte>(i / 8 * 0x9d + i / 1024));
  }
  return bits;
}

// What unpack_then gives for values that were unpacked, as doubles of the dtype. The exact product
// and sum are rounded to f32 one after the other.
inline std::vector<double> then_ref(DType dtype, const std::vector<double>& unpacked,
                                    const Channels& channels, std::int64_t inner, bool relu,
                                    const std::vector<double>& add = {},
                                    const std::vector<std::byte>& gate = {}) {
  const double least = dtype == DType::F16 ? 0x1p-24 : 0x1p-126;
  std::vector<double> all;
  for (std::size_t i = 0; i < unpacked.size(); ++i) {
    const std::size_t c = i / static_cast<std::size_t>(inner) % channels.scale.size();
    const auto product = static_cast<float>(double{channels.scale[c]} * unpacked[i]);
    auto sum = static_cast<float>(double{product} + channels.shift[c]);
    if (!add.empty()) sum = static_cast<float>(double{sum} + add[i]);
    alignas(8) std::byte element[8];
    double y = relu && !(sum > 0) && !std::isnan(sum) ? 0.0 : double{sum};
    if (!gate.empty()) {
      const bool open = (gate[i / 8] >> i % 8 & std::byte{1}) == std::byte{1};
      y = !open ? 0.0 : y < least ? least : y;
    }
    set(dtype, element, 0, y);
    all.push_back(get(dtype, element, 0));
  }
  return all;
}

}  // namespace tuckfold::ref
