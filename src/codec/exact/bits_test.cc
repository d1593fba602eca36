// bits against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "base/dtype.h"
#include "base/target.h"
#include "codec/contract_fixture.h"
#include "codec/exact/bits_ref.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr DType kWhole[] = {DType::U8,  DType::I32, DType::I64, DType::U16,
                            DType::I16, DType::I8,  DType::U32, DType::U64};

int bits_of(DType dtype) { return static_cast<int>(8 * size_bytes(dtype)); }

ref::Tensor tensor_of(DType dtype, const std::vector<std::int64_t>& values,
                      ref::Order order = ref::Order::RowMajor) {
  ref::Tensor tensor(dtype, {static_cast<std::int64_t>(values.size())}, order);
  std::vector<std::byte> bytes(values.size() * size_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&bytes[i * size_bytes(dtype)], &values[i], size_bytes(dtype));
  }
  unpack(CodecSpec::parse("raw"), bytes, tensor.view());
  return tensor;
}

std::vector<std::byte> packed(const std::string& text, const ref::Tensor& in) {
  const CodecSpec spec = CodecSpec::parse(text);
  std::vector<std::byte> bytes(layout(spec, in.dtype(), in.shape()).max_bytes);
  bytes.resize(pack(spec, in.view(), bytes));
  return bytes;
}

std::vector<std::byte> unpacked(const std::string& text, const std::vector<std::byte>& bytes,
                                DType dtype, std::int64_t elems) {
  const ref::Tensor out(dtype, {elems});
  unpack(CodecSpec::parse(text), bytes, out.view());
  return out.bytes();
}

std::string error_of(auto&& call, Errc code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

// Values whose range takes exactly `width` bits, with a minimum that the dtype holds.
std::vector<std::int64_t> values_of(DType dtype, int width, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  const int room = bits_of(dtype);
  const bool is_signed = info_of(dtype).kind == DTypeKind::Signed;
  const std::int64_t lowest = is_signed ? kLeast >> (64 - room) : 0;
  const std::uint64_t span = width == 0 ? 0 : ~std::uint64_t{0} >> (64 - width);
  const std::uint64_t spare = (~std::uint64_t{0} >> (64 - room)) - span;
  const std::uint64_t shift = spare == ~std::uint64_t{0} ? random() : random() % (spare + 1);
  const std::uint64_t minimum = static_cast<std::uint64_t>(lowest) + shift;
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t code = i == 1 ? 0 : i == 0 ? span : random() & span;
    values[i] = static_cast<std::int64_t>(minimum + code);
  }
  return values;
}

TEST(Bits, BytesAreThoseOfTheDefinitionForEveryWidthAndTarget) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const DType dtype : kWhole) {
      for (int width = 0; width <= bits_of(dtype); ++width) {
        // Past a batch of the kernel, and not a multiple of 8.
        for (const std::size_t count : {std::size_t{2}, std::size_t{75}, std::size_t{1024 + 93}}) {
          const auto values = values_of(dtype, width, count, static_cast<unsigned>(width));
          const bits_ref::Less less{dtype == DType::U64};
          ASSERT_EQ(bits_ref::width_of(values, less), width);
          const ref::Tensor in = tensor_of(dtype, values);
          const auto elems = static_cast<std::int64_t>(count);
          const std::vector<std::byte> bytes = packed("bits", in);
          ASSERT_EQ(bytes, bits_ref::pack(values, width, true, less)) << target << ' ' << width;
          ASSERT_EQ(unpacked("bits", bytes, dtype, elems), in.bytes()) << target << ' ' << width;
          const std::string text = fmt::format("bits(width={})", width);
          if (width == 0 || !ref::suits(CodecSpec::parse(text), dtype, in.shape())) continue;
          const std::vector<std::byte> fixed = packed(text, in);
          ASSERT_EQ(fixed, width == bits_of(dtype) ? in.bytes()
                                                   : bits_ref::pack(values, width, false, less));
          ASSERT_EQ(unpacked(text, fixed, dtype, elems), in.bytes()) << target << ' ' << width;
        }
      }
    }
  }
  use_cpu_target(before);
}

