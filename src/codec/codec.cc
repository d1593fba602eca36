// layout, pack and unpack: arguments are checked here, once; rows of the registry trust them.
#include "tuckfold/codec.h"

#include <limits>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/target.h"
#include "codec/registry.h"

namespace tuckfold {
namespace {

constexpr std::size_t kAlign = 64;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::size_t tensor_bytes(const char* what, DType dtype, const Shape& shape) {
  const auto elems = static_cast<std::size_t>(shape.elems());
  if (elems > std::numeric_limits<std::size_t>::max() / 16) {
    invalid("[{}] {} of {} is too large", what, to_string(dtype), to_string(shape));
  }
  return elems * size_bytes(dtype);
}

void need_stages(const char* what, const CodecSpec& spec) {
  if (spec.stages().empty())
    invalid("[{}] the spec is empty; make one with CodecSpec::parse", what);
}

// Calls visit(stage, layout of the stage, input dtype, input shape) along the chain.
template <class Visit>
void walk(const CodecSpec& spec, DType dtype, const Shape& shape, Visit&& visit) {
  DType stage_dtype = dtype;
  Shape stage_shape = shape;
  for (const Stage& stage : spec.stages()) {
    const Layout out = row_of(stage).layout(stage, stage_dtype, stage_shape);
    visit(stage, out, stage_dtype, stage_shape);
    stage_dtype = out.dtype;
    stage_shape = out.shape;
  }
}

void check_view(const char* what, const void* data, DType dtype, const Shape& shape,
                const Shape& strides, Device device) {
  if (device != Device::Cpu) {
    fail(Errc::Unsupported, "[{}] this build has no CUDA codecs; copy the tensor to the CPU first",
         what);
  }
  if (strides.rank() != shape.rank()) {
    invalid("[{}] a tensor of rank {} needs as many strides, got {}", what, shape.rank(),
            strides.rank());
  }
  if (data == nullptr && shape.elems() > 0) {
    invalid("[{}] the tensor of {} {} has no data", what, to_string(dtype), to_string(shape));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % size_bytes(dtype) != 0) {
    invalid("[{}] {} data must be aligned to {} bytes; copy it to an aligned buffer", what,
            to_string(dtype), size_bytes(dtype));
  }
}

// Two elements at one address would be written in an order that depends on threads.
void check_writable(const TensorView& out) {
  for (std::size_t axis = 0; axis < out.shape.rank(); ++axis) {
    if (out.strides[axis] == 0 && out.shape[axis] > 1) {
      invalid("[unpack] the output must not repeat elements, got stride 0 on axis {}", axis);
    }
  }
}

// The caller's workspace, or one made for this call, from its first aligned byte on.
class Workspace {
 public:
  Workspace(const char* what, std::span<std::byte> given, std::size_t bytes) {
    if (bytes == 0) return;
    if (given.empty()) {
      owned_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    } else if (given.size() < bytes) {
      invalid("[{}] the workspace needs {} bytes, got {}; see layout()", what, bytes, given.size());
    }
    base_ = given.empty() ? owned_.get() : given.data();
    base_ += -reinterpret_cast<std::uintptr_t>(base_) % kAlign;
  }
  std::byte* at(std::size_t offset) const { return base_ + offset; }

 private:
  std::unique_ptr<std::byte[]> owned_;
  std::byte* base_ = nullptr;
};

RunContext context_of(const char* what, const RunOptions& options) {
  if (options.threads < 0) invalid("[{}] threads must be 0 or more, got {}", what, options.threads);
  settle_cpu_target();
  return {.threads = thread_count(options.threads), .seed = options.seed};
}

}  // namespace

Layout layout(const CodecSpec& spec, DType dtype, const Shape& shape) {
  need_stages("layout", spec);
  const std::size_t in_bytes = tensor_bytes("layout", dtype, shape);
  Layout result;
  std::size_t workspace = 0;
  bool first = true;
  walk(spec, dtype, shape, [&](const Stage&, const Layout& stage, DType, const Shape&) {
    // Every stage but the last leaves its tensor in the workspace.
    if (!first) workspace += aligned(result.max_bytes);
    first = false;
    const bool fixed = result.fixed && stage.fixed;
    result = stage;
    result.fixed = fixed;
  });
  result.workspace_bytes = workspace == 0 ? 0 : workspace + kAlign;
  if (result.max_bytes > in_bytes) {
    invalid(
        "[layout] {} would grow {} {} from {} to {} bytes; store fewer or narrower values, "
        "or use raw",
        spec.print(), to_string(dtype), to_string(shape), in_bytes, result.max_bytes);
  }
  return result;
}

std::size_t pack(const CodecSpec& spec, const ConstTensorView& in, std::span<std::byte> out,
                 const RunOptions& options) {
  const Layout fit = layout(spec, in.dtype, in.shape);
  check_view("pack", in.data, in.dtype, in.shape, in.strides, in.device);
  if (out.size() < fit.max_bytes) {
    invalid("[pack] the output needs {} bytes, got {}; see layout()", fit.max_bytes, out.size());
  }
  const RunContext run = context_of("pack", options);
  const Workspace workspace("pack", options.workspace, fit.workspace_bytes);
  const Stage* last = &spec.stages().back();
  const void* data = in.data;
  const Shape* strides = &in.strides;
  Shape own_strides;
  std::size_t offset = 0, written = 0;
  walk(spec, in.dtype, in.shape,
       [&](const Stage& stage, const Layout& step, DType dtype, const Shape& shape) {
         std::byte* to = &stage == last ? out.data() : workspace.at(offset);
         const ConstTensorView view(data, dtype, shape, *strides);
         written = row_of(stage).pack(stage, view, {to, step.max_bytes}, run);
         offset += aligned(step.max_bytes);
         data = to;
         own_strides = row_major_strides(step.shape);
         strides = &own_strides;
       });
  return written;
}

void unpack(const CodecSpec& spec, std::span<const std::byte> packed, const TensorView& out,
            const RunOptions& options) {
  const Layout fit = layout(spec, out.dtype, out.shape);
  check_view("unpack", out.data, out.dtype, out.shape, out.strides, out.device);
  check_writable(out);
  if (fit.fixed ? packed.size() != fit.max_bytes : packed.size() > fit.max_bytes) {
    fail(Errc::CorruptData, "[unpack] {} of {} {} packs to {}{} bytes, got {}", spec.print(),
         to_string(out.dtype), to_string(out.shape), fit.fixed ? "" : "at most ", fit.max_bytes,
         packed.size());
  }
  const RunContext run = context_of("unpack", options);
  const Workspace workspace("unpack", options.workspace, fit.workspace_bytes);
  // Backwards: each stage fills the tensor that the one before it had packed, in the workspace
  // where pack had put it.
  const std::span<const Stage> stages = spec.stages();
  std::span<const std::byte> bytes = packed;
  for (std::size_t i = stages.size(); i-- > 0;) {
    DType dtype = out.dtype;
    Shape shape = out.shape;
    std::size_t offset = 0;
    for (std::size_t j = 0; j < i; ++j) {
      const Layout step = row_of(stages[j]).layout(stages[j], dtype, shape);
      if (j + 1 < i) offset += aligned(step.max_bytes);
      dtype = step.dtype;
      shape = step.shape;
    }
    std::byte* to = i == 0 ? nullptr : workspace.at(offset);
    const TensorView view = i == 0 ? out : TensorView(to, dtype, shape);
    row_of(stages[i]).unpack(stages[i], bytes, view, run);
    bytes = {to, static_cast<std::size_t>(shape.elems()) * size_bytes(dtype)};
  }
}

}  // namespace tuckfold
