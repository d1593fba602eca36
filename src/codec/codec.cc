// layout, pack and unpack: arguments are checked here, once; rows of the registry trust them.
#include "tuckfold/codec.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/cuda/runtime.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/target.h"
#include "codec/cuda_rows.h"
#include "codec/registry.h"

namespace tuckfold {
namespace {

// What stages leave in the workspace starts at cache lines, and where a GPU likes it.
constexpr std::size_t kAlign = 256;
std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::size_t tensor_bytes(const char* what, DType dtype, const Shape& shape) {
  const auto elems = static_cast<std::size_t>(shape.elems());
  if (elems > std::numeric_limits<std::size_t>::max() / 16) {
    invalid("[{}] {} of {} is too large", what, to_string(dtype), to_string(shape));
  }
  return elems * size_bytes(dtype);
}

// A spec laid out for a tensor: what each stage takes and gives, at its largest, and where a stage
// leaves it in the workspace.
struct Plan {
  struct Step {
    const Stage* stage;
    const Codec* row;
    DType dtype;  // of what the stage takes
    Shape shape;
    bool varying;         // whether that is bytes, of a number that only packing tells
    Layout out;           // what the stage gives
    std::size_t left_at;  // offset of that in the workspace, unless the stage is the last
  };

  Plan(const CodecSpec& spec, DType dtype, Shape shape) {
    const DType given = dtype;
    const bool must_be_exact = given == DType::I32 || given == DType::I64;
    bool varying = false;
    for (const Stage& stage : spec.stages()) {
      const Codec& row = row_of(stage);
      if (varying && row.unpacked_bytes == nullptr) {
        invalid(
            "[layout] {} needs a tensor, but {} packs to a number of bytes that varies; only a "
            "codec of bytes can follow it, such as zstd",
            stage.codec->name, steps[count - 1].stage->codec->name);
      }
      if (must_be_exact && !row.exact) {
        invalid(
            "[layout] {} is lossy and {} holds whole numbers that must stay exact; use bits, or "
            "convert to f32 first",
            stage.codec->name, to_string(given));
      }
      Step& step = steps[count++];
      step = {&stage, &row, dtype, shape, varying, row.layout(stage, dtype, shape), scratch_at};
      if (count < spec.stages().size()) scratch_at += aligned(step.out.max_bytes);
      scratch_bytes = std::max(scratch_bytes, step.out.workspace_bytes);
      varying = varying || !step.out.fixed;
      dtype = step.out.dtype;
      shape = step.out.shape;
    }
  }

  bool fixed() const { return !steps[count - 1].varying && steps[count - 1].out.fixed; }
  std::size_t max_bytes() const { return steps[count - 1].out.max_bytes; }
  std::size_t workspace_bytes() const {
    const std::size_t bytes = scratch_at + scratch_bytes;
    return bytes == 0 ? 0 : bytes + kAlign;  // to begin at a multiple of kAlign
  }

