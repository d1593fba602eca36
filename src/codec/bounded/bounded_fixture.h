// What tests of bounded share: packing by a spec's text, and values whose codes give rows of every form.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold::ref {

// A chunk of whole numbers. With abs=0.5 they are their own codes.
struct SteppedValues {
  std::string name;
  std::vector<double> values;
};

// Differences whose zigzag numbers have up to 1 … 15 bits, from nearly none to all of them, and the
// same with even differences.
inline std::vector<SteppedValues> stepped_values() {
  std::vector<SteppedValues> all;
  std::mt19937 random(17);
  for (const double scale : {1.0, 2.0}) {
    for (unsigned bits = 1; bits <= 15; ++bits) {
      for (const unsigned every : {500u, 100u, 20u, 4u, 1u}) {
        SteppedValues stepped{fmt::format("{} bits, one of {}, times {}", bits, every, scale), {}};
        double value = 3000;
        for (unsigned i = 0; i < 1024; ++i) {
          const unsigned most = (1u << bits) - 1;
          const auto drawn = static_cast<unsigned>(random());
          const unsigned number = i == 77 ? most : random() % every == 0 ? drawn & most : 0;
          value += scale * (number % 2 == 0 ? number / 2.0 : -0.5 * (number + 1.0));
          stepped.values.push_back(value);
        }
        all.push_back(stepped);
      }
    }
  }
  return all;
}

inline constexpr const char* kCodes[] = {"bits", "bytes"};

struct Packed {
  CodecSpec spec;
  std::vector<std::byte> bytes;

  Tensor unpack(const Tensor& like) const {
    Tensor out(like.dtype(), like.shape());
    tuckfold::unpack(spec, bytes, out.view());
    return out;
  }
};

inline Packed pack_tensor(const std::string& text, const Tensor& in) {
  Packed packed{CodecSpec::parse(text), {}};
  packed.bytes.resize(layout(packed.spec, in.dtype(), in.shape()).max_bytes);
  packed.bytes.resize(pack(packed.spec, in.view(), packed.bytes));
  return packed;
}

inline std::string spec_text(const char* kind, double bound, const char* codes,
                             bool exact = false) {
  return fmt::format("bounded({}={}, codes={}{})", kind, bound, codes, exact ? ", zero=exact" : "");
}

// Smooth here, noisy there, with zeros and values that must be kept.
inline std::vector<double> mixture(DType dtype, std::int64_t planes, std::int64_t rows,
                                   std::int64_t cols) {
  std::vector<double> values;
  std::mt19937 random(11);
  const double scale = dtype == DType::U8 ? 100 : dtype == DType::U16 ? 20000 : 1;
  for (std::int64_t p = 0; p < planes; ++p) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto y = static_cast<double>(r), x = static_cast<double>(c);
        double value = 1.2 + std::sin(x / 30 + static_cast<double>(p)) * std::cos(y / 20);
        if (p % 3 == 1) value += 0.5 * static_cast<double>(random() % 1000) / 1000;
        if (p % 3 == 2) value = random() % 3 == 0 ? value : 0;
        if (random() % 997 == 0 && !is_whole(dtype)) value = p % 2 == 0 ? std::nan("") : 1e30;
        values.push_back(value * scale);
      }
    }
  }
  return values;
}

}  // namespace tuckfold::ref
