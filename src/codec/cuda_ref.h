// What a CUDA device makes of a dense tensor, beside what the CPU makes of it; for tests.
#pragma once

#include <string>
#include <vector>

#include "base/cuda/device_ref.h"
#include "base/fail.h"
#include "tuckfold/codec.h"

namespace tuckfold::ref {

// Elements side by side on the device, `past` elements behind an address that suits every kernel.
class DeviceElements {
 public:
  DeviceElements(DType dtype, std::int64_t elems, std::int64_t past = 0)
      : dtype_(dtype),
        elems_(elems),
        front_(static_cast<std::size_t>(past) * size_bytes(dtype)),
        bytes_(front_ + static_cast<std::size_t>(elems) * size_bytes(dtype)) {}
  DeviceElements(const Tensor& dense, std::int64_t past = 0)
      : DeviceElements(dense.dtype(), dense.elems(), past) {
    const std::vector<std::byte> from = dense.bytes();
    if (!from.empty()) cuda::copy(bytes_.data() + front_, from.data(), from.size(), nullptr);
    cuda::synchronize(nullptr);
  }
  TensorView view() const { return {bytes_.data() + front_, dtype_, {elems_}, Device::Cuda}; }
  std::vector<std::byte> fetch() const {
    const std::vector<std::byte> all = bytes_.fetch();
    return {all.begin() + static_cast<std::ptrdiff_t>(front_), all.end()};
  }
  bool guards_untouched() const { return bytes_.guards_untouched(); }

 private:
  DType dtype_;
  std::int64_t elems_;
  std::size_t front_;
  DeviceBytes bytes_;
};

// Packs and unpacks a tensor of one axis on both; what differs, or nothing.
inline std::string difference_from_cpu(const CodecSpec& spec, const Tensor& in,
                                       std::int64_t past = 0,
                                       const RunOptions& options = {.seed = 7}) {
  const auto says = [&](const std::string& what) {
    return what.empty() ? what
                        : fmt::format("{} of {} {} past {}: {}", spec.print(),
                                      to_string(in.dtype()), to_string(in.shape()), past, what);
  };
  const Layout fit = layout(spec, in.dtype(), in.shape());
  std::vector<std::byte> wanted(fit.max_bytes);
  wanted.resize(pack(spec, in.view(), wanted, options));
  const DeviceElements from(in, past);
  const DeviceBytes out(fit.max_bytes);
  const std::size_t written = pack(spec, from.view(), out.span(), options);
  if (written != wanted.size()) {
    return says(fmt::format("{} bytes against {}", written, wanted.size()));
  }
  std::vector<std::byte> got = out.fetch();
  got.resize(written);
  if (const std::string what = first_difference(DType::U8, got, wanted); !what.empty()) {
    return says("packed " + what);
  }
  const Tensor expected(in.dtype(), in.shape());
  unpack(spec, wanted, expected.view(), options);
  const DeviceBytes packed(wanted);
  const DeviceElements to(in.dtype(), in.elems(), past);
  unpack(spec, packed.span(), to.view(), options);
  if (!out.guards_untouched() || !to.guards_untouched()) return says("guards were written");
  return says(first_difference(in.dtype(), to.fetch(), expected.bytes()));
}

}  // namespace tuckfold::ref