  Step steps[kMaxStages];
  std::size_t count = 0;
  std::size_t scratch_at = 0, scratch_bytes = 0;  // a row's own workspace, behind what stages leave
};

Plan plan(const char* what, const CodecSpec& spec, DType dtype, const Shape& shape) {
  if (spec.stages().empty()) {
    invalid("[{}] the spec is empty; make one with CodecSpec::parse", what);
  }
  const std::size_t in_bytes = tensor_bytes(what, dtype, shape);
  const Plan result(spec, dtype, shape);
  if (result.fixed() && result.max_bytes() > in_bytes) {
    invalid(
        "[layout] {} would grow {} {} from {} to {} bytes; store fewer or narrower values, "
        "or use raw",
        spec.print(), to_string(dtype), to_string(shape), in_bytes, result.max_bytes());
  }
  return result;
}

void check_view(const char* what, const void* data, DType dtype, const Shape& shape,
                const Shape& strides, Device device) {
  if (device == Device::Cuda && !cuda::built()) {
    fail(
        Errc::Unsupported,
        "[{}] this build has no CUDA codecs; install tuckfold where nvcc is, or copy the tensor to "
        "the CPU first",
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
  if (out.shape.elems() == 0) return;  // numpy gives such arrays strides of 0
  for (std::size_t axis = 0; axis < out.shape.rank(); ++axis) {
    if (out.strides[axis] == 0 && out.shape[axis] > 1) {
      invalid("[unpack] the output must not repeat elements, got stride 0 on axis {}", axis);
    }
  }
}

// The caller's workspace, or one made for this call, from its first aligned byte on.
class Workspace {
 public:
  Workspace(const char* what, const RunOptions& options, std::size_t bytes, Device device)
      : of_device_(device == Device::Cuda && options.workspace.empty() ? bytes : 0,
                   options.stream) {
    if (bytes == 0) return;
    const std::span<std::byte> given = options.workspace;
    if (!given.empty() && given.size() < bytes) {
      invalid("[{}] the workspace needs {} bytes, got {}; see layout()", what, bytes, given.size());
    }
    if (given.empty() && device == Device::Cpu) {
      owned_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    }
    base_ = !given.empty() ? given.data() : owned_ != nullptr ? owned_.get() : of_device_.data();
    base_ += -reinterpret_cast<std::uintptr_t>(base_) % kAlign;
  }
  std::byte* at(std::size_t offset) const { return base_ + offset; }

 private:
  std::unique_ptr<std::byte[]> owned_;
  cuda::Memory of_device_;
  std::byte* base_ = nullptr;
};

RunContext context_of(const char* what, const RunOptions& options, const Plan& plan,
                      const Workspace& workspace) {
  if (options.threads < 0) invalid("[{}] threads must be 0 or more, got {}", what, options.threads);
  settle_cpu_target();
  return {.threads = thread_count(options.threads),
          .seed = options.seed,
          .workspace = {workspace.at(plan.scratch_at), plan.scratch_bytes}};
}

CudaContext cuda_context_of(const RunOptions& options, const Plan& plan,
                            const Workspace& workspace) {
  return {.stream = options.stream,
          .seed = options.seed,
          .workspace = {workspace.at(plan.scratch_at), plan.scratch_bytes},
          .outcome = options.outcome};
}

Shape bytes_shape(std::size_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

[[noreturn]] void refuse_size(const CodecSpec& spec, const TensorView& out, bool fixed,
                              std::size_t wanted, std::size_t got) {
  fail(Errc::CorruptData, "[unpack] {} of {} {} packs to {}{} bytes, got {}", spec.print(),
       to_string(out.dtype), to_string(out.shape), fixed ? "" : "at most ", wanted, got);
}

// Lays the spec out for a tensor that can be packed to `out`.
Plan plan_pack(const CodecSpec& spec, const ConstTensorView& in, std::span<std::byte> out) {
  const Plan steps = plan("pack", spec, in.dtype, in.shape);
  check_view("pack", in.data, in.dtype, in.shape, in.strides, in.device);
  if (out.size() < steps.max_bytes()) {
    invalid("[pack] the output needs {} bytes, got {}; see layout()", steps.max_bytes(),
            out.size());
  }
  return steps;
}

Plan plan_unpack(const CodecSpec& spec, std::span<const std::byte> packed, const TensorView& out) {
  const Plan steps = plan("unpack", spec, out.dtype, out.shape);
  check_view("unpack", out.data, out.dtype, out.shape, out.strides, out.device);
  check_writable(out);
  if (steps.fixed() ? packed.size() != steps.max_bytes() : packed.size() > steps.max_bytes()) {
    refuse_size(spec, out, steps.fixed(), steps.max_bytes(), packed.size());
  }
  return steps;
}

// ---- on a CUDA device ---------------------------------------------------------------------------

// Kernels read and write packed bytes 16 at a time.
void check_cuda(const char* what, const Plan& plan, const std::byte* packed,
                const RunOptions& options) {
  int reporting = 0;
  for (std::size_t i = 0; i < plan.count; ++i) {
    const Plan::Step& step = plan.steps[i];
    if (step.row->pack_cuda == nullptr) {
      fail(Errc::Unsupported, "[{}] {} runs on the CPU alone; copy the tensor there first", what,
           step.stage->codec->name);
    }
    reporting += step.row->reports ? 1 : 0;
    if (step.varying) {
      fail(Errc::Unsupported,
           "[{}] on a CUDA device nothing can follow {}, whose size varies; use it alone, or copy "
           "the tensor to the CPU first",
           what, plan.steps[i - 1].stage->codec->name);
    }
  }
  if (reporting > 1 && options.outcome != nullptr) {
    fail(Errc::Unsupported,
         "[{}] one outcome cannot tell of {} codecs of a chain; leave it out, or pack step by step",
         what, reporting);
  }
  constexpr std::size_t kPackedAlign = 16;
  if (reinterpret_cast<std::uintptr_t>(packed) % kPackedAlign != 0) {
    invalid("[{}] packed bytes on a CUDA device must start at a multiple of {} bytes; copy them",
            what, kPackedAlign);
  }
}

const CudaPair* pair_at(const Plan& plan, std::size_t i) {
  if (i + 1 >= plan.count) return nullptr;
  for (const CudaPair& pair : cuda_pairs()) {
    if (pair.first->info.name == plan.steps[i].stage->codec->name &&
        pair.second->info.name == plan.steps[i + 1].stage->codec->name) {
      return &pair;
    }
  }
  return nullptr;
}

std::size_t pack_on_cuda(const Plan& plan, const ConstTensorView& in, std::span<std::byte> out,
                         const RunOptions& options) {
  check_cuda("pack", plan, out.data(), options);
  const Workspace workspace("pack", options, plan.workspace_bytes(), Device::Cuda);
  const CudaContext run = cuda_context_of(options, plan, workspace);
  const auto room_of = [&](std::size_t i) -> std::span<std::byte> {
    return {i + 1 == plan.count ? out.data() : workspace.at(plan.steps[i].left_at),
            plan.steps[i].out.max_bytes};
  };
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < plan.count; ++i) {
    const Plan::Step& step = plan.steps[i];
    const ConstTensorView view =
        i == 0 ? in : ConstTensorView(room_of(i - 1).data(), step.dtype, step.shape, Device::Cuda);
    if (const CudaPair* pair = pair_at(plan, i);
        pair != nullptr &&
        pair->pack(*step.stage, *plan.steps[i + 1].stage, view, room_of(i + 1), run)) {
      bytes = room_of(++i).size();
      continue;
    }
    bytes = step.row->pack_cuda(*step.stage, view, room_of(i), run);
  }
  return bytes;
}

void unpack_on_cuda(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                    const RunOptions& options) {
  check_cuda("unpack", plan, packed.data(), options);
  const Workspace workspace("unpack", options, plan.workspace_bytes(), Device::Cuda);
  const CudaContext run = cuda_context_of(options, plan, workspace);
  std::span<const std::byte> bytes = packed;
  for (std::size_t i = plan.count; i-- > 0;) {
    const auto view_at = [&](std::size_t stage) {
      return stage == 0
                 ? out
                 : TensorView(workspace.at(plan.steps[stage - 1].left_at), plan.steps[stage].dtype,
                              plan.steps[stage].shape, Device::Cuda);
    };
    if (const CudaPair* pair = i == 0 ? nullptr : pair_at(plan, i - 1);
        pair != nullptr &&
        pair->unpack(*plan.steps[i - 1].stage, *plan.steps[i].stage, bytes, view_at(i - 1), run)) {
      --i;
    } else {
      plan.steps[i].row->unpack_cuda(*plan.steps[i].stage, bytes, view_at(i), run);
    }
    if (i > 0) bytes = {workspace.at(plan.steps[i - 1].left_at), plan.steps[i - 1].out.max_bytes};
  }
}

// ---- many tensors -------------------------------------------------------------------------------

void check_counts(const char* what, std::size_t tensors, std::size_t others) {
  if (tensors != others) {
    invalid("[{}] every tensor needs its packed bytes, got {} tensors and {} others", what, tensors,
            others);
  }
}

// The codec where it does tensors of a CUDA device together.
template <class View>
const Codec* row_for_many(const CodecSpec& spec, std::span<const View> views) {
  const bool on_device = std::all_of(views.begin(), views.end(),
                                     [](const View& v) { return v.device == Device::Cuda; });
  if (views.empty() || !on_device || spec.stages().size() != 1) return nullptr;
  const Codec& row = row_of(spec.stages()[0]);
  return row.pack_cuda_many != nullptr ? &row : nullptr;
}

RunOptions options_of_one(const RunOptions& options, std::size_t i) {
  RunOptions one = options;
  one.seed += i;
  if (one.outcome != nullptr) one.outcome += i;
  return one;
}

}  // namespace

bool has_cuda() { return cuda::built(); }
int cuda_devices() { return cuda::device_count(); }

Layout layout(const CodecSpec& spec, DType dtype, const Shape& shape) {
  const Plan steps = plan("layout", spec, dtype, shape);
  Layout result = steps.steps[steps.count - 1].out;
  result.fixed = steps.fixed();
  result.workspace_bytes = steps.workspace_bytes();
  return result;
}

std::size_t pack(const CodecSpec& spec, const ConstTensorView& in, std::span<std::byte> out,
                 const RunOptions& options) {
  const Plan steps = plan_pack(spec, in, out);
  if (in.device == Device::Cuda) return pack_on_cuda(steps, in, out, options);
  const Workspace workspace("pack", options, steps.workspace_bytes(), Device::Cpu);
  const RunContext run = context_of("pack", options, steps, workspace);
  std::span<const std::byte> bytes;  // that the stage before wrote
  for (std::size_t i = 0; i < steps.count; ++i) {
    const Plan::Step& step = steps.steps[i];
    std::byte* to = i + 1 == steps.count ? out.data() : workspace.at(step.left_at);
    const ConstTensorView view =
        i == 0 ? in
               : ConstTensorView(bytes.data(), step.dtype,
                                 step.varying ? bytes_shape(bytes.size()) : step.shape);
    // What varies is now known, and may be less than what was planned for.
    const std::size_t room = step.varying
                                 ? step.row->layout(*step.stage, step.dtype, view.shape).max_bytes
                                 : step.out.max_bytes;
    bytes = {to, step.row->pack(*step.stage, view, {to, room}, run)};
  }
  return bytes.size();
}

void unpack(const CodecSpec& spec, std::span<const std::byte> packed, const TensorView& out,
            const RunOptions& options) {
  const Plan steps = plan_unpack(spec, packed, out);
  if (out.device == Device::Cuda) return unpack_on_cuda(steps, packed, out, options);
  const Workspace workspace("unpack", options, steps.workspace_bytes(), Device::Cpu);
  const RunContext run = context_of("unpack", options, steps, workspace);
  // Backwards: each stage fills the tensor that the one before it had packed, in the workspace
  // where pack had put it.
  std::span<const std::byte> bytes = packed;
  for (std::size_t i = steps.count; i-- > 0;) {
    const Plan::Step& step = steps.steps[i];
    if (i == 0) return step.row->unpack(*step.stage, bytes, out, run);
    std::byte* to = workspace.at(steps.steps[i - 1].left_at);
    TensorView view(to, step.dtype, step.shape);
    std::size_t filled = steps.steps[i - 1].out.max_bytes;
    if (step.varying) {
      const std::size_t count = step.row->unpacked_bytes(*step.stage, bytes);
      if (count > filled) refuse_size(spec, out, false, filled, count);
      filled = count;
      view = TensorView(to, step.dtype, bytes_shape(filled));
      const Layout exact = step.row->layout(*step.stage, step.dtype, view.shape);
      if (exact.fixed && bytes.size() != exact.max_bytes) {
        refuse_size(spec, out, true, exact.max_bytes, bytes.size());
      }
    }
    step.row->unpack(*step.stage, bytes, view, run);
    bytes = {to, filled};
  }
}

void pack_many(const CodecSpec& spec, std::span<const ConstTensorView> in,
               std::span<const std::span<std::byte>> out, std::span<std::size_t> written,
               const RunOptions& options) {
  check_counts("pack_many", in.size(), out.size());
  check_counts("pack_many", in.size(), written.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Plan steps = plan_pack(spec, in[i], out[i]);
    if (in[i].device == Device::Cuda) check_cuda("pack_many", steps, out[i].data(), options);
    written[i] = steps.max_bytes();
  }
  if (const Codec* row = row_for_many(spec, in); row != nullptr) {
    return row->pack_cuda_many(spec.stages()[0], in, out, {.stream = options.stream});
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    written[i] = pack(spec, in[i], out[i], options_of_one(options, i));
  }
}

void unpack_many(const CodecSpec& spec, std::span<const std::span<const std::byte>> packed,
                 std::span<const TensorView> out, const RunOptions& options) {
  check_counts("unpack_many", out.size(), packed.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Plan steps = plan_unpack(spec, packed[i], out[i]);
    if (out[i].device == Device::Cuda) check_cuda("unpack_many", steps, packed[i].data(), options);
  }
  if (const Codec* row = row_for_many(spec, out); row != nullptr) {
    return row->unpack_cuda_many(spec.stages()[0], packed, out, {.stream = options.stream});
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    unpack(spec, packed[i], out[i], options_of_one(options, i));
  }
}

}  // namespace tuckfold
