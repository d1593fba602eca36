// Both devices side by side, for tests.
#pragma once

#include <gtest/gtest.h>

#include "base/cuda/device_ref.h"
#include "codec/contract_ref.h"

namespace tuckfold::ref {

// Packs and unpacks on the CPU and on a CUDA device: bytes and values must be equal, and nothing
// else written.
inline void expect_cpu_bytes(const CodecSpec& spec, const Tensor& in, Order order) {
  constexpr RunOptions kOptions{.seed = 7};
  SCOPED_TRACE(fmt::format("{} of {} {} order {}", spec.print(), to_string(in.dtype()),
                           to_string(in.shape()), static_cast<int>(order)));
  const Layout fit = layout(spec, in.dtype(), in.shape());
  std::vector<std::byte> wanted(fit.max_bytes);
  wanted.resize(pack(spec, in.view(), wanted, kOptions));

  const DeviceTensor on_device(in);
  const DeviceBytes out(fit.max_bytes);
  const std::size_t written = pack(spec, on_device.view(), out.span(), kOptions);
  ASSERT_EQ(written, wanted.size());
  std::vector<std::byte> got = out.fetch();
  got.resize(written);
  ASSERT_EQ(first_difference(fit.fixed ? fit.dtype : DType::U8, got, wanted), "");
  ASSERT_TRUE(out.guards_untouched());

  Tensor expected(in.dtype(), in.shape()), back(in.dtype(), in.shape(), order);
  unpack(spec, wanted, expected.view(), kOptions);
  const DeviceBytes packed(wanted);
  const DeviceTensor to(back);
  unpack(spec, packed.span(), to.view(), kOptions);
  to.fetch();
  ASSERT_EQ(first_difference(in.dtype(), back.bytes(), expected.bytes()), "");
  ASSERT_TRUE(back.gaps_untouched());
  ASSERT_TRUE(to.guards_untouched());
}

// The same for a tensor of random values that lie side by side.
inline void expect_cpu_bytes(const std::string& spec, DType dtype, const Shape& shape) {
  const CodecSpec parsed = CodecSpec::parse(spec);
  if (!suits(parsed, dtype, shape)) return;
  expect_cpu_bytes(parsed, input_for(parsed, dtype, shape, Pattern::Random), Order::RowMajor);
}

}  // namespace tuckfold::ref
