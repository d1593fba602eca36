// unpack_images on the CPU: against its definition, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codec/contract_fixture.h"
#include "codec/images/images_ref.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pass;
using ref::Pattern;
using ref::Tensor;

// f32 values of a tensor: what FlatReader::gather gives.
std::vector<double> floats_of(const Tensor& tensor) {
  std::vector<double> all = tensor.values();
  for (double& value : all) {
    const auto nearest = static_cast<float>(value);
    value = std::isinf(nearest) && std::isfinite(value)
                ? std::copysign(double{std::numeric_limits<float>::max()}, value)
                : nearest;
  }
  return all;
}

void expect_images(const char* text, DType dtype, const Shape& shape, bool channels_last,
                   Pattern values) {
  const CodecSpec spec = CodecSpec::parse(text);
  if (!Plan::make_if_fits(spec, dtype, shape)) return;
  const Plan plan(spec, dtype, shape);
  Tensor in(dtype, shape), unpacked(dtype, shape);
  in.fill(values);
  std::vector<std::byte> packed(plan.layout().max_bytes);
  packed.resize(plan.pack(in.view(), packed));
  plan.unpack(packed, unpacked.view());
  const std::int64_t channels = shape.rank() == 3 ? 1 : channels_last ? shape[3] : shape[1];
  for (const bool with_places : {false, true}) {
    const Pass pass = Pass::of(shape[0], channels, channels_last, with_places);
    for (const DType to : {DType::F32, DType::F16, DType::BF16}) {
      for (const Order order : {Order::RowMajor, Order::ChannelsLast, Order::Gapped}) {
        for (const auto& [rows, cols] : {std::pair{7, 9}, {16, 24}}) {
          SCOPED_TRACE(fmt::format("{} of {} {} to {} {}x{}, order {}", text, to_string(dtype),
                                   to_string(shape), to_string(to), rows, cols,
                                   static_cast<int>(order)));
          const Shape images{pass.images(), channels, rows, cols};
          Tensor expected(to, images, order), got(to, images, order);
          ref::images_ref(shape, floats_of(unpacked), pass, expected);
          unpack_images(plan, packed, pass.pass(), got.view(), {.threads = 2});
          for (std::int64_t i = 0; i < got.elems(); ++i) {
            if (std::isnan(expected.get(i))) {
              ASSERT_TRUE(std::isnan(got.get(i))) << i;
            } else {
              ASSERT_EQ(got.bits(i), expected.bits(i)) << i;
            }
          }
          EXPECT_TRUE(got.gaps_untouched());
        }
      }
    }
  }
}

TEST(UnpackImages, GivesWhatItsDefinitionSays) {
  for (const DType dtype : ref::kLossyDTypes) {
    expect_images("raw", dtype, {11, 3, 9, 13}, false, Pattern::Random);
    expect_images("raw", dtype, {3, 9, 13, 3}, true, Pattern::Random);
    expect_images("raw", dtype, {3, 9, 13}, false, Pattern::Random);
    expect_images("dct_quant(rate=4)", dtype, {4, 3, 16, 24}, false, Pattern::Ramp);
    expect_images("zstd", dtype, {2, 16, 24, 1}, true, Pattern::Random);
  }
  expect_images("raw", DType::F32, {3, 2, 32, 33}, false, Pattern::Hostile);
  expect_images("raw", DType::F64, {3, 2, 32, 33}, false, Pattern::Hostile);
}

TEST(UnpackImages, WithoutArraysPixelsAreThemselves) {
  const Plan plan(CodecSpec::parse("raw"), DType::U8, {1, 2, 2, 3});
  const std::uint8_t in[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
  float out[8];
  unpack_images(plan, std::as_bytes(std::span(in)), {}, TensorView(out, DType::F32, {1, 2, 2, 2}));
  EXPECT_EQ(std::vector<float>(out, out + 8), (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
}

TEST(UnpackImages, EmptyBatchesAndImagesAreFine) {
  const Plan none(CodecSpec::parse("raw"), DType::U8, {0, 3, 8, 8});
  unpack_images(none, {}, {}, TensorView(nullptr, DType::F32, {0, 3, 8, 8}));
  const Plan flat(CodecSpec::parse("raw"), DType::U8, {2, 1, 0, 4});
  float out[8];
  const float add = 3, scale = 2;
  unpack_images(flat, {}, {.scale = &scale, .add = &add},
                TensorView(out, DType::F32, {2, 1, 2, 2}));
  for (const float value : out) EXPECT_EQ(value, 3);
}

TEST(UnpackImages, RefusesWhatDoesNotFit) {
  const Plan plan(CodecSpec::parse("raw"), DType::U8, {2, 3, 8, 8});
  std::vector<std::byte> packed(384);
  std::vector<float> room(4096);
  const auto code = [&](const Plan& with, const Shape& shape, const ImagePass& pass = {},
                        DType dtype = DType::F32, const RunOptions& options = {}) {
    return ref::code_of(
        [&] { unpack_images(with, packed, pass, TensorView(room.data(), dtype, shape), options); });
  };
  EXPECT_NO_THROW(unpack_images(plan, packed, {}, {room.data(), DType::F32, {2, 3, 8, 8}}));
  EXPECT_EQ(code(plan, {3, 3, 8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 1, 8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 3, 64}), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 3, 8, 8}, {}, DType::F64), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 3, 8, 8}, {.channels_last = true}), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 3, 8, 8}, {}, DType::F32, {.threads = -1}), Errc::InvalidArgument);
  const std::int32_t past[] = {0, 2}, twice[] = {1, 1};
  EXPECT_EQ(code(plan, {2, 3, 8, 8}, {.places = past}), Errc::InvalidArgument);
  EXPECT_EQ(code(plan, {2, 3, 8, 8}, {.places = twice}), Errc::InvalidArgument);
  EXPECT_EQ(code(Plan(CodecSpec::parse("raw"), DType::I64, {2, 3, 8}), {2, 1, 3, 8}),
            Errc::InvalidArgument);
  EXPECT_EQ(code(Plan(CodecSpec::parse("raw"), DType::U8, {2, 192}), {2, 1, 3, 8}),
            Errc::InvalidArgument);
  EXPECT_EQ(ref::code_of([&] {
              unpack_images(plan, packed, {},
                            TensorView(room.data(), DType::F32, {2, 3, 8, 8}, {192, 64, 0, 1}));
            }),
            Errc::InvalidArgument);
  EXPECT_EQ(ref::code_of([&] {
              unpack_images(plan, packed, {}, TensorView(nullptr, DType::F32, {2, 3, 8, 8}));
            }),
            Errc::InvalidArgument);
  packed.resize(383);
  EXPECT_EQ(code(plan, {2, 3, 8, 8}), Errc::CorruptData);
  const Plan coded(CodecSpec::parse("dct_quant(rate=4)"), DType::U8, {2, 3, 8, 8});
  EXPECT_EQ(code(coded, {2, 3, 8, 8}), Errc::CorruptData);
}

}  // namespace
}  // namespace tuckfold
