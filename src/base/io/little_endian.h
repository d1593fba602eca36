// Numbers in files: little-endian, at any address.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tuckfold {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

using ByteSpan = std::span<const std::byte>;

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

inline void store_text(std::byte* at, std::string_view text) noexcept {
  if (!text.empty()) std::memcpy(at, text.data(), text.size());
}

inline bool begins_with(ByteSpan bytes, std::string_view text) noexcept {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

inline std::string_view text_of(ByteSpan bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) noexcept {
  return (value + step - 1) / step * step;
}

}  // namespace tuckfold