TEST(Bits, TheWholeRangeOfI64FitsIn64Bits) {
  const ref::Tensor in = tensor_of(DType::I64, {kLeast, -1, 0, kMost, 5});
  const std::vector<std::byte> bytes = packed("bits", in);
  EXPECT_EQ(bytes.size(), 8 + 1 + 5 * 8u);
  EXPECT_EQ(bytes[8], std::byte{64});
  EXPECT_EQ(unpacked("bits", bytes, DType::I64, 5), in.bytes());
  EXPECT_EQ(packed("bits(width=64)", in), in.bytes());
  EXPECT_EQ(unpacked("bits(width=64)", in.bytes(), DType::I64, 5), in.bytes());
}

TEST(Bits, U64IsOrderedWithoutASign) {
  const ref::Tensor in = tensor_of(DType::U64, {kLeast + 3, kMost - 1, -1});
  const std::vector<std::byte> bytes = packed("bits", in);  // 2^63 + 3, 2^63 - 2, 2^64 - 1
  EXPECT_EQ(unpacked("bits", bytes, DType::U64, 3), in.bytes());
  EXPECT_EQ(bytes[8], std::byte{64});
  const std::string text = error_of([&] { packed("bits(width=2)", in); }, Errc::InvalidArgument);
  EXPECT_NE(text.find("got 9223372036854775806..18446744073709551615"), text.npos) << text;
  const ref::Tensor near = tensor_of(DType::U64, {kLeast, kMost});
  EXPECT_EQ(packed("bits", near)[8], std::byte{1});
  EXPECT_EQ(unpacked("bits(width=1)", packed("bits(width=1)", near), DType::U64, 2), near.bytes());
}

TEST(Bits, ABoolTakesOneBit) {
  const ref::Tensor in = tensor_of(DType::Bool, {1, 0, 0, 1, 1, 0, 1, 1, 1, 0});
  EXPECT_EQ(packed("bits(width=1)", in).size(), 8 + 2u);
  EXPECT_EQ(unpacked("bits(width=1)", packed("bits(width=1)", in), DType::Bool, 10), in.bytes());
  std::vector<std::byte> damaged = packed("bits(width=1)", in);
  damaged[0] = std::byte{1};  // the minimum, so that values are 1 and 2
  EXPECT_EQ(unpacked("bits(width=1)", damaged, DType::Bool, 10),
            std::vector<std::byte>(10, std::byte{1}));
}

TEST(Bits, EqualValuesTakeNoBitsAtAll) {
  for (const std::int64_t value : {kLeast, std::int64_t{-3}, std::int64_t{0}, kMost}) {
    const ref::Tensor in = tensor_of(DType::I64, std::vector<std::int64_t>(5000, value));
    const std::vector<std::byte> bytes = packed("bits", in);
    EXPECT_EQ(bytes.size(), 9u);
    EXPECT_EQ(unpacked("bits", bytes, DType::I64, 5000), in.bytes());
  }
}

TEST(Bits, NegativeValuesAreDistancesFromTheMinimum) {
  const ref::Tensor in = tensor_of(DType::I32, {-7, -8, -1, -5, -8, -6, -2, -3, -4, -7, -8, -1});
  const std::vector<std::byte> bytes = packed("bits(width=3)", in);
  EXPECT_EQ(bytes.size(), 8 + 5u);
  EXPECT_EQ(bytes[0], std::byte{0xf8});
  EXPECT_EQ(bytes[8], std::byte{0b11'000'001});
  EXPECT_EQ(unpacked("bits(width=3)", bytes, DType::I32, 12), in.bytes());
}

