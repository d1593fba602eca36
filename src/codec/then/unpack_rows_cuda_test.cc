// unpack_rows on CUDA: the CPU's values.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "codec/contract_fixture.h"
#include "codec/then/normalize_fixture.h"
#include "codec/then/unpack_rows.h"

namespace tuckfold {
namespace {

using ref::ChannelNumbers;
using ref::DeviceBytes;
using ref::Tensor;

void compare(const std::string& text, DType dtype, DType to, std::int64_t rows,
             std::int64_t length) {
  SCOPED_TRACE(fmt::format("{} of {} to {}, {} rows of {}", text, to_string(dtype), to_string(to),
                           rows, length));
  const Plan plan(CodecSpec::parse(text), dtype, {rows, length});
  Tensor in(dtype, {rows, length}), expected(to, {rows, length});
  in.fill(ref::pattern(ref::Pattern::Random, dtype, rows * length));
  std::vector<std::byte> packed(plan.layout().max_bytes);
  packed.resize(plan.pack(in.view(), packed));
  const ChannelNumbers of_rows(rows), of_places(length);
  RowNormalization how{.mean = of_rows.mean.data(),
                       .invstd = of_rows.invstd.data(),
                       .weight = of_places.weight.data(),
                       .bias = of_places.bias.data(),
                       .length = length};
  unpack_rows(plan, packed, expected.view(), how);
  const auto upload = [](const std::vector<float>& from) {
    return DeviceBytes(std::as_bytes(std::span(from)));
  };
  const DeviceBytes mean = upload(of_rows.mean), invstd = upload(of_rows.invstd),
                    weight = upload(of_places.weight), bias = upload(of_places.bias);
  const auto at = [](const DeviceBytes& bytes) {
    return reinterpret_cast<const float*>(bytes.data());
  };
  how.mean = at(mean), how.invstd = at(invstd), how.weight = at(weight), how.bias = at(bias);
  const DeviceBytes on_device(packed);
  const DeviceBytes out(static_cast<std::size_t>(rows * length) * size_bytes(to));
  unpack_rows(plan, on_device.span(), TensorView(out.data(), to, {rows, length}, Device::Cuda),
              how);
  const std::vector<std::byte> got = out.fetch();
  const auto want = expected.bytes();
  for (std::int64_t i = 0; i < rows * length; ++i) {
    const double a = ref::get(to, got.data(), i), b = ref::get(to, want.data(), i);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i << ": " << a << ", not " << b;
  }
  EXPECT_TRUE(out.guards_untouched());
}

TEST(UnpackRowsCuda, HasTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const char* text : {"block_quant(bits=4, group=256)", "block_quant(bits=2, group=64)",
                           "block_quant(bits=8, group=24)"}) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      for (const DType to : {DType::F32, DType::F16, DType::BF16}) {
        if (dtype != DType::F32 && dtype != to) continue;
        compare(text, dtype, to, 9, 768);
        compare(text, dtype, to, 300, 8);
        compare(text, dtype, to, 4, 64);  // less than a tile
      }
    }
  }
}

TEST(UnpackRowsCuda, SaysWhatItCannotDo) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  const auto code = [](const char* text, std::int64_t length) {
    return ref::code_of([&] { compare(text, DType::F32, DType::F32, 8, length); });
  };
  EXPECT_EQ(code("block_quant(bits=3)", 64), Errc::Unsupported);
  EXPECT_EQ(code("block_quant(bits=4)", 63), Errc::Unsupported);
  EXPECT_EQ(code("raw", 64), Errc::Unsupported);
}

}  // namespace
}  // namespace tuckfold
