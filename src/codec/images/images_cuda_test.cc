// unpack_images on CUDA: the CPU's values, in every layout, from every dtype.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/images/images_ref.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::Order;
using ref::Pass;
using ref::Pattern;
using ref::Tensor;

class UnpackImagesCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

// NaN has no bits of its own.
std::string difference(const Tensor& expected, const Tensor& got) {
  for (std::int64_t i = 0; i < got.elems(); ++i) {
    const bool nan = std::isnan(expected.get(i));
    if (nan ? !std::isnan(got.get(i)) : got.bits(i) != expected.bits(i)) {
      return fmt::format("element {}: {} in place of {}", i, got.get(i), expected.get(i));
    }
  }
  return "";
}

struct Case {
  const char* text;
  DType dtype;
  Shape shape;  // of the samples
  bool channels_last;
  Pattern values = Pattern::Random;
};

void compare(const Case& c, DType to, Order order, std::int64_t rows, std::int64_t cols,
             bool with_places, std::size_t shift = 0) {
  const std::int64_t channels = c.shape.rank() == 3 ? 1 : c.channels_last ? c.shape[3] : c.shape[1];
  SCOPED_TRACE(fmt::format("{} of {} {} to {} {}x{}, order {}", c.text, to_string(c.dtype),
                           to_string(c.shape), to_string(to), rows, cols, static_cast<int>(order)));
  const Plan plan(CodecSpec::parse(c.text), c.dtype, c.shape);
  Tensor in(c.dtype, c.shape);
  in.fill(c.values);
  std::vector<std::byte> packed(plan.layout().max_bytes);
  packed.resize(plan.pack(in.view(), packed));
  const Pass pass = Pass::of(c.shape[0], channels, c.channels_last, with_places);
  const Shape images{pass.images(), channels, rows, cols};
  Tensor expected(to, images, order, shift), got(to, images, order, shift);
  unpack_images(plan, packed, pass.pass(), expected.view());

  const DeviceBytes on_device(packed), windows(std::as_bytes(std::span(pass.windows))),
      places(std::as_bytes(std::span(pass.places))), scale(std::as_bytes(std::span(pass.scale))),
      add(std::as_bytes(std::span(pass.add)));
  const DeviceBytes room(unpack_images_workspace(plan, Device::Cuda));
  DeviceBytes out(shift + got.storage().size());
  cuda::copy(out.data() + shift, got.storage().data(), got.storage().size(), nullptr);
  const ImagePass there{
      .windows = reinterpret_cast<const Window*>(windows.data()),
      .places = with_places ? reinterpret_cast<const std::int32_t*>(places.data()) : nullptr,
      .scale = reinterpret_cast<const float*>(scale.data()),
      .add = reinterpret_cast<const float*>(add.data()),
      .channels_last = c.channels_last};
  unpack_images(plan, on_device.span(), there, got.view_of_copy(out.data() + shift, Device::Cuda),
                {.workspace = room.span()});
  const std::vector<std::byte> bytes = out.fetch();
  std::memcpy(got.storage().data(), bytes.data() + shift, got.storage().size());
  EXPECT_EQ(difference(expected, got), "");
  EXPECT_TRUE(got.gaps_untouched());
  EXPECT_TRUE(out.guards_untouched());
  EXPECT_TRUE(room.guards_untouched());
}

