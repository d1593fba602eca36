// unpack_gelu on CUDA: the CPU's values, by the fused kernel and by the pass after others.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "codec/contract_fixture.h"
#include "codec/then/gelu.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::Tensor;

// packed: bytes of the codec, also those that no packing gives.
void compare(const Plan& plan, const std::vector<std::byte>& packed, std::int64_t shift) {
  const DType dtype = plan.dtype();
  const std::int64_t elems = plan.shape().elems();
  SCOPED_TRACE(fmt::format("{} of {} {}, {} past the start", plan.spec().print(), to_string(dtype),
                           elems, shift));
  Tensor expected(dtype, {elems});
  unpack_gelu(plan, packed, expected.view());
  const DeviceBytes on_device(packed);
  const std::size_t skipped = static_cast<std::size_t>(shift) * size_bytes(dtype);
  const DeviceBytes out(skipped + static_cast<std::size_t>(elems) * size_bytes(dtype));
  unpack_gelu(plan, on_device.span(),
              TensorView(out.data() + skipped, dtype, {elems}, Device::Cuda));
  std::vector<std::byte> got = out.fetch();
  got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(skipped));
  EXPECT_EQ(ref::first_difference(dtype, got, expected.bytes()), "");
  EXPECT_TRUE(out.guards_untouched());
}

TEST(UnpackGeluCuda, HasTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const char* text :
         {"block_quant(bits=4, group=256)", "block_quant(bits=4, group=128)",
          "block_quant(bits=2, group=512)", "block_quant(bits=4, group=64)",
          "block_quant(bits=4, group=768)", "block_quant(bits=8, group=256)", "raw"}) {
      for (const std::int64_t elems : {1024, 8 * 1024 + 333, 7}) {
        for (const std::int64_t shift : {0, 1}) {
          const Plan plan(CodecSpec::parse(text), dtype, {elems});
          Tensor in(dtype, {elems});
          in.fill(ref::pattern(ref::Pattern::Random, dtype, elems));
          std::vector<std::byte> packed(plan.layout().max_bytes);
          packed.resize(plan.pack(in.view(), packed));
          compare(plan, packed, shift);
        }
      }
    }
  }
}

TEST(UnpackGeluCuda, HasTheCpusValuesForAnyHeader) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  std::uint64_t state = 1;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const Plan plan(CodecSpec::parse("block_quant(bits=4, group=256)"), dtype, {256 * 256});
    std::vector<std::byte> packed(plan.layout().max_bytes);
    for (std::byte& each : packed) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      each = static_cast<std::byte>(state >> 56);
    }
    compare(plan, packed, 0);
  }
}

}  // namespace
}  // namespace tuckfold
