// Copies rows that lie apart. Of short ones memcpy takes longer to look at them than to copy; of
// longer ones its widest stores often cross cache lines, which is slow where those are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tuckfold {

namespace detail {

// Rows of kPart to 2 * kPart bytes as two parts, which overlap.
template <std::size_t kPart>
void copy_rows_in_two(const std::byte* from, std::int64_t from_step, std::byte* to,
                      std::int64_t to_step, std::int64_t rows, std::int64_t bytes) {
  const std::int64_t second = bytes - static_cast<std::int64_t>(kPart);
  for (std::int64_t i = 0; i < rows; ++i, from += from_step, to += to_step) {
    std::byte a[kPart], b[kPart];
    std::memcpy(a, from, kPart);
    std::memcpy(b, from + second, kPart);
    std::memcpy(to, a, kPart);
    std::memcpy(to + second, b, kPart);
  }
}

}  // namespace detail

// `rows` of so many bytes each; steps count bytes. The two must not overlap.
inline void copy_rows(const std::byte* from, std::int64_t from_step, std::byte* to,
                      std::int64_t to_step, std::int64_t rows, std::int64_t bytes) {
  constexpr std::int64_t kPart = 16, kLong = 512 * kPart;
  if (bytes < kLong) {
    if (bytes > 2 * kPart) {
      for (std::int64_t i = 0; i < rows; ++i, from += from_step, to += to_step) {
        for (std::int64_t at = 0; at < bytes - kPart; at += kPart) {
          std::memcpy(to + at, from + at, kPart);
        }
        std::memcpy(to + bytes - kPart, from + bytes - kPart, kPart);
      }
      return;
    }
    if (bytes >= 16) return detail::copy_rows_in_two<16>(from, from_step, to, to_step, rows, bytes);
    if (bytes >= 8) return detail::copy_rows_in_two<8>(from, from_step, to, to_step, rows, bytes);
    if (bytes >= 4) return detail::copy_rows_in_two<4>(from, from_step, to, to_step, rows, bytes);
    if (bytes >= 2) return detail::copy_rows_in_two<2>(from, from_step, to, to_step, rows, bytes);
  }
  for (std::int64_t i = 0; i < rows; ++i, from += from_step, to += to_step) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

}  // namespace tuckfold
