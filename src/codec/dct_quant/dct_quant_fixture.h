// What the tests of dct_quant share: planes packed block by block, values, and headers that fit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/dct_quant/dct_quant_ref.h"
#include "tuckfold/codec.h"

namespace tuckfold::dct_quant_fixture {

using dct_quant_ref::Header;
using dct_quant_ref::Rules;
using ref::random_values;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kMax = std::numeric_limits<float>::max();
inline constexpr int kDcs[] = {4, 8, 12};

inline std::string spec_text(double rate, int dc = 8, const char* more = "") {
  return fmt::format("dct_quant(rate={}, dc={}{})", rate, dc, more);
}

// ---- packed planes, block by block --------------------------------------------------------------

struct Packed {
  CodecSpec spec;
  Shape shape;
  std::vector<std::byte> bytes;

  std::vector<float> unpack() const {
    std::vector<float> out(static_cast<std::size_t>(shape.elems()), -77.0f);
    tuckfold::unpack(spec, bytes, TensorView(out.data(), DType::F32, shape));
    return out;
  }
  std::uint8_t* block(std::int64_t index) {
    return reinterpret_cast<std::uint8_t*>(bytes.data()) +
           index * static_cast<std::int64_t>(spec.stages()[0]["rate"] * 8);
  }
};

inline Packed pack_values(const std::string& text, const std::vector<float>& values,
                          const Shape& shape) {
  Packed packed{CodecSpec::parse(text), shape, {}};
  packed.bytes.resize(layout(packed.spec, DType::F32, shape).max_bytes);
  pack(packed.spec, ConstTensorView(values.data(), DType::F32, shape), packed.bytes);
  return packed;
}
// Blocks side by side.
inline Shape row_of_blocks(std::int64_t count) { return {8, 8 * count}; }
inline std::size_t at(std::int64_t blocks, std::int64_t b, int i) {
  return static_cast<std::size_t>(i / 8 * 8 * blocks + b * 8 + i % 8);
}

// A wave on a slope.
inline std::vector<float> smooth_values(std::int64_t rows, std::int64_t cols) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto r = static_cast<double>(i / cols), c = static_cast<double>(i % cols);
    values.push_back(static_cast<float>(std::sin(0.11 * r + 0.07 * c) + 0.01 * r));
  }
  return values;
}

inline ref::Dense coefficients_of(const float* x, std::int64_t row) {
  ref::Dense a(8, 8);
  for (int i = 0; i < 64; ++i) a.at(i / 8, i % 8) = x[i / 8 * row + i % 8];
  const ref::Dense t = ref::dct_matrix(8);
  return ref::product(ref::product(t, a), ref::transposed(t));
}
inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// Every coefficient must be off by at most half of its tile's step, the first, which its width may
// stop, by a step; those of tiles without bits must come back as 0. Rounding comes on top.
inline void expect_within_steps(const Rules& rules, const std::uint8_t* block, const float* x,
                                std::int64_t row) {
  const Header header = dct_quant_ref::read_header(rules, block);
  ASSERT_TRUE(header.fits);
  const ref::Dense wanted = coefficients_of(x, row);
  const ref::Dense got = dct_quant_ref::coefficients(rules, block);
  const double rounding = largest(wanted.values) * 0x1p-20;
  for (int k = 0; k < 16; ++k) {
    for (int t = 0; t < 4; ++t) {
      const int u = 2 * dct_quant_ref::kTiles[k][0] + t / 2;
      const int v = 2 * dct_quant_ref::kTiles[k][1] + t % 2;
      if (k >= rules.tiles) {
        ASSERT_EQ(got.at(u, v), 0) << k;
        continue;
      }
      const double step = dct_quant_ref::step_size(header.step) / (header.finer(rules, k) ? 2 : 1);
      const double most = k == 0 && t == 0 ? step : step / 2;
      ASSERT_NEAR(got.at(u, v), wanted.at(u, v), most + rounding) << "tile " << k << " value " << t;
    }
  }
}

// A valid header followed by random bytes.
inline std::vector<std::uint8_t> random_block(const Rules& rules, std::mt19937& random) {
  std::vector<std::uint8_t> block(static_cast<std::size_t>(rules.bytes));
  for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(random());
  Header header;
  do {
    header.step = 80 + static_cast<int>(random() % 800);
    header.widths = {rules.bias + static_cast<int>(random() % 16)};
    while (static_cast<int>(header.widths.size()) < rules.tiles) {
      const int least = std::max(0, header.widths.back() - 2);
      const int choices = header.widths.back() + 2 - least;
      header.widths.push_back(least + static_cast<int>(random() % static_cast<unsigned>(choices)));
    }
    dct_quant_ref::write_header(rules, header, block.data());
  } while (!dct_quant_ref::read_header(rules, block.data()).fits);
  return block;
}

template <class Check>
void for_each_rate(Check&& check, int step = 1) {
  for (int eighths = 8; eighths <= 128; eighths += step) {
    for (const int dc : kDcs) {
      SCOPED_TRACE(spec_text(eighths / 8.0, dc));
      check(eighths / 8.0, dc);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace tuckfold::dct_quant_fixture
