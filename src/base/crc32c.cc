// CRC-32C with the CPU's instruction if there is one, else with a table, one byte at a time.
#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace tuckfold {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? kPolynomial : 0);
    table[i] = rest;
  }
  return table;
}();

#if defined(__x86_64__)
// The instruction has a latency of three cycles and a throughput of one: three lanes run in
// parallel and are then combined; each is first advanced over as many zero bytes as follow it.
constexpr std::size_t kLaneBytes = 1024;

using PastLane = std::array<std::array<std::uint32_t, 256>, 4>;
const PastLane kPastLane = [] {
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < kLaneBytes; ++i) crc = crc >> 8 ^ kTable[crc & 255];
    of_bit[bit] = crc;
  }
  PastLane table{};
  for (std::size_t byte = 0; byte < 4; ++byte) {
    for (std::size_t value = 0; value < 256; ++value) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if (value >> bit & 1) table[byte][value] ^= of_bit[8 * byte + bit];
      }
    }
  }
  return table;
}();

std::uint32_t past_lane(std::uint64_t crc) {
  return kPastLane[0][crc & 255] ^ kPastLane[1][crc >> 8 & 255] ^ kPastLane[2][crc >> 16 & 255] ^
         kPastLane[3][crc >> 24 & 255];
}

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes,
                                                               std::uint32_t before) noexcept {
  std::uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kLaneBytes; left -= 3 * kLaneBytes, at += 3 * kLaneBytes) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kLaneBytes; i += 8) {
      crc = __builtin_ia32_crc32di(crc, word_at(at + i));
      second = __builtin_ia32_crc32di(second, word_at(at + kLaneBytes + i));
      third = __builtin_ia32_crc32di(third, word_at(at + 2 * kLaneBytes + i));
    }
    crc = past_lane(past_lane(crc) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = __builtin_ia32_crc32di(crc, word_at(at));
  auto rest = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) {
    rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*at));
  }
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  for (const std::byte byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 255];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace tuckfold
