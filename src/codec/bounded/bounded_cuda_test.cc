// bounded on CUDA where the contract tests do not reach: many blocks, every width, chunks of every
// kind side by side, damaged bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "base/half.h"
#include "codec/bounded/bounded_fixture.h"
#include "codec/contract_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::first_difference;
using ref::Tensor;

class BoundedCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

using Value = std::function<double(std::int64_t)>;

// A dense tensor on the device that begins `shift` elements past a multiple of 256 bytes.
struct Dense {
  Dense(DType type, std::int64_t count, std::int64_t shift)
      : dtype(type),
        elems(count),
        skipped(static_cast<std::size_t>(shift) * size_bytes(type)),
        bytes(skipped + static_cast<std::size_t>(count) * size_bytes(type)) {}

  TensorView view() const { return {bytes.data() + skipped, dtype, {elems}, Device::Cuda}; }
  std::vector<std::byte> fetch() const {
    std::vector<std::byte> all = bytes.fetch();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(skipped));
    return all;
  }

  DType dtype;
  std::int64_t elems;
  std::size_t skipped;
  DeviceBytes bytes;
};

std::uint64_t fetch_word(const DeviceBytes& from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from.fetch().data(), sizeof(word));
  return word;
}

// Packs and unpacks on both, the device's device_result left there; returns the packed bytes.
std::vector<std::byte> compare(const std::string& text, DType dtype, std::int64_t elems,
                               const Value& value, std::int64_t shift = 0) {
  SCOPED_TRACE(fmt::format("{} of {} {} shift {}", text, to_string(dtype), elems, shift));
  const CodecSpec spec = CodecSpec::parse(text);
  const Layout fit = layout(spec, dtype, {elems});
  Tensor in(dtype, {elems});
  for (std::int64_t i = 0; i < elems; ++i) ref::set(dtype, in.storage().data(), i, value(i));
  std::vector<std::byte> wanted(fit.max_bytes);
  wanted.resize(pack(spec, in.view(), wanted));

  const Dense given(dtype, elems, shift);
  if (elems > 0) cuda::copy(given.view().data, in.storage().data(), in.storage().size(), nullptr);
  const DeviceBytes out(fit.max_bytes), device_result(8), workspace(fit.workspace_bytes);
  const RunOptions options{
      .workspace = workspace.span(),
      .cuda = {.device_result = reinterpret_cast<std::uint64_t*>(device_result.data())}};
  EXPECT_EQ(pack(spec, given.view(), out.span(), options), fit.max_bytes);
  EXPECT_EQ(fetch_word(device_result), wanted.size());
  std::vector<std::byte> got = out.fetch();
  got.resize(wanted.size());
  EXPECT_EQ(first_difference(DType::U8, got, wanted), "");
  EXPECT_TRUE(out.guards_untouched() && workspace.guards_untouched());

  Tensor expected(dtype, {elems});
  unpack(spec, wanted, expected.view());
  const DeviceBytes packed(wanted);
  const Dense back(dtype, elems, shift);
  unpack(spec, packed.span(), back.view(), options);
  EXPECT_EQ(fetch_word(device_result), 0u);
  EXPECT_EQ(first_difference(dtype, back.fetch(), expected.bytes()), "");
  EXPECT_TRUE(back.bytes.guards_untouched() && workspace.guards_untouched());
  return wanted;
}

