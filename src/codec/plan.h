// A spec laid out for one dtype and shape: what each stage takes and gives, at its largest, and
// where a stage leaves its output in the workspace. Plan keeps one; the free functions make one a
// call.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/cuda/runtime.h"
#include "codec/registry.h"

namespace tuckfold {

struct Steps {
  struct Step {
    const Stage* stage;
    const Codec* row;
    DType dtype;  // of what the stage takes
    Shape shape;
    bool varying;            // whether that is bytes, of a number that only packing tells
    Layout out;              // what the stage gives
    std::size_t out_at;      // offset of that in the workspace, unless the stage is the last
    const CudaPair* pair{};  // the kernel that does this stage and the next at once
  };

  // Keeps pointers into `spec`. Throws InvalidArgument as layout() does; `what` names the caller.
  Steps(const char* what, const CodecSpec& spec, DType dtype, const Shape& shape);

  bool fixed() const { return !steps[count - 1].varying && steps[count - 1].out.fixed; }
  std::size_t max_bytes() const { return steps[count - 1].out.max_bytes; }
  std::size_t workspace_bytes() const;
  Layout layout() const;

  // What pack and unpack check before they run.
  void check_pack(const ConstTensorView& in, std::span<std::byte> out) const;
  void check_unpack(std::span<const std::byte> packed, const TensorView& out) const;
  void check_cuda(const char* what, const std::byte* packed, const RunOptions& options) const;

  // After check_pack and check_unpack.
  std::size_t pack(const ConstTensorView& in, std::span<std::byte> out,
                   const RunOptions& options) const;
  void unpack(std::span<const std::byte> packed, const TensorView& out,
              const RunOptions& options) const;

  const CodecSpec* spec;
  Step steps[kMaxStages];
  std::size_t count = 0;
  std::size_t scratch_at = 0,
              scratch_bytes = 0;  // a row's own workspace, after the stages' outputs

 private:
  std::size_t pack_on_cuda(const ConstTensorView& in, std::span<std::byte> out,
                           const RunOptions& options) const;
  void unpack_on_cuda(std::span<const std::byte> packed, const TensorView& out,
                      const RunOptions& options) const;
  [[noreturn]] void refuse_size(const TensorView& out, bool fixed, std::size_t wanted,
                                std::size_t got) const;
};

struct Plan::Impl {
  Impl(const CodecSpec& given, DType type, const Shape& axes)
      : spec(given),
        dtype(type),
        shape(axes),
        steps("layout", spec, dtype, shape),
        layout(steps.layout()) {}

  // The steps, for a tensor of the plan's dtype and shape. Throws InvalidArgument for another.
  const Steps& steps_for(const char* what, DType type, const Shape& axes) const;

  const CodecSpec spec;
  const DType dtype;
  const Shape shape;
  const Steps steps;  // points into spec
  const Layout layout;
};

// The caller's workspace, or one made for this call, from its first aligned byte on.
class Workspace {
 public:
  static constexpr std::size_t kAlign = 256;  // whole cache lines, and what a GPU reads best

  Workspace(const char* what, const RunOptions& options, std::size_t bytes, Device device);
  std::byte* at(std::size_t offset) const { return base_ + offset; }

 private:
  std::unique_ptr<std::byte[]> owned_;
  cuda::Memory on_device_;
  std::byte* base_ = nullptr;
};

}  // namespace tuckfold
