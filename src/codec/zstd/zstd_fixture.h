// Bytes for tests of zstd, packed and unpacked in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tuckfold/codec.h"

namespace tuckfold::ref {

inline constexpr std::size_t kZstdChunk = std::size_t{1} << 20;

inline std::vector<std::byte> packed(const std::string& text,
                                     const std::vector<std::uint8_t>& values, int threads = 0) {
  const CodecSpec spec = CodecSpec::parse(text);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  std::vector<std::byte> out(layout(spec, DType::U8, shape).max_bytes);
  out.resize(
      pack(spec, ConstTensorView(values.data(), DType::U8, shape), out, {.threads = threads}));
  return out;
}

inline std::vector<std::uint8_t> unpacked(const std::string& text,
                                          const std::vector<std::byte>& bytes, std::size_t count,
                                          int threads = 0) {
  std::vector<std::uint8_t> out(count);
  unpack(CodecSpec::parse(text), bytes,
         TensorView(out.data(), DType::U8, {static_cast<std::int64_t>(count)}),
         {.threads = threads});
  return out;
}

// Small numbers, most of them near 0, as residuals of quantized values are.
inline std::vector<std::uint8_t> residuals(std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::uint8_t> values(count);
  for (std::uint8_t& value : values) {
    value = static_cast<std::uint8_t>(128 + random() % 8 + random() % 8 - random() % 15);
  }
  return values;
}

inline std::vector<std::uint8_t> noise(std::size_t count) {
  std::mt19937 random(4);
  std::vector<std::uint8_t> values(count);
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random());
  return values;
}

}  // namespace tuckfold::ref
