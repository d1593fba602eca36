// The CPU and a CUDA device side by side, for tests.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "codec/contract_fixture.h"

namespace tuckfold::ref {

// Packs and unpacks on CPU and device, and says where packed bytes, values or the bytes around them
// differ, or nothing. The device's tensors begin `past` elements after an address that suits every
// kernel; it unpacks to a tensor of the given order.
inline std::string difference_from_cpu(const CodecSpec& spec, const Tensor& in,
                                       std::int64_t past = 0, Order order = Order::RowMajor) {
  constexpr RunOptions kOptions{.seed = 7};
  const auto says = [&](const std::string& what) {
    return what.empty() ? what
                        : fmt::format("{} of {} {} past {} order {}: {}", spec.print(),
                                      to_string(in.dtype()), to_string(in.shape()), past,
                                      static_cast<int>(order), what);
  };
  const Layout fit = layout(spec, in.dtype(), in.shape());
  std::vector<std::byte> wanted(fit.max_bytes);
  wanted.resize(pack(spec, in.view(), wanted, kOptions));

  const DeviceTensor from(in, past);
  const DeviceBytes out(fit.max_bytes);
  const std::size_t written = pack(spec, from.view(), out.span(), kOptions);
  std::vector<std::byte> got = out.fetch();
  got.resize(written);
  const DType packed_as = fit.fixed ? fit.dtype : DType::U8;
  if (const std::string what = first_difference(packed_as, got, wanted); !what.empty()) {
    return says("packed " + what);
  }
  if (!out.guards_untouched()) return says("bytes beside the packed ones were written");

  const Tensor expected(in.dtype(), in.shape()), back(in.dtype(), in.shape(), order);
  unpack(spec, wanted, expected.view(), kOptions);
  const DeviceBytes packed(wanted);
  const DeviceTensor to(back, past);
  unpack(spec, packed.span(), to.view(), kOptions);
  to.fetch();
  if (!back.gaps_untouched() || !to.guards_untouched()) {
    return says("elements beside the tensor's were written");
  }
  return says(first_difference(in.dtype(), back.bytes(), expected.bytes()));
}

// Packs and unpacks many tensors on the device at once, and says where bytes or values are not those of
// each alone on the CPU, or nothing. back: to unpack to, as `in` but for orders.
inline std::string difference_of_many(const CodecSpec& spec, const std::vector<Tensor>& in,
                                      const std::vector<Tensor>& back, std::uint64_t seed = 0) {
  std::deque<DeviceTensor> from, to;
  std::deque<DeviceBytes> rooms;
  std::vector<ConstTensorView> views;
  std::vector<TensorView> backs;
  std::vector<std::span<std::byte>> outs;
  for (std::size_t i = 0; i < in.size(); ++i) {
    views.emplace_back(from.emplace_back(in[i]).view());
    backs.push_back(to.emplace_back(back[i]).view());
    outs.push_back(rooms.emplace_back(layout(spec, in[i].dtype(), in[i].shape()).max_bytes).span());
  }
  std::vector<std::size_t> written(in.size());
  pack_many(spec, views, outs, written, {.seed = seed});
  const std::vector<std::span<const std::byte>> packed(outs.begin(), outs.end());
  unpack_many(spec, packed, backs);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto says = [&](const std::string& what) {
      return fmt::format("{} of {}, number {}: {}", spec.print(), to_string(in[i].shape()), i,
                         what);
    };
    std::vector<std::byte> wanted(written[i]);
    if (pack(spec, in[i].view(), wanted, {.seed = seed + i}) != written[i]) {
      return says("another size");
    }
    const Layout fit = layout(spec, in[i].dtype(), in[i].shape());
    if (const auto what = first_difference(fit.dtype, rooms[i].fetch(), wanted); !what.empty()) {
      return says("packed " + what);
    }
    const Tensor expected(in[i].dtype(), in[i].shape());
    unpack(spec, wanted, expected.view());
    to[i].fetch();
    if (!rooms[i].guards_untouched() || !to[i].guards_untouched() || !back[i].gaps_untouched()) {
      return says("bytes beside were written");
    }
    if (const auto what = first_difference(in[i].dtype(), back[i].bytes(), expected.bytes());
        !what.empty()) {
      return says(what);
    }
  }
  return "";
}

// As difference_from_cpu, for a contiguous tensor of random values, if the codec takes it.
inline void expect_cpu_bytes(const std::string& spec, DType dtype, const Shape& shape) {
  const CodecSpec parsed = CodecSpec::parse(spec);
  if (!suits(parsed, dtype, shape)) return;
  ASSERT_EQ(difference_from_cpu(parsed, input_for(parsed, dtype, shape, Pattern::Random)), "");
}

}  // namespace tuckfold::ref