TEST_F(UnpackImagesCuda, HasTheCpusValues) {
  const Case cases[] = {
      {"raw", DType::U8, {11, 3, 9, 13}, false},
      {"raw", DType::U8, {3, 9, 13, 3}, true},
      {"raw", DType::U16, {3, 9, 13}, false},
      {"raw", DType::F64, {3, 5, 16, 16}, false, Pattern::Hostile},
      {"raw", DType::F32, {3, 5, 16, 16}, false, Pattern::Hostile},
      {"raw", DType::F16, {3, 12, 12, 4}, true},
      {"raw", DType::BF16, {2, 12, 12, 1}, true},
      {"dct_quant(rate=4)", DType::U8, {4, 3, 32, 32}, false},
      {"dct_quant(rate=3.5)", DType::U8, {4, 3, 19, 21}, false},
      {"dct_quant(rate=4)", DType::U8, {3, 18, 22, 3}, true},
      {"dct_quant(rate=4)", DType::F32, {4, 3, 32, 32}, false},
      {"dct_quant(rate=2)", DType::BF16, {4, 3, 32, 32}, false},
      {"dct_chop(keep=3)", DType::U8, {4, 3, 24, 24}, false},
      {"block_quant(bits=4)", DType::F32, {4, 3, 16, 16}, false},
  };
  for (const Case& c : cases) {
    for (const DType to : {DType::F32, DType::F16, DType::BF16}) {
      for (const Order order : {Order::RowMajor, Order::ChannelsLast}) {
        compare(c, to, order, 16, 24, false);
        compare(c, to, order, 7, 9, true);
      }
    }
    compare(c, DType::F32, Order::Gapped, 8, 8, false);
    compare(c, DType::BF16, Order::Backwards, 8, 8, true);
    compare(c, DType::F16, Order::PaddedRows, 8, 8, false);
    compare(c, DType::F16, Order::RowMajor, 8, 8, true, 2);  // not at a multiple of 16
    compare(c, DType::F32, Order::ChannelsLast, 1, 1, false, 4);
  }
}

TEST_F(UnpackImagesCuda, AllBytesThatAFileCanHoldAreRoundedAsOnTheCpu) {
  // The kernels of f32, rounded, in place of those of u8: clamped at both ends, halves to even.
  for (const char* text : {"dct_quant(rate=1)", "dct_quant(rate=8)", "dct_quant(rate=16)",
                           "dct_quant(rate=4, offset=128)", "dct_quant(rate=3, clamp=zero)"}) {
    for (const Pattern values : {Pattern::Random, Pattern::Impulse, Pattern::Ramp}) {
      if (!Plan::make_if_fits(CodecSpec::parse(text), DType::U8, {6, 3, 32, 32})) continue;
      compare({text, DType::U8, {6, 3, 32, 32}, false, values}, DType::F32, Order::RowMajor, 32, 32,
              false);
    }
  }
}

TEST_F(UnpackImagesCuda, APlacePastTheEndIsLeftOut) {
  const Plan plan(CodecSpec::parse("raw"), DType::U8, {3, 1, 4, 4});
  const std::vector<std::uint8_t> pixels(48, 7);
  const std::int32_t numbers[] = {1, 5, -2};
  const DeviceBytes packed(std::as_bytes(std::span(pixels))),
      places(std::as_bytes(std::span(numbers))), out(2 * 16 * sizeof(float));
  unpack_images(plan, packed.span(),
                {.places = reinterpret_cast<const std::int32_t*>(places.data())},
                TensorView(out.data(), DType::F32, {2, 1, 4, 4}, Device::Cuda));
  const std::vector<std::byte> bytes = out.fetch();
  float got[32];
  std::memcpy(got, bytes.data(), sizeof got);
  for (int i = 16; i < 32; ++i) EXPECT_EQ(got[i], 7);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + 64,
                          [](std::byte b) { return b == ref::kUntouched; }));
  EXPECT_TRUE(out.guards_untouched());
}

TEST_F(UnpackImagesCuda, RefusesWhatTheCpuRefuses) {
  const Plan plan(CodecSpec::parse("raw"), DType::U8, {2, 1, 4, 4});
  const DeviceBytes packed(48), out(256);
  const TensorView view(out.data(), DType::F32, {2, 1, 4, 4}, Device::Cuda);
  const auto code = [&](std::span<std::byte> from) {
    return ref::code_of([&] { unpack_images(plan, from, {}, view); });
  };
  EXPECT_EQ(code(packed.span().first(31)), Errc::CorruptData);
  EXPECT_EQ(code(packed.span().subspan(1, 32)), Errc::InvalidArgument);
  const Plan wide(CodecSpec::parse("dct_quant(rate=4)"), DType::U16, {2, 1, 8, 8});
  EXPECT_EQ(ref::code_of([&] {
              const DeviceBytes some(wide.layout().max_bytes);
              unpack_images(wide, some.span(), {}, view);
            }),
            Errc::Unsupported);
}

}  // namespace
}  // namespace tuckfold
