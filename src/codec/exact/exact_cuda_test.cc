// The exact repacks on CUDA: where their fast kernels run, what they refuse, and how that is said.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/contract_cuda_fixture.h"
#include "codec/contract_fixture.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::DeviceTensor;
using ref::difference_from_cpu;
using ref::Tensor;

class ExactCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

constexpr DType kFloats[] = {DType::F32, DType::F16, DType::BF16, DType::F64};
constexpr DType kWholes[] = {DType::U8, DType::I32, DType::I64};
constexpr std::int64_t kSizes[] = {1, 31, 1000, 4096, 2 * 4096 + 1023, 3 * 4096 + 1};

// What the spec unpacks random bytes to.
Tensor values_of(const CodecSpec& spec, DType dtype, std::int64_t elems) {
  std::vector<std::byte> packed(layout(spec, dtype, {elems}).max_bytes);
  std::mt19937 random(5);
  for (std::byte& byte : packed) byte = static_cast<std::byte>(random());
  Tensor values(dtype, {elems});
  unpack(spec, packed, values.view());
  return values;
}

// Whole numbers from `low` to `low` + 2^width - 1, both among them if there is room.
Tensor numbers(DType dtype, std::int64_t elems, std::int64_t low, int width) {
  Tensor values(dtype, {elems});
  std::mt19937_64 random(9);
  const std::uint64_t most = width == 0 ? 0 : ~std::uint64_t{0} >> (64 - width);
  for (std::int64_t i = 0; i < elems; ++i) {
    const std::uint64_t far = i == 0 ? 0 : i == elems - 1 ? most : random() & most;
    const std::uint64_t value = static_cast<std::uint64_t>(low) + far;
    const std::size_t size = size_bytes(dtype);
    std::memcpy(values.storage().data() + static_cast<std::size_t>(i) * size, &value, size);
  }
  return values;
}

std::string words_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::uint64_t fetch(const DeviceBytes& number) {
  std::uint64_t value = 0;
  std::memcpy(&value, number.fetch().data(), sizeof value);
  return value;
}

TEST_F(ExactCuda, MasksOfEveryDTypeAndSize) {
  const CodecSpec spec = CodecSpec::parse("mask(scale=2)");
  for (const DType dtype : ref::kDeviceDTypes) {
    for (const std::int64_t elems : kSizes) {
      for (const std::int64_t past : {0, 1}) {
        ASSERT_EQ(difference_from_cpu(spec, values_of(spec, dtype, elems), past), "");
      }
    }
  }
}

TEST_F(ExactCuda, SignsOfEveryDTypeAndSize) {
  const CodecSpec spec = CodecSpec::parse("positive");
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64, DType::U8}) {
    for (const std::int64_t elems : kSizes) {
      for (const std::int64_t past : {0, 1}) {
        for (const ref::Pattern kind : {ref::Pattern::Random, ref::Pattern::Hostile}) {
          const Tensor in = std::move(Tensor(dtype, {elems}).fill(kind));
          ASSERT_EQ(difference_from_cpu(spec, in, past), "");
        }
      }
    }
  }
}

TEST_F(ExactCuda, IndicesOfEveryPooling) {
  for (const char* text :
       {"pool_index(width=80)", "pool_index(kernel=3, stride=2, padding=1, width=80)",
        "pool_index(kernel=3, stride=1, width=41, channels=last)",
        "pool_index(kernel=5, stride=2, padding=2, width=9000000)",
        "pool_index(kernel=1, width=40)",
        "pool_index(kernel=16, stride=3, padding=8, width=200, channels=last)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    for (const DType dtype : {DType::I64, DType::I32}) {
      for (const Shape& shape : {Shape{3, 40, 40}, Shape{2, 3, 33, 19}, Shape{1, 1, 1}}) {
        if (!ref::suits(spec, dtype, shape)) continue;
        for (const ref::Order order : {ref::Order::RowMajor, ref::Order::ChannelsLast}) {
          const Tensor in = ref::input_for(spec, dtype, shape, ref::Pattern::Random, order);
          ASSERT_EQ(difference_from_cpu(spec, in, 1, order), "");
        }
      }
    }
  }
}

TEST_F(ExactCuda, AnIndexOutsideOfItsWindowIsRefusedAsOnTheCpu) {
  const CodecSpec spec = CodecSpec::parse("pool_index(kernel=3, stride=2, padding=1, width=80)");
  const Shape shape = {3, 40, 40};
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{79}, INT64_MAX, INT64_MIN}) {
    Tensor in = ref::input_for(spec, DType::I64, shape, ref::Pattern::Random);
    for (const std::size_t at : {3000u, 4100u}) {
      std::memcpy(in.storage().data() + at * 8, &wrong, 8);
    }
    std::vector<std::byte> room(layout(spec, DType::I64, shape).max_bytes);
    const std::string wanted = words_of([&] { pack(spec, in.view(), room); });
    const DeviceTensor from(in);
    const DeviceBytes out(room.size());
    EXPECT_EQ(words_of([&] { pack(spec, from.view(), out.span()); }), wanted);
    EXPECT_NE(wanted.find("element 3000"), std::string::npos) << wanted;
    const DeviceBytes result(8);
    pack(spec, from.view(), out.span(),
         {.cuda = {.device_result = reinterpret_cast<std::uint64_t*>(result.data())}});
    EXPECT_EQ(fetch(result), kRefused);
  }
}

