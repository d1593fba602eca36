// unpack_rows on the CPU: what normalize_rows gives for what was unpacked, and what it refuses.
#include "codec/then/unpack_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "codec/contract_fixture.h"
#include "codec/then/normalize_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::ChannelNumbers;
using ref::Tensor;

RowNormalization rows_of(const ChannelNumbers& rows, const ChannelNumbers& places) {
  return {.mean = rows.mean.data(),
          .invstd = rows.invstd.data(),
          .weight = places.weight.data(),
          .bias = places.bias.data(),
          .length = static_cast<std::int64_t>(places.weight.size())};
}

TEST(UnpackRows, IsWhatFollowsUnpacking) {
  constexpr std::int64_t kRows = 13, kLength = 40;
  const ChannelNumbers of_rows(kRows), of_places(kLength);
  const RowNormalization how = rows_of(of_rows, of_places);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const DType to : {DType::F32, DType::F16, DType::BF16}) {
      for (const char* text : {"block_quant(bits=4, group=64)", "raw"}) {
        const Shape shape{kRows, kLength};
        Tensor in(dtype, shape), unpacked(dtype, shape), expected(to, shape), got(to, shape);
        in.fill(ref::pattern(ref::Pattern::Random, dtype, in.elems()));
        const Plan plan(CodecSpec::parse(text), dtype, shape);
        std::vector<std::byte> packed(plan.layout().max_bytes);
        packed.resize(plan.pack(in.view(), packed));
        plan.unpack(packed, unpacked.view());
        normalize_rows(ConstTensorView{unpacked.view()}, expected.view(), how);
        unpack_rows(plan, packed, got.view(), how);
        EXPECT_TRUE(std::ranges::equal(got.bytes(), expected.bytes())) << text;
      }
    }
  }
}

TEST(UnpackRows, RefusesWhatDoesNotFit) {
  const ChannelNumbers of_rows(4), of_places(6);
  RowNormalization how = rows_of(of_rows, of_places);
  const Plan plan(CodecSpec::parse("raw"), DType::F32, {4, 6});
  std::vector<float> out(24);
  std::vector<std::byte> packed(96);
  const auto code = [&](const TensorView& view) {
    return ref::code_of([&] { unpack_rows(plan, packed, view, how); });
  };
  const TensorView view(out.data(), DType::F32, {4, 6});
  unpack_rows(plan, packed, view, how);
  EXPECT_EQ(code(TensorView(out.data(), DType::I32, {4, 6})), Errc::InvalidArgument);
  EXPECT_EQ(code(TensorView(out.data(), DType::F32, {4, 6}, Shape{1, 4})), Errc::InvalidArgument);
  EXPECT_EQ(code(TensorView(out.data(), DType::F32, {2, 6})), Errc::InvalidArgument);
  how.length = 5;
  EXPECT_EQ(code(view), Errc::InvalidArgument);
  how = {.length = 6};
  EXPECT_EQ(code(view), Errc::InvalidArgument);
  how = rows_of(of_rows, of_places);
  packed.resize(95);
  EXPECT_EQ(code(view), Errc::CorruptData);
}

}  // namespace
}  // namespace tuckfold
