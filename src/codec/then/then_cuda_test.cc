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
  std::vector<std::byte> packed_add(plan.layout().max_bytes);
  packed_add.resize(plan.pack(add.view(), packed_add));
  const Channels more = numbers.others();
  const DeviceBytes more_scale(std::as_bytes(std::span(more.scale))),
      more_shift(std::as_bytes(std::span(more.shift)));
  const std::vector<std::byte> gate = ref::gate_of(elems);
  const DeviceBytes packed_others(packed_add), bits(gate);
  const bool is_fused = text.starts_with("block_quant") &&
                        text.find("bits=3") == std::string::npos && shift == 0 && elems % 16 == 0;
  for (int way = 0; way < (is_fused ? 16 : 8); ++way) {
    const bool relu = way % 2 == 1, gated = way % 4 >= 2;
    const bool with_add = way / 4 == 1, with_packed = way / 4 >= 2;
    const bool scaled = way / 4 == 3;
    Then then = numbers.then(inner, relu);
    if (with_add) then.add = add.view().data;
    if (with_packed) then.packed_add = packed_add.data();
    if (scaled) {
      then.add_scale = more.scale.data();
      then.add_shift = more.shift.data();
    }
    if (gated) then.gate = gate.data();
    unpack_then(plan, packed, expected.view(), then);
    if (with_add) then.add = others.data();
    if (with_packed) then.packed_add = reinterpret_cast<const std::byte*>(packed_others.data());
    if (scaled) {
      then.add_scale = reinterpret_cast<const float*>(more_scale.data());
      then.add_shift = reinterpret_cast<const float*>(more_shift.data());
    }
    if (gated) then.gate = reinterpret_cast<const std::byte*>(bits.data());
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

// Headers of any bits, also those that no packing gives: pairs of bf16 must give what f32 gives.
TEST(UnpackThenCuda, HasTheCpusValuesForAnyHeader) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  constexpr std::int64_t kElems = 64 * 512;
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 32);
  };
  for (const char* text : {"block_quant(bits=2, group=8)", "block_quant(bits=4, group=8)"}) {
    const Plan plan(CodecSpec::parse(text), DType::BF16, {kElems});
    std::vector<std::byte> packed(plan.layout().max_bytes);
    for (std::byte& each : packed) each = static_cast<std::byte>(next());
    // Half of the minima are near their scales.
    for (std::size_t at = packed.size() - kElems / 8 * 4; at < packed.size(); at += 8) {
      const std::uint32_t scale = next() & 0x7fffu;
      const std::uint32_t minimum =
          ((scale + next() % 0x1800u - 0xc00u) & 0x7fffu) | (next() & 0x8000u);
      const std::uint32_t header = scale | minimum << 16;
      for (std::size_t i = 0; i < 4; ++i) packed[at + i] = static_cast<std::byte>(header >> 8 * i);
    }
    Tensor expected(DType::BF16, {kElems});
    std::vector<float> scale(64, 1.0f), shift(64, -0.0f);
    unpack_then(plan, packed, expected.view(),
                {.scale = scale.data(), .shift = shift.data(), .channels = 64});
    const DeviceBytes on_device(packed), ones(std::as_bytes(std::span(scale))),
        zeros(std::as_bytes(std::span(shift)));
    const DeviceBytes out(2 * kElems);
    unpack_then(plan, on_device.span(), TensorView(out.data(), DType::BF16, {kElems}, Device::Cuda),
                {.scale = reinterpret_cast<const float*>(ones.data()),
                 .shift = reinterpret_cast<const float*>(zeros.data()),
                 .channels = 64});
    EXPECT_EQ(ref::first_difference(DType::BF16, out.fetch(), expected.bytes()), "");
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
      compare(text, dtype, 24 * 490, 6, 49, 0);
      compare(text, dtype, 12 * 490, 6, 49, 1);  // at an odd address
      compare(text, dtype, 1024, 1, 1, 0);       // one channel
      compare(text, dtype, 8008, 1, 8008, 0);
      compare(text, dtype, 64 * 300, 64, 1, 0);  // channels_last, each thread with its channels
      compare(text, dtype, 2048 * 9, 2048, 1, 0);
    }
  }
}

}  // namespace
}  // namespace tuckfold
