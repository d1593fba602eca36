// zstd's bytes, as docs/codecs/zstd.md has them; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/zstd/zstd_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::kZstdChunk;
using ref::noise;
using ref::packed;
using ref::residuals;
using ref::unpacked;

constexpr std::uint32_t kStored = 1U << 31;

Errc refusal(const std::vector<std::byte>& bytes, std::size_t count) {
  return ref::code_of([&] { unpacked("zstd", bytes, count); });
}

template <class T>
T number_at(const std::vector<std::byte>& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, &bytes.at(at), sizeof value);
  return value;
}

template <class T>
void set_number(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(&bytes.at(at), &value, sizeof value);
}

TEST(Zstd, EveryLevelKeepsEveryByteOfEverySize) {
  for (int level = -5; level <= 19; ++level) {
    const std::string text = "zstd(level=" + std::to_string(level) + ")";
    for (const std::size_t count : {1, 2, 9, 100, 5000, 16384, 16385, 131073, 300001}) {
      const std::vector<std::uint8_t> values = residuals(count);
      const std::vector<std::byte> bytes = packed(text, values);
      ASSERT_EQ(unpacked(text, bytes, count), values) << text << ' ' << count;
      if (count >= 5000) {
        EXPECT_LT(bytes.size(), count * 3 / 4) << text << ' ' << count;
      }
    }
  }
}

TEST(Zstd, ATableGivesTheTotalAndEachFramesSize) {
  const std::size_t count = 2 * kZstdChunk + 1234;
  const std::vector<std::uint8_t> values = residuals(count);
  const std::vector<std::byte> bytes = packed("zstd", values);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 0), count);
  std::size_t at = 8 + 3 * 4;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at), 0xfd2fb528U);  // a frame's magic number
    at += number_at<std::uint32_t>(bytes, 8 + 4 * i);
  }
  EXPECT_EQ(at, bytes.size());
}

TEST(Zstd, ChunksThatWouldGrowAreStored) {
  const std::size_t count = kZstdChunk + 77;
  const std::vector<std::uint8_t> values = noise(count);
  const std::vector<std::byte> bytes = packed("zstd", values);
  EXPECT_EQ(bytes.size(), count + 8 + 2 * 4);
  EXPECT_EQ(
      bytes.size(),
      layout(CodecSpec::parse("zstd"), DType::U8, {static_cast<std::int64_t>(count)}).max_bytes);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 8), kZstdChunk | kStored);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 12), 77U | kStored);
  EXPECT_EQ(std::memcmp(&bytes[16], values.data(), count), 0);
  EXPECT_EQ(unpacked("zstd", bytes, count), values);
}

TEST(Zstd, AThreadUnpacksAfterWhatDidNotDecode) {
  const std::vector<std::uint8_t> values = residuals(40000);
  const std::vector<std::byte> bytes = packed("zstd", values);
  for (std::size_t at = 40; at < bytes.size(); at += 997) {
    std::vector<std::byte> torn = bytes;
    torn[at] ^= std::byte{0x55};
    try {
      unpacked("zstd", torn, values.size(), 1);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::CorruptData);
    }
    ASSERT_EQ(unpacked("zstd", bytes, values.size(), 1), values);
  }
}

TEST(Zstd, StridedTensorsOfSeveralChunksAreReadAndWrittenInPlace) {
  const CodecSpec spec = CodecSpec::parse("zstd");
  const Shape shape{3, 300, 400};
  const ref::Tensor plain = std::move(ref::Tensor(DType::F32, shape).fill(ref::Pattern::Ramp));
  std::vector<std::byte> wanted(layout(spec, DType::F32, shape).max_bytes);
  wanted.resize(pack(spec, plain.view(), wanted));
  for (const ref::Order order : {ref::Order::ChannelsLast, ref::Order::Gapped}) {
    ref::Tensor strided(DType::F32, shape, order);
    strided.fill(plain.values());
    std::vector<std::byte> bytes(layout(spec, DType::F32, shape).max_bytes);
    bytes.resize(pack(spec, strided.view(), bytes));
    EXPECT_EQ(bytes, wanted);
    const ref::Tensor back(DType::F32, shape, order);
    unpack(spec, bytes, back.view());
    EXPECT_EQ(back.bytes(), plain.bytes());
    EXPECT_TRUE(back.gaps_untouched());
  }
}

TEST(Zstd, NanPayloadsAndNegativeZerosStay) {
  const std::vector<std::uint32_t> bits = {0x7fc00001, 0xffc12345, 0x80000000, 0x7f800000, 1};
  std::vector<float> values(bits.size()), back(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * 4);
  const CodecSpec spec = CodecSpec::parse("zstd");
  std::vector<std::byte> bytes(layout(spec, DType::F32, {5}).max_bytes);
  bytes.resize(pack(spec, ConstTensorView(values.data(), DType::F32, {5}), bytes));
  unpack(spec, bytes, TensorView(back.data(), DType::F32, {5}));
  EXPECT_EQ(std::memcmp(back.data(), bits.data(), bits.size() * 4), 0);
}