double noise(std::int64_t i) {
  const auto mixed = static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<double>((mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u >> 11) * 0x1p-53;
}
double relu(std::int64_t i) { return std::max(0.0, noise(i) * 2 - 1); }
double smooth(std::int64_t i) { return std::sin(static_cast<double>(i) * 0.01) + 2; }

TEST_F(BoundedCuda, EveryWidthHasTheCpusBytes) {
  for (int bits = 1; bits <= 24; ++bits) {
    for (const Value& value : {Value(relu), Value(smooth), Value(noise)}) {
      compare(fmt::format("bounded(abs={}, codes=bits)", std::ldexp(1.0, -bits)), DType::F32, 4096,
              value);
    }
  }
  for (int bits = 18; bits <= 31; ++bits) {
    compare(fmt::format("bounded(abs={}, codes=bits)", std::ldexp(1.0, -bits)), DType::F64, 2048,
            noise);
  }
}

TEST_F(BoundedCuda, RowsOfEveryFormHaveTheCpusBytes) {
  for (const ref::SteppedValues& stepped : ref::stepped_values()) {
    SCOPED_TRACE(stepped.name);
    const auto value = [&](std::int64_t i) {
      return stepped.values[static_cast<std::size_t>(i) % stepped.values.size()];
    };
    for (const DType dtype : {DType::F32, DType::BF16}) {
      compare("bounded(abs=0.5, codes=bits)", dtype, 2048 + 200, value);
    }
  }
}

// All values of f16 and bf16 in order, so that each chunk has some binades or one, on every grid.
TEST_F(BoundedCuda, EveryHalfHasTheCpusBytes) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const auto value = [&](std::int64_t i) {
      const auto bits = static_cast<std::uint16_t>(i / 3 * 0x2001);  // odd, so all values occur
      return dtype == DType::F16 ? to_float(F16{bits}) : to_float(BF16{bits});
    };
    const auto ordered = [&](std::int64_t i) {
      const auto bits = static_cast<std::uint16_t>(i);
      return dtype == DType::F16 ? to_float(F16{bits}) : to_float(BF16{bits});
    };
    for (const char* zero : {"near", "exact"}) {
      for (const char* bound : {"abs=0.003", "abs=0.3", "abs=1000", "abs=1e-8", "rel=1e-3"}) {
        const std::string text = fmt::format("bounded({}, zero={}, codes=bits)", bound, zero);
        compare(text, dtype, 65536, ordered);
        compare(text, dtype, 8192, value);
      }
    }
  }
}

TEST_F(BoundedCuda, ReluAndImagesInManyBlocksHaveTheCpusBytes) {
  for (const char* bound : {"rel=1e-2", "rel=1e-3", "rel=1e-4", "abs=1e-2", "abs=1e-5"}) {
    for (const char* zero : {"near", "exact"}) {
      const std::string text = fmt::format("bounded({}, zero={}, codes=bits)", bound, zero);
      compare(text, DType::F32, 70 * 1024 + 333, relu);
      compare(text, DType::F32, 64 * 1024, smooth);
    }
  }
}

TEST_F(BoundedCuda, AnyAlignmentAndTailHasTheCpusBytes) {
  for (const DType dtype : ref::kDeviceLossyDTypes) {
    const double scale = dtype == DType::U8 ? 200 : 1;
    const auto value = [&](std::int64_t i) { return scale * relu(i); };
    for (const std::int64_t elems : {1, 15, 1023, 1024, 1025, 2047, 16 * 1024, 16 * 1024 + 1}) {
      for (const std::int64_t shift : {0, 1, 16}) {
        compare("bounded(rel=1e-2, codes=bits)", dtype, elems, value, shift);
      }
    }
  }
}

TEST_F(BoundedCuda, ChunksOfEveryKindLieSideBySide) {
  const auto value = [](std::int64_t i) -> double {
    switch (i / 1024 % 7) {
      case 0: return relu(i);
      case 1: return i % 1024 == 77 ? std::nan("") : noise(i);  // kept
      case 2: return INFINITY;                                  // the same
      case 3: return 0.5;                                       // one code
      case 4: return noise(i) * 1e5;                            // a later grid
      case 5: return noise(i) * 1e9;                            // kept: codes are too large
      default: return smooth(i);
    }
  };
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
    compare("bounded(abs=1e-2, codes=bits)", dtype, 40 * 1024 + 100, value);
    compare("bounded(abs=1e-2, codes=bits)", dtype, 40 * 1024 + 100, value, 1);
  }
}

TEST_F(BoundedCuda, ATensorThatWouldNotGetSmallerIsStoredAsItIs) {
  for (const std::int64_t elems : {3, 1024, 20 * 1024 + 5}) {
    for (const std::int64_t shift : {0, 1}) {
      const auto bytes = compare("bounded(abs=1e-12, codes=bits)", DType::F32, elems, noise, shift);
      EXPECT_EQ(bytes.size(), static_cast<std::size_t>(elems) * 4);
    }
  }
}

