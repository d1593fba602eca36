// unpack_then on CUDA: the CPU's values, by the fused kernel and by the pass after others.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "codec/contract_fixture.h"
#include "codec/then/then_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::Channels;
using ref::DeviceBytes;
using ref::Tensor;

void compare(const std::string& text, DType dtype, std::int64_t elems, std::int64_t channels,
             std::int64_t inner, std::int64_t shift) {
  SCOPED_TRACE(fmt::format("{} of {} {}, {} channels of {}, {} past the start", text,
                           to_string(dtype), elems, channels, inner, shift));
  const Plan plan(CodecSpec::parse(text), dtype, {elems});
  Tensor in(dtype, {elems}), expected(dtype, {elems});
  in.fill(ref::pattern(ref::Pattern::Random, dtype, elems));
  std::vector<std::byte> packed(plan.layout().max_bytes);
  packed.resize(plan.pack(in.view(), packed));
  const Channels numbers(channels);
  const DeviceBytes on_device(packed), scale(std::as_bytes(std::span(numbers.scale))),
      added(std::as_bytes(std::span(numbers.shift)));
  const std::size_t skipped = static_cast<std::size_t>(shift) * size_bytes(dtype);
  const DeviceBytes out(skipped + static_cast<std::size_t>(elems) * size_bytes(dtype));
  Tensor add(dtype, {elems});
  add.fill(ref::pattern(ref::Pattern::Ramp, dtype, elems));
  const DeviceBytes others(add.bytes());
  for (const int way : {0, 1, 2, 3}) {
    const bool relu = way % 2 == 1, with_add = way >= 2;
    Then then = numbers.then(inner, relu);
    if (with_add) then.add = add.view().data;
    unpack_then(plan, packed, expected.view(), then);
    if (with_add) then.add = others.data();
    then.scale = reinterpret_cast<const float*>(scale.data());
    then.shift = reinterpret_cast<const float*>(added.data());
    unpack_then(plan, on_device.span(),
                TensorView(out.data() + skipped, dtype, {elems}, Device::Cuda), then);
    std::vector<std::byte> got = out.fetch();
    got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(skipped));
    EXPECT_EQ(ref::first_difference(dtype, got, expected.bytes()), "");
    EXPECT_TRUE(out.guards_untouched());
  }
}

TEST(UnpackThenCuda, HasTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const char* text : {"block_quant(bits=4)", "block_quant(bits=2, group=64)",
                             "block_quant(bits=8, group=24)", "block_quant(bits=3)", "raw"}) {
      compare(text, dtype, 24 * 400, 24, 1, 0);    // channels_last, whole vectors
      compare(text, dtype, 21 * 400, 21, 1, 0);    // channels_last, odd
      compare(text, dtype, 12 * 800, 12, 400, 0);  // rows, whole vectors
      compare(text, dtype, 12 * 490, 6, 49, 0);    // rows, odd
      compare(text, dtype, 12 * 490, 6, 49, 1);    // at an odd address
      compare(text, dtype, 1024, 1, 1, 0);         // one channel
    }
  }
}

}  // namespace
}  // namespace tuckfold
