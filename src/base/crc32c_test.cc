// CRC-32C against the vectors of RFC 3720, and the instruction against the table.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace tuckfold {
namespace {

std::uint32_t of_text(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(of_text(""), 0u);
  EXPECT_EQ(of_text("123456789"), 0xe3069283u);
  std::vector<std::uint8_t> bytes(32, 0);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x8a9136aau);
  bytes.assign(32, 255);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), 0x46dd794eu);
}

TEST(Crc32c, InstructionAndTableAgreeAtEveryLengthAndAddress) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(200);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; size + begin <= bytes.size(); ++size) {
      const std::span<const std::byte> part = std::span(bytes).subspan(begin, size);
      ASSERT_EQ(crc32c(part, 7), crc32c_by_table(part, 7)) << begin << " " << size;
    }
  }
}

TEST(Crc32c, LanesAndTableAgreeOnLongBytes) {
  std::mt19937 random(4);
  std::vector<std::byte> bytes(20000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const std::size_t lanes : {1, 2, 5}) {
    for (std::size_t size = 3072 * lanes - 17; size < 3072 * lanes + 17; ++size) {
      const std::span<const std::byte> part = std::span(bytes).subspan(size % 7, size);
      ASSERT_EQ(crc32c(part, 7), crc32c_by_table(part, 7)) << size;
    }
  }
}

TEST(Crc32c, PartsGiveTheWhole) {
  const std::string_view text = "fold it small and tuck it away";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t first = of_text(text.substr(0, cut));
    ASSERT_EQ(crc32c(std::as_bytes(std::span(text.substr(cut))), first), of_text(text));
  }
}

}  // namespace
}  // namespace tuckfold