TEST_F(ExactCuda, BytesOfEveryDTypeAndSize) {
  for (const char* text : {"bytes_of", "bytes_of(scale=0.017, add=-2.1, round=each)",
                           "bytes_of(scale=1e-4, add=1000)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    for (const DType dtype : kFloats) {
      for (const std::int64_t elems : kSizes) {
        for (const std::int64_t past : {0, 1}) {
          ASSERT_EQ(difference_from_cpu(spec, values_of(spec, dtype, elems), past), "");
        }
      }
    }
  }
}

TEST_F(ExactCuda, BitsOfEveryWidth) {
  for (const DType dtype : kWholes) {
    const int most = static_cast<int>(8 * size_bytes(dtype));
    for (int width = 0; width <= most; ++width) {
      const std::int64_t low = dtype == DType::U8 ? 0 : width < most ? -5 : INT64_MIN;
      const Tensor values =
          numbers(dtype, 2 * 2048 + 37, dtype == DType::I32 && low < -5 ? INT32_MIN : low, width);
      ASSERT_EQ(difference_from_cpu(CodecSpec::parse("bits"), values), "");
      if (width > 0) {
        ASSERT_EQ(
            difference_from_cpu(CodecSpec::parse(fmt::format("bits(width={})", width)), values),
            "");
      }
    }
  }
}

TEST_F(ExactCuda, BitsOfEverySize) {
  for (const DType dtype : kWholes) {
    for (const std::int64_t elems : {1, 2, 5, 8, 31, 32, 33, 2047, 2048, 2049, 4096}) {
      for (const int width : {1, 3, 7}) {
        const Tensor values = numbers(dtype, elems, 7, width);
        ASSERT_EQ(difference_from_cpu(CodecSpec::parse("bits"), values, 1), "");
        const CodecSpec given = CodecSpec::parse(fmt::format("bits(width={})", width));
        if (ref::suits(given, dtype, values.shape())) {
          ASSERT_EQ(difference_from_cpu(given, values), "");
        }
      }
    }
  }
}

TEST_F(ExactCuda, RefusesInTheCpusWords) {
  for (const char* text : {"mask", "bytes_of", "bits(width=3)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    for (const DType dtype : {DType::F32, DType::F16, DType::F64, DType::U8, DType::I32}) {
      for (const std::int64_t at : {0, 4000, 9000}) {
        Tensor values(dtype, {9001});
        if (!ref::suits(spec, dtype, values.shape())) continue;
        values = values_of(spec, dtype, 9001);
        for (const std::int64_t i : {at, std::int64_t{9000}}) {
          ref::set(dtype, values.storage().data(), i, dtype == DType::U8 ? 77 : 77.5);
        }
        std::vector<std::byte> packed(layout(spec, dtype, values.shape()).max_bytes);
        const std::string wanted = words_of([&] { pack(spec, values.view(), packed); });
        for (const std::int64_t past : {0, 1}) {
          const DeviceTensor from(values, past);
          const DeviceBytes out(packed.size());
          EXPECT_EQ(words_of([&] { pack(spec, from.view(), out.span()); }), wanted);
        }
      }
    }
  }
}

TEST_F(ExactCuda, SaysTheOutcomeWhereItIsTold) {
  for (const char* text : {"mask", "bytes_of(scale=1)", "bits(width=1)", "bits"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const bool floats = std::string_view(text).starts_with("bytes_of");
    Tensor values(floats ? DType::F32 : DType::I32, {3000});
    for (const bool fits : {true, false}) {
      for (std::int64_t i = 0; i < 3000; ++i) {
        ref::set(values.dtype(), values.storage().data(), i,
                 i == 1234 && !fits ? 1e6 : static_cast<double>(i % 2));
      }
      std::vector<std::byte> wanted(layout(spec, values.dtype(), values.shape()).max_bytes);
      const bool packs = fits || std::string_view(text) == "bits";
      if (packs) wanted.resize(pack(spec, values.view(), wanted));
      const DeviceTensor from(values);
      const DeviceBytes out(layout(spec, values.dtype(), values.shape()).max_bytes);
      const DeviceBytes device_result(sizeof(std::uint64_t));
      const RunOptions options{
          .cuda = {.device_result = reinterpret_cast<std::uint64_t*>(device_result.data())}};
      pack(spec, from.view(), out.span(), options);
      EXPECT_EQ(fetch(device_result), packs ? wanted.size() : kRefused) << text;
      if (!packs) continue;
      unpack(spec, out.span().first(wanted.size()), from.view(), options);
      EXPECT_EQ(fetch(device_result), 0u) << text;
    }
  }
}

TEST_F(ExactCuda, BitsWhoseWidthDoesNotFitTheirNumberAreCorrupt) {
  const CodecSpec spec = CodecSpec::parse("bits");
  const Tensor values = numbers(DType::I32, 100, 0, 5), back(DType::I32, {100});
  std::vector<std::byte> packed(layout(spec, DType::I32, {100}).max_bytes);
  packed.resize(pack(spec, values.view(), packed));
  for (const int width : {0, 4, 6, 32, 33, 255}) {
    packed[8] = static_cast<std::byte>(width);
    const DeviceBytes on_device(packed);
    const DeviceTensor to(back);
    EXPECT_EQ(words_of([&] { unpack(spec, on_device.span(), to.view()); }),
              words_of([&] { unpack(spec, packed, back.view()); }));
    const DeviceBytes device_result(sizeof(std::uint64_t));
    unpack(spec, on_device.span(), to.view(),
           {.cuda = {.device_result = reinterpret_cast<std::uint64_t*>(device_result.data())}});
    EXPECT_EQ(fetch(device_result), kRefused);
  }
}

}  // namespace
}  // namespace tuckfold
