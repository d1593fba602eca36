// Tensors and bytes on a CUDA device, for tests.
#pragma once

#include <span>
#include <vector>

#include "base/cuda/runtime.h"
#include "base/tensor_fixture.h"

namespace tuckfold::ref {

// Bytes on the device, between guards that show what is written beside them.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes, cuda::Stream stream = nullptr)
      : bytes_(bytes), stream_(stream), memory_(bytes + 2 * kGuard, stream) {
    cuda::fill(memory_.data(), static_cast<int>(kUntouched), bytes + 2 * kGuard, stream);
  }
  explicit DeviceBytes(std::span<const std::byte> from, cuda::Stream stream = nullptr)
      : DeviceBytes(from.size(), stream) {
    if (!from.empty()) cuda::copy(data(), from.data(), from.size(), stream);
    cuda::synchronize(stream);
  }
  std::byte* data() const { return memory_.data() + kGuard; }
  std::span<std::byte> span() const { return {data(), bytes_}; }
  std::vector<std::byte> fetch() const { return fetch(kGuard, bytes_); }
  bool guards_untouched() const {
    std::vector<std::byte> guards = fetch(0, kGuard), after = fetch(kGuard + bytes_, kGuard);
    guards.insert(guards.end(), after.begin(), after.end());
    return std::all_of(guards.begin(), guards.end(), [](std::byte b) { return b == kUntouched; });
  }

 private:
  static constexpr std::size_t kGuard = 256;

  std::vector<std::byte> fetch(std::size_t from, std::size_t bytes) const {
    std::vector<std::byte> result(bytes);
    if (bytes > 0) cuda::copy(result.data(), memory_.data() + from, bytes, stream_);
    cuda::synchronize(stream_);
    return result;
  }

  std::size_t bytes_;
  cuda::Stream stream_;
  cuda::Memory memory_;
};

// A copy of a tensor, in the same order and with the same gaps, that begins `past` elements after
// an address that suits every kernel.
class DeviceTensor {
 public:
  explicit DeviceTensor(const Tensor& host, std::int64_t past = 0)
      : host_(&host),
        front_(static_cast<std::size_t>(past) * size_bytes(host.dtype())),
        bytes_(front_ + host.storage().size()) {
    const std::span<const std::byte> from = host.storage();
    if (!from.empty()) cuda::copy(bytes_.data() + front_, from.data(), from.size(), nullptr);
    cuda::synchronize(nullptr);
  }
  TensorView view() const { return host_->view_of_copy(bytes_.data() + front_, Device::Cuda); }
  // Brings what is on the device back to the tensor that this was made from.
  void fetch() const {
    const std::vector<std::byte> back = bytes_.fetch();
    std::copy(back.begin() + static_cast<std::ptrdiff_t>(front_), back.end(),
              host_->storage().begin());
  }
  bool guards_untouched() const { return bytes_.guards_untouched(); }

 private:
  const Tensor* host_;
  std::size_t front_;
  DeviceBytes bytes_;
};

}  // namespace tuckfold::ref
