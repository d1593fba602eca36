// What operators share: refusals, dtypes, views of tensors, and how a call runs.
#pragma once

#include <pthread.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "torch/place.h"
#include "tuckfold/c.h"

namespace tuckfold::torch_ops {

using ::torch::headeronly::ScalarType;

// torch raises ValueError or RuntimeError for an exception, depending on its version.
// tuckfold.torch raises the class for tuckfold_last_status() instead, which every error here sets.
[[noreturn]] inline void raise() { throw std::invalid_argument(tuckfold_last_error()); }

inline void check(tuckfold_status status) {
  if (status != TUCKFOLD_OK) raise();
}

[[noreturn]] inline void refuse(const char* what, const std::string& text) {
  tuckfold_set_error(TUCKFOLD_INVALID_ARGUMENT, ("[" + std::string(what) + "] " + text).c_str());
  raise();
}

struct DTypeRow {
  std::int32_t ours;
  ScalarType theirs;
};
inline constexpr DTypeRow kDTypes[] = {
    {TUCKFOLD_F32, ScalarType::Float},     {TUCKFOLD_F16, ScalarType::Half},
    {TUCKFOLD_BF16, ScalarType::BFloat16}, {TUCKFOLD_F64, ScalarType::Double},
    {TUCKFOLD_U8, ScalarType::Byte},       {TUCKFOLD_I32, ScalarType::Int},
    {TUCKFOLD_I64, ScalarType::Long},      {TUCKFOLD_U16, ScalarType::UInt16},
    {TUCKFOLD_I16, ScalarType::Short},     {TUCKFOLD_I8, ScalarType::Char},
    {TUCKFOLD_U32, ScalarType::UInt32},    {TUCKFOLD_U64, ScalarType::UInt64},
    {TUCKFOLD_BOOL, ScalarType::Bool},
};

inline std::int32_t dtype_of(const char* what, ScalarType type) {
  for (const DTypeRow& row : kDTypes) {
    if (row.theirs == type) return row.ours;
  }
  refuse(what,
         "dtype must be float32, float16, bfloat16, float64, uint8, uint16, uint32, uint64, int8, "
         "int16, int32, int64 or bool; convert the tensor first");
}

inline ScalarType torch_dtype(std::int32_t dtype) { return kDTypes[dtype].theirs; }

// A view of a tensor with strides of its own; the tensor must outlive it.
inline tuckfold_tensor view_of(const char* what, const Place& place, const Tensor& tensor,
                               void* data) {
  return {.data = data,
          .dtype = dtype_of(what, tensor.scalar_type()),
          .rank = static_cast<std::int32_t>(tensor.dim()),
          .shape = tensor.sizes().data(),
          .strides = tensor.strides().data(),
          .device = place.device()};
}

// torch's own threads (libgomp's) are gone in a forked child, and waiting for them hangs.
inline std::atomic<bool> g_forked{false};
[[maybe_unused]] inline const int kAtFork =
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });

// How a call runs, and its scratch memory from torch.
struct Run {
  tuckfold_options options{.struct_bytes = sizeof options};
  std::optional<Tensor> workspace;
};

// On the CPU loops run on torch's threads, as many as torch.set_num_threads says; in a forked
// child, such as a data loader's worker, on as many of the library's own, which survive a fork.
inline void run_on_threads(tuckfold_options& options) {
  options.threads = static_cast<std::int32_t>(::torch::stable::get_num_threads());
  if (g_forked) return;
  options.executor = [](void*, std::int64_t parts, std::int32_t, tuckfold_range_body body,
                        void* context) {
    ::torch::stable::parallel_for(
        0, parts, 1, [&](std::int64_t begin, std::int64_t end) { body(context, begin, end); });
  };
}

// On a GPU kernels run in the current stream. Scratch memory of torch's allocator may be returned
// right after the call, because torch reuses it in stream order.
inline Run run_of(const Place& place, std::size_t workspace_bytes = 0, std::int64_t seed = 0) {
  Run run;
  run.options.seed = static_cast<std::uint64_t>(seed);
  if (!place.cuda()) {
    run_on_threads(run.options);
    return run;
  }
  run.options.stream = place.stream();
  if (workspace_bytes > 0) {
    run.workspace = place.bytes(workspace_bytes);
    run.options.workspace = run.workspace->mutable_data_ptr();
    run.options.workspace_bytes = workspace_bytes;
  }
  return run;
}

inline void check_all_on(const char* what, const Place& place, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (!place.holds(tensor)) refuse(what, "all tensors must be on one device; move some of them");
  }
}

// Kernels read packed bytes 16 at a time; torch's own memory is aligned to that, a slice of it may
// not be.
inline bool aligned(const Tensor& packed) {
  return reinterpret_cast<std::uintptr_t>(packed.const_data_ptr()) % 16 == 0;
}

inline void check_places(const char* what, const Place& place, const Tensor& packed,
                         const Tensor& out) {
  if (!place.holds(packed) || !place.holds(out)) {
    refuse(what, "packed bytes and tensor must be on one device; move one of them");
  }
  if (!packed.is_contiguous()) {
    refuse(what, "packed bytes must be contiguous; call contiguous() first");
  }
  if (place.cuda() && !aligned(packed)) {
    refuse(what,
           "packed bytes on a GPU must start at a multiple of 16 bytes; clone() the slice first");
  }
}

inline void check_bytes(const Tensor& packed) {
  if (packed.scalar_type() != ScalarType::Byte) {
    refuse("unpack", "packed bytes must be of uint8; view them as such");
  }
}

// What kernels read as plain arrays of floats.
inline void check_numbers(const char* what, const char* names, std::span<const Tensor> tensors,
                          std::int64_t channels) {
  for (const Tensor& each : tensors) {
    if (each.scalar_type() != ScalarType::Float || each.dim() != 1 || !each.is_contiguous() ||
        each.numel() != channels) {
      refuse(what, std::string(names) +
                       " must be contiguous, of float32, with a number for each channel");
    }
  }
}

}  // namespace tuckfold::torch_ops