TEST(Zstd, NegativeLevelsCodeTheirLiterals) {
  const std::vector<std::uint8_t> values = residuals(kZstdChunk);
  const auto at_1 = static_cast<double>(packed("zstd(level=1)", values).size());
  EXPECT_LT(static_cast<double>(packed("zstd(level=-5)", values).size()), 1.1 * at_1);
}

TEST(Zstd, AnEmptyTensorPacksToNothing) {
  EXPECT_EQ(packed("zstd", {}).size(), 0u);
  EXPECT_EQ(packed("zstd | zstd", {}).size(), 0u);
  EXPECT_EQ(unpacked("zstd", {}, 0).size(), 0u);
  EXPECT_EQ(refusal(packed("zstd", residuals(9)), 0), Errc::CorruptData);
  EXPECT_EQ(refusal({}, 9), Errc::CorruptData);
}

TEST(Zstd, EveryTruncationIsCorruptData) {
  const std::vector<std::byte> bytes = packed("zstd", residuals(3000));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_EQ(refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, 3000),
              Errc::CorruptData)
        << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_EQ(refusal(longer, 3000), Errc::CorruptData);
}

TEST(Zstd, FlippedBitsAreCorruptDataOrOtherValues) {
  const std::vector<std::byte> bytes = packed("zstd", residuals(3000));
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 3) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    try {
      unpacked("zstd", flipped, 3000);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
      ++refused;
    }
    if (bit / 8 < 12) {
      EXPECT_EQ(refusal(flipped, 3000), Errc::CorruptData) << "bit " << bit << " of the table";
    }
  }
  EXPECT_GT(refused, 32);
}

TEST(Zstd, ATableThatLiesIsCorruptData) {
  const std::vector<std::byte> bytes = packed("zstd", residuals(2 * kZstdChunk));
  const auto with_total = [&](std::uint64_t total) {
    std::vector<std::byte> other = bytes;
    set_number(other, 0, total);
    return other;
  };
  for (const std::uint64_t total :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2 * kZstdChunk - 1},
        std::uint64_t{2 * kZstdChunk + 1}, std::uint64_t{1} << 40, std::uint64_t{1} << 63,
        ~std::uint64_t{0}}) {
    EXPECT_EQ(refusal(with_total(total), 2 * kZstdChunk), Errc::CorruptData) << total;
    // Only the table says how much will be unpacked if zstd follows a codec of variable size.
    EXPECT_EQ(ref::code_of([&] { unpacked("zstd | zstd", with_total(total), 2 * kZstdChunk); }),
              Errc::CorruptData)
        << total;
  }
  const auto first = number_at<std::uint32_t>(bytes, 8);
  const auto second = number_at<std::uint32_t>(bytes, 12);
  for (const std::uint32_t size : {0U, first - 1, first + 1, first | kStored, ~0U}) {
    std::vector<std::byte> other = bytes;
    set_number(other, 8, size);
    EXPECT_EQ(refusal(other, 2 * kZstdChunk), Errc::CorruptData) << size;
    set_number(other, 12, first + second - size);  // the sum is right again
    EXPECT_EQ(refusal(other, 2 * kZstdChunk), Errc::CorruptData) << size;
  }
}

TEST(Zstd, APackedTensorOfAnotherSizeIsCorruptData) {
  const std::vector<std::byte> bytes = packed("zstd", residuals(3000));
  EXPECT_EQ(refusal(bytes, 2999), Errc::CorruptData);
  EXPECT_EQ(refusal(bytes, 3001), Errc::CorruptData);
}

TEST(Zstd, AWorkspaceDoesNotShrinkWhenATensorGrows) {
  for (const int level : {-5, 1, 3, 9, 15, 19}) {
    const CodecSpec spec = CodecSpec::parse("zstd(level=" + std::to_string(level) + ")");
    Layout before = layout(spec, DType::U8, {1});
    for (std::int64_t bytes = 2; bytes < 5 << 20; bytes += 1 + bytes / 5) {
      const Layout fit = layout(spec, DType::U8, {bytes});
      ASSERT_GE(fit.workspace_bytes, before.workspace_bytes) << level << ' ' << bytes;
      ASSERT_GE(fit.max_bytes, before.max_bytes);
      before = fit;
    }
  }
}

TEST(Zstd, OnlyACodecOfBytesMayFollow) {
  for (const char* text : {"zstd | block_quant", "zstd | raw | dct_chop"}) {
    try {
      layout(CodecSpec::parse(text), DType::F32, {64, 64});
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      EXPECT_NE(std::string(error.what()).find("needs a tensor"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_FALSE(layout(CodecSpec::parse("zstd | raw"), DType::F32, {64, 64}).fixed);
}

}  // namespace
}  // namespace tuckfold
