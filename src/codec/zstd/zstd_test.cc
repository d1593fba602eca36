// zstd's bytes, as docs/codecs/zstd.md has them; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::uint32_t kStored = 1U << 31;

std::vector<std::byte> packed(const std::string& text, const std::vector<std::uint8_t>& values,
                              int threads = 0) {
  const CodecSpec spec = CodecSpec::parse(text);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  std::vector<std::byte> out(layout(spec, DType::U8, shape).max_bytes);
  out.resize(
      pack(spec, ConstTensorView(values.data(), DType::U8, shape), out, {.threads = threads}));
  return out;
}

std::vector<std::uint8_t> unpacked(const std::string& text, const std::vector<std::byte>& bytes,
                                   std::size_t count, int threads = 0) {
  std::vector<std::uint8_t> out(count);
  unpack(CodecSpec::parse(text), bytes,
         TensorView(out.data(), DType::U8, {static_cast<std::int64_t>(count)}),
         {.threads = threads});
  return out;
}

Errc refusal(const std::vector<std::byte>& bytes, std::size_t count) {
  return ref::code_of([&] { unpacked("zstd", bytes, count); });
}

// Small numbers, most of them near 0, as residuals of quantized values are.
std::vector<std::uint8_t> residuals(std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::uint8_t> values(count);
  for (std::uint8_t& value : values) {
    value = static_cast<std::uint8_t>(128 + random() % 8 + random() % 8 - random() % 15);
  }
  return values;
}

std::vector<std::uint8_t> noise(std::size_t count) {
  std::mt19937 random(4);
  std::vector<std::uint8_t> values(count);
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random());
  return values;
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
  const std::size_t count = 2 * kChunk + 1234;
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
  const std::size_t count = kChunk + 77;
  const std::vector<std::uint8_t> values = noise(count);
  const std::vector<std::byte> bytes = packed("zstd", values);
  EXPECT_EQ(bytes.size(), count + 8 + 2 * 4);
  EXPECT_EQ(
      bytes.size(),
      layout(CodecSpec::parse("zstd"), DType::U8, {static_cast<std::int64_t>(count)}).max_bytes);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 8), kChunk | kStored);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 12), 77U | kStored);
  EXPECT_EQ(std::memcmp(&bytes[16], values.data(), count), 0);
  EXPECT_EQ(unpacked("zstd", bytes, count), values);
}

// Under ThreadSanitizer too, whose tests are those named Parallel.
TEST(ParallelZstd, ThreadsShareChunksAndDoNotChangeTheBytes) {
  const std::size_t count = 5 * kChunk + 3;
  std::vector<std::uint8_t> values = residuals(count);
  const std::vector<std::uint8_t> random = noise(kChunk);
  std::copy(random.begin(), random.end(), values.begin() + 2 * kChunk);  // one chunk is stored
  const std::vector<std::byte> wanted = packed("zstd(level=-3)", values, 1);
  for (const int threads : {2, 3, 16, 40}) {
    EXPECT_EQ(packed("zstd(level=-3)", values, threads), wanted);
    EXPECT_EQ(unpacked("zstd(level=-3)", wanted, count, threads), values);
  }
}

// Threads keep contexts from call to call; what went through one before must not show.
TEST(Zstd, BytesDoNotDependOnWhatAThreadPackedBefore) {
  struct Task {
    std::string text;
    std::vector<std::uint8_t> values;
    std::vector<std::byte> bytes;  // by a thread that has packed nothing
  };
  std::vector<Task> tasks;
  for (const int level : {-5, -1, 0, 1, 2, 3, 5, 9, 19}) {
    for (const std::size_t count : {1, 700, 5000, 16385, 140000, 300001}) {
      for (const bool random : {false, true}) {
        tasks.push_back({.text = "zstd(level=" + std::to_string(level) + ")",
                         .values = random ? noise(count) : residuals(count),
                         .bytes = {}});
      }
    }
  }
  for (Task& task : tasks) {
    std::thread([&] { task.bytes = packed(task.text, task.values, 1); }).join();
  }
  std::mt19937 random(6);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(tasks.begin(), tasks.end(), random);
    for (const Task& task : tasks) {
      ASSERT_EQ(packed(task.text, task.values, 1), task.bytes) << task.text;
      ASSERT_EQ(unpacked(task.text, task.bytes, task.values.size(), 1), task.values) << task.text;
    }
  }
}

TEST(Zstd, AThreadUnpacksAfterWhatDidNotDecode) {
  const std::vector<std::uint8_t> values = residuals(40000);
  const std::vector<std::byte> bytes = packed("zstd", values);
  for (std::size_t at = 40; at < bytes.size(); at += 997) {
    std::vector<std::byte> torn = bytes;
    torn[at] ^= std::byte{0x55};
    try {
      unpacked("zstd", torn, values.size(), 1);
    } catch (const Error&) {
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
  const std::vector<std::uint8_t> values = residuals(kChunk);
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
  const std::vector<std::byte> bytes = packed("zstd", residuals(2 * kChunk));
  const auto with_total = [&](std::uint64_t total) {
    std::vector<std::byte> other = bytes;
    set_number(other, 0, total);
    return other;
  };
  for (const std::uint64_t total :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2 * kChunk - 1},
        std::uint64_t{2 * kChunk + 1}, std::uint64_t{1} << 40, std::uint64_t{1} << 63,
        ~std::uint64_t{0}}) {
    EXPECT_EQ(refusal(with_total(total), 2 * kChunk), Errc::CorruptData) << total;
    // Behind a codec whose size varies the table alone says how much will be unpacked.
    EXPECT_EQ(ref::code_of([&] { unpacked("zstd | zstd", with_total(total), 2 * kChunk); }),
              Errc::CorruptData)
        << total;
  }
  const auto first = number_at<std::uint32_t>(bytes, 8);
  const auto second = number_at<std::uint32_t>(bytes, 12);
  for (const std::uint32_t size : {0U, first - 1, first + 1, first | kStored, ~0U}) {
    std::vector<std::byte> other = bytes;
    set_number(other, 8, size);
    EXPECT_EQ(refusal(other, 2 * kChunk), Errc::CorruptData) << size;
    set_number(other, 12, first + second - size);  // the sum is right again
    EXPECT_EQ(refusal(other, 2 * kChunk), Errc::CorruptData) << size;
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
