// The device of an operator's tensors: memory there, from torch, and on a GPU torch's current
// stream.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "tuckfold/c.h"

namespace tuckfold::torch_ops {

using ::torch::headeronly::ScalarType;
using ::torch::stable::Tensor;

// torch's current stream of a device. The function is in libtorch_cuda.so, which a CPU build of
// torch does not have, so it is looked up for the first tensor on a GPU.
inline void* current_cuda_stream(std::int32_t device) {
  using Function = AOTITorchError (*)(std::int32_t, void**);
  static const auto function = []() -> Function {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    return reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  if (function == nullptr) {
    throw std::runtime_error("[cuda] this torch does not say which CUDA stream is current");
  }
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(function(device, &stream));
  return stream;
}

// The device of a call, which is current during the object's lifetime.
class Place {
 public:
  explicit Place(const Tensor& tensor) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type_));
    cuda_ = type_ == aoti_torch_device_type_cuda();
    if (!cuda_) return;
    index_ = tensor.get_device_index();
    if (tuckfold_has_cuda() == 0) return;  // which the library says better
    using namespace ::torch::stable::accelerator;
    if (getCurrentDeviceIndex() != index_) guard_.emplace(index_);
    stream_ = current_cuda_stream(index_);
  }

  bool cuda() const { return cuda_; }
  void* stream() const { return stream_; }
  std::int32_t device() const { return cuda_ ? TUCKFOLD_CUDA : TUCKFOLD_CPU; }

  bool holds(const Tensor& tensor) const {
    std::int32_t type = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
    return type == type_ && (!cuda_ || tensor.get_device_index() == index_);
  }

  Tensor empty(std::span<const std::int64_t> shape, ScalarType dtype) const {
    std::int64_t strides[TUCKFOLD_MAX_RANK], step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;
         step *= std::max<std::int64_t>(shape[axis], 1)) {
      strides[axis] = step;
    }
    if (!cuda_) check_memory(static_cast<std::size_t>(step) * element_bytes(dtype));
    AtenTensorHandle handle = nullptr;
    const auto type = static_cast<std::int32_t>(::torch::stable::detail::from(dtype));
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()),
                                                    shape.data(), strides, type, type_, index_,
                                                    &handle));
    return Tensor(handle);
  }
  // torch would print a stack trace and raise what bugs raise, so ask the system first.
  static void check_memory(std::size_t bytes) {
    constexpr std::size_t kLarge = std::size_t{1} << 30;
    if (bytes < kLarge) return;
    void* room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
      const std::string text =
          "there is not enough memory for this: " + std::to_string(bytes) + " bytes";
      tuckfold_set_error(TUCKFOLD_IO, text.c_str());
      throw std::invalid_argument(text);
    }
    munmap(room, bytes);
  }
  static std::size_t element_bytes(ScalarType dtype) {
    switch (dtype) {
      case ScalarType::Double:
      case ScalarType::Long:
      case ScalarType::UInt64: return 8;
      case ScalarType::Half:
      case ScalarType::BFloat16:
      case ScalarType::Short:
      case ScalarType::UInt16: return 2;
      case ScalarType::Byte:
      case ScalarType::Char:
      case ScalarType::Bool: return 1;
      default: return 4;
    }
  }

  Tensor bytes(std::size_t count) const {
    const auto length = static_cast<std::int64_t>(count);
    return empty({&length, 1}, ScalarType::Byte);
  }

 private:
  std::int32_t type_ = 0, index_ = 0;
  bool cuda_ = false;
  void* stream_ = nullptr;
  std::optional<::torch::stable::accelerator::DeviceGuard> guard_;
};

}  // namespace tuckfold::torch_ops