TEST(Bits, ARangeOneTooWideIsRefusedWithTheWidthItTakes) {
  std::vector<std::int64_t> values(100, 3);
  values[70] = 0;
  values[99] = 15;
  EXPECT_EQ(packed("bits(width=4)", tensor_of(DType::I64, values)).size(), 8 + 50u);
  values[99] = 16;
  EXPECT_EQ(error_of([&] { packed("bits(width=4)", tensor_of(DType::I64, values)); },
                     Errc::InvalidArgument),
            "[pack] bits(width=4) holds a range of 16 values, got 0..16; use width=5 or more");
  values[3] = kLeast;
  EXPECT_EQ(error_of([&] { packed("bits(width=63)", tensor_of(DType::I64, values)); },
                     Errc::InvalidArgument),
            "[pack] bits(width=63) holds a range of 9223372036854775808 values, got "
            "-9223372036854775808..16; use width=64 or more");
}

TEST(Bits, AWidthPastTheDtypeIsRefusedInChainsToo) {
  for (const auto& [dtype, most] : {std::pair(DType::U8, 8), std::pair(DType::I32, 32)}) {
    for (const char* text : {"bits(width={})", "bits(width={}) | zstd"}) {
      const auto spec = CodecSpec::parse(fmt::format(fmt::runtime(text), most + 1));
      EXPECT_EQ(error_of([&, d = dtype] { layout(spec, d, {1000}); }, Errc::InvalidArgument),
                fmt::format("[layout] bits(width={}) is wider than {} itself; use width={} or less",
                            most + 1, to_string(dtype), most));
    }
  }
}

TEST(Bits, FloatsAreRefusedWithWhatWouldTakeThem) {
  EXPECT_EQ(
      error_of([] { layout(CodecSpec::parse("bits"), DType::F32, {8}); }, Errc::InvalidArgument),
      "[layout] bits packs whole numbers, got f32; use mask or bytes_of, or a lossy codec");
}

TEST(Bits, AWidthByteThatDoesNotFitIsCorruptData) {
  const ref::Tensor in = tensor_of(DType::I32, values_of(DType::I32, 12, 100, 1));
  const std::vector<std::byte> bytes = packed("bits", in);
  ASSERT_EQ(bytes.size(), 9 + 150u);
  const auto refused = [&](std::vector<std::byte> other) {
    return error_of([&] { unpacked("bits", other, DType::I32, 100); }, Errc::CorruptData);
  };
  std::vector<std::byte> other = bytes;
  for (const int width : {0, 11, 13, 32, 33, 64, 255}) {
    other[8] = static_cast<std::byte>(width);
    refused(other);
  }
  EXPECT_EQ(refused(other), "[unpack] the width of i32 in bits must be 0..32, got 255");
  other[8] = std::byte{13};
  EXPECT_EQ(refused(other), "[unpack] bits of i32 100 in 13 bits each takes 172 bytes, got 159");
  for (const std::size_t size : {0, 1, 8, 9, 158}) {
    refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
  }
}

TEST(Bits, AMinimumThatTheDtypeCannotHoldWrapsAround) {
  std::vector<std::byte> bytes(8 + 4, std::byte{0xff});
  EXPECT_EQ(unpacked("bits(width=2)", bytes, DType::U8, 16), std::vector(16, std::byte{2}));
}

TEST(Bits, PacksWhatBytesOfTheChainBeforeItAre) {
  const ref::Tensor in = tensor_of(DType::U8, values_of(DType::U8, 4, 200, 3));
  const std::vector<std::byte> bytes = packed("raw | bits(width=4)", in);
  EXPECT_EQ(bytes.size(), 8 + 100u);
  EXPECT_EQ(unpacked("raw | bits(width=4)", bytes, DType::U8, 200), in.bytes());
}

TEST(Bits, ALossyCodecMayNotFollowInAChainOfI64) {
  EXPECT_NE(
      error_of([] { layout(CodecSpec::parse("bits(width=4) | block_quant"), DType::I64, {99}); },
               Errc::InvalidArgument)
          .find("[layout] block_quant is lossy and i64 holds whole numbers"),
      std::string::npos);
}

}  // namespace
}  // namespace tuckfold