TEST_F(BoundedCuda, MoreBlocksThanOneLookReachesHaveTheCpusBytes) {
  constexpr std::int64_t kElems = (std::int64_t{1} << 21) + (1 << 19) + 7;
  compare("bounded(abs=20, codes=bits)", DType::U8, kElems,
          [](std::int64_t i) { return i % 5000 < 40 ? 255 * noise(i) : 7.0; });
}

TEST_F(BoundedCuda, WithoutAnOutcomeTheSizeIsReturned) {
  const CodecSpec spec = CodecSpec::parse("bounded(abs=0.01)");
  const Tensor in(DType::F32, {5000});
  const DeviceBytes given(in.storage()), out(5000 * 4);
  const TensorView view(given.data(), DType::F32, {5000}, Device::Cuda);
  std::vector<std::byte> host(5000 * 4);
  EXPECT_EQ(pack(spec, view, out.span()), pack(spec, in.view(), host));
}

TEST_F(BoundedCuda, CodesOfBytesAreUnsupported) {
  const CodecSpec spec = CodecSpec::parse("bounded(abs=0.01, codes=bytes)");
  const DeviceBytes given(4096), out(4096);
  const TensorView view(given.data(), DType::F32, {1024}, Device::Cuda);
  EXPECT_EQ(ref::code_of([&] { pack(spec, view, out.span()); }), Errc::Unsupported);
  EXPECT_EQ(ref::code_of([&] { unpack(spec, out.span(), view); }), Errc::Unsupported);
}

// Damaged bytes give what the CPU gives, or a refusal where the CPU refuses; memory is safe.
TEST_F(BoundedCuda, DamagedBytesAreRefusedWhereTheCpuRefuses) {
  constexpr std::int64_t kElems = 20 * 1024 + 77;
  std::mt19937 random(5);
  int refused = 0;
  for (const DType dtype : {DType::F32, DType::U8, DType::BF16}) {
    const double scale = dtype == DType::U8 ? 255 : 1;
    const std::string text = "bounded(rel=1e-2, codes=bits)";
    const CodecSpec spec = CodecSpec::parse(text);
    const auto whole = compare(text, dtype, kElems, [&](std::int64_t i) {
      return scale * (i % 4096 < 2048 ? relu(i) : smooth(i) / 4);
    });
    for (int round = 0; round < 60; ++round) {
      std::vector<std::byte> damaged = whole;
      const std::size_t front = round % 2 == 0 ? 8 + 21 * 6 : damaged.size();
      for (int i = 0; i <= round % 3; ++i) damaged[random() % front] ^= std::byte(random());
      if (round % 5 == 4) damaged.resize(damaged.size() - random() % 300);
      Tensor expected(dtype, {kElems});
      const bool good =
          ref::code_of([&] { unpack(spec, damaged, expected.view()); }) != Errc::CorruptData;
      const DeviceBytes packed(damaged);
      const Dense back(dtype, kElems, 0);
      const bool accepted =
          ref::code_of([&] { unpack(spec, packed.span(), back.view()); }) != Errc::CorruptData;
      ASSERT_EQ(accepted, good) << "round " << round;
      if (good) {
        ASSERT_EQ(first_difference(dtype, back.fetch(), expected.bytes()), "");
      }
      ASSERT_TRUE(back.bytes.guards_untouched());
      refused += good ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(BoundedCuda, AChunkThatContradictsItselfIsNoNumber) {
  const CodecSpec spec = CodecSpec::parse("bounded(abs=1e-2, codes=bits)");
  std::vector<std::byte> bytes = compare("bounded(abs=1e-2, codes=bits)", DType::F32, 3072, noise);
  bytes[3 * 6 + 1] = std::byte{12};  // says a form that does not exist
  const DeviceBytes packed(bytes), device_result(8);
  const Dense back(DType::F32, 3072, 0);
  unpack(spec, packed.span(), back.view(),
         {.cuda = {.device_result = reinterpret_cast<std::uint64_t*>(device_result.data())}});
  EXPECT_EQ(fetch_word(device_result), kRefused);
  const std::vector<std::byte> values = back.fetch();
  for (std::int64_t i = 0; i < 3072; ++i) {
    EXPECT_EQ(std::isnan(ref::get(DType::F32, values.data(), i)), i < 1024);
  }
}

}  // namespace
}  // namespace tuckfold
