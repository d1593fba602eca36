// Plans, and what runs them on the CPU: arguments are checked here, once; rows of the registry
// trust them. plan_cuda.cc has the other half.
#include "codec/plan.h"

#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fp_env.h"
#include "base/overlap.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "base/target.h"

namespace tuckfold {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + Workspace::kAlign - 1) / Workspace::kAlign * Workspace::kAlign;
}

std::size_t tensor_bytes(const char* what, DType dtype, const Shape& shape) {
  const auto elems = static_cast<std::size_t>(shape.elems());
  if (elems > std::numeric_limits<std::size_t>::max() / 16) {
    invalid("[{}] {} of {} is too large", what, to_string(dtype), to_string(shape));
  }
  return elems * size_bytes(dtype);
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

// Calls body(first element, its bytes, how many) for the elements of a bool tensor, some at a time.
template <class Body>
void for_each_bools(const ConstTensorView& view, Body&& body) {
  constexpr std::int64_t kBatch = 4096;
  const FlatReader reader(view);
  std::uint8_t bytes[kBatch];
  for (std::int64_t at = 0; at < reader.elems(); at += kBatch) {
    const std::int64_t some = std::min(kBatch, reader.elems() - at);
    reader.gather_bytes(at, some, bytes);
    body(at, bytes, some);
  }
}

// An exact codec cannot give back another byte, and where a bool is read no other may be.
void check_bools(const ConstTensorView& in) {
  for_each_bools(in, [](std::int64_t at, const std::uint8_t* bytes, std::int64_t some) {
    const auto* odd = std::find_if(bytes, bytes + some, [](std::uint8_t byte) { return byte > 1; });
    if (odd == bytes + some) return;
    invalid("[pack] a bool is a byte of 0 or 1, element {} is {}; compare the values with 0 first",
            at + (odd - bytes), *odd);
  });
}

// Packed bytes from elsewhere may hold any: what is not 0 becomes 1.
void normalize_bools(const TensorView& out) {
  const FlatWriter writer(out);
  for_each_bools(out, [&](std::int64_t at, std::uint8_t* bytes, std::int64_t some) {
    if (std::all_of(bytes, bytes + some, [](std::uint8_t byte) { return byte <= 1; })) return;
    std::transform(bytes, bytes + some, bytes, [](std::uint8_t byte) { return byte != 0 ? 1 : 0; });
    writer.scatter_bytes(at, some, bytes);
  });
}

Shape bytes_shape(std::size_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

RunContext context_of(const char* what, const RunOptions& options, const Steps& steps,
                      const Workspace& workspace) {
  if (options.threads < 0) invalid("[{}] threads must be 0 or more, got {}", what, options.threads);
  choose_cpu_target();
  return {.threads = thread_count(options.threads),
          .seed = options.seed,
          .workspace = {workspace.at(steps.scratch_at), steps.scratch_bytes}};
}

}  // namespace

// ---- making one ---------------------------------------------------------------------------------

Steps::Steps(const char* what, const CodecSpec& given_spec, DType dtype, const Shape& given_shape)
    : spec(&given_spec) {
  const FpEnv nearest;
  const auto stages = spec->stages();
  if (stages.empty()) invalid("[{}] the spec is empty; make one with CodecSpec::parse", what);
  const std::size_t in_bytes = tensor_bytes(what, dtype, given_shape);
  const DType given_dtype = dtype;
  Shape shape = given_shape;
  bool varying = false;
  for (const Stage& stage : stages) {
    const Codec& row = row_of(stage);
    if (varying && row.unpacked_bytes == nullptr) {
      invalid(
          "[layout] {} needs a tensor, but {} packs to a number of bytes that varies; only a "
          "codec of bytes can follow it, such as zstd",
          stage.codec->name, steps[count - 1].stage->codec->name);
    }
    if (must_be_exact(given_dtype) && !row.exact) {
      invalid(
          "[layout] {} is lossy and {} holds whole numbers that must stay exact; use bits, or "
          "convert to f32 first",
          stage.codec->name, to_string(given_dtype));
    }
    Step& step = steps[count++];
    step = {&stage, &row, dtype, shape, varying, row.layout(stage, dtype, shape), scratch_at};
    if (count < stages.size()) {
      scratch_at += aligned(step.out.max_bytes);
      step.pair = cuda_pair(row, row_of(stages[count]));
    }
    scratch_bytes = std::max(scratch_bytes, step.out.workspace_bytes);
    varying = varying || !step.out.fixed;
    dtype = step.out.dtype;
    shape = step.out.shape;
  }
  if (fixed() && max_bytes() > in_bytes) {
    invalid(
        "[layout] {} would grow {} {} from {} to {} bytes; store fewer or narrower values, "
        "or use raw",
        spec->print(), to_string(given_dtype), to_string(given_shape), in_bytes, max_bytes());
  }
}

std::size_t Steps::workspace_bytes() const {
  const std::size_t bytes = scratch_at + scratch_bytes;
  return bytes == 0 ? 0 : bytes + Workspace::kAlign;  // to begin at a multiple of kAlign
}

Layout Steps::layout() const {
  Layout result = steps[count - 1].out;
  result.fixed = fixed();
  result.workspace_bytes = workspace_bytes();
  return result;
}

// ---- running it ---------------------------------------------------------------------------------

Workspace::Workspace(const char* what, const RunOptions& options, std::size_t bytes, Device device)
    : on_device_(device == Device::Cuda && options.workspace.empty() ? bytes : 0,
                 options.cuda.stream) {
  if (bytes == 0) return;
  const std::span<std::byte> given = options.workspace;
  if (!given.empty() && given.size() < bytes) {
    invalid("[{}] the workspace needs {} bytes, got {}; see layout()", what, bytes, given.size());
  }
  if (given.empty() && device == Device::Cpu) {
    owned_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  }
  base_ = !given.empty() ? given.data() : owned_ != nullptr ? owned_.get() : on_device_.data();
  base_ += -reinterpret_cast<std::uintptr_t>(base_) % kAlign;
}

void Steps::refuse_size(const TensorView& out, bool fixed_size, std::size_t wanted,
                        std::size_t got) const {
  fail(Errc::CorruptData, "[unpack] {} of {} {} packs to {}{} bytes, got {}", spec->print(),
       to_string(out.dtype), to_string(out.shape), fixed_size ? "" : "at most ", wanted, got);
}

void Steps::check_pack(const ConstTensorView& in, std::span<std::byte> out) const {
  check_view("pack", in.data, in.dtype, in.shape, in.strides, in.device);
  if (out.size() < max_bytes()) {
    invalid("[pack] the output needs {} bytes, got {}; see layout()", max_bytes(), out.size());
  }
  if (overlaps(out.first(max_bytes()), in)) {
    invalid("[pack] the output shares memory with the tensor; pack to another place");
  }
}

void Steps::check_unpack(std::span<const std::byte> packed, const TensorView& out) const {
  check_view("unpack", out.data, out.dtype, out.shape, out.strides, out.device);
  check_apart("unpack", out);
  if (fixed() ? packed.size() != max_bytes() : packed.size() > max_bytes()) {
    refuse_size(out, fixed(), max_bytes(), packed.size());
  }
  if (overlaps(packed, out)) {
    invalid("[unpack] the output shares memory with the packed bytes; unpack to another place");
  }
}

std::size_t Steps::pack(const ConstTensorView& in, std::span<std::byte> out,
                        const RunOptions& options) const {
  const FpEnv nearest;  // rows round their parameters
  if (in.device == Device::Cuda) return pack_on_cuda(in, out, options);
  if (in.dtype == DType::Bool) check_bools(in);
  const Workspace workspace("pack", options, workspace_bytes(), Device::Cpu);
  const RunContext run = context_of("pack", options, *this, workspace);
  std::span<const std::byte> bytes;  // that the stage before wrote
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    std::byte* to = i + 1 == count ? out.data() : workspace.at(step.out_at);
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

void Steps::unpack(std::span<const std::byte> packed, const TensorView& out,
                   const RunOptions& options) const {
  const FpEnv nearest;
  if (out.device == Device::Cuda) return unpack_on_cuda(packed, out, options);
  const Workspace workspace("unpack", options, workspace_bytes(), Device::Cpu);
  const RunContext run = context_of("unpack", options, *this, workspace);
  // Backwards: each stage fills the tensor that the one before it had packed, in the workspace
  // where pack had put it.
  std::span<const std::byte> bytes = packed;
  for (std::size_t i = count; i-- > 0;) {
    const Step& step = steps[i];
    if (i == 0) {
      step.row->unpack(*step.stage, bytes, out, run);
      break;
    }
    std::byte* to = workspace.at(steps[i - 1].out_at);
    TensorView view(to, step.dtype, step.shape);
    std::size_t filled = steps[i - 1].out.max_bytes;
    if (step.varying) {
      const std::size_t wanted = step.row->unpacked_bytes(*step.stage, bytes);
      if (wanted > filled) refuse_size(out, false, filled, wanted);
      filled = wanted;
      view = TensorView(to, step.dtype, bytes_shape(filled));
      const Layout exact = step.row->layout(*step.stage, step.dtype, view.shape);
      if (exact.fixed && bytes.size() != exact.max_bytes) {
        refuse_size(out, true, exact.max_bytes, bytes.size());
      }
    }
    step.row->unpack(*step.stage, bytes, view, run);
    bytes = {to, filled};
  }
  if (out.dtype == DType::Bool) normalize_bools(out);
}

// ---- Plan ---------------------------------------------------------------------------------------

const Steps& Plan::Impl::steps_for(const char* what, DType type, const Shape& axes) const {
  if (type != dtype || axes != shape) {
    invalid("[{}] the plan is for {} {}, the tensor is {} {}; make a plan for each dtype and shape",
            what, to_string(dtype), to_string(shape), to_string(type), to_string(axes));
  }
  return steps;
}

Plan::Plan(const CodecSpec& spec, DType dtype, const Shape& shape)
    : impl_(std::make_shared<const Impl>(spec, dtype, shape)) {}

std::optional<Plan> Plan::make_if_fits(const CodecSpec& spec, DType dtype, const Shape& shape,
                                       std::string* why_not) {
  try {
    return Plan(spec, dtype, shape);
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    if (why_not != nullptr) *why_not = error.what();
    return std::nullopt;
  }
}

const CodecSpec& Plan::spec() const noexcept { return impl_->spec; }
DType Plan::dtype() const noexcept { return impl_->dtype; }
const Shape& Plan::shape() const noexcept { return impl_->shape; }
const Layout& Plan::layout() const noexcept { return impl_->layout; }

std::size_t Plan::pack(const ConstTensorView& in, std::span<std::byte> out,
                       const RunOptions& options) const {
  const Steps& steps = impl_->steps_for("pack", in.dtype, in.shape);
  steps.check_pack(in, out);
  return steps.pack(in, out, options);
}

void Plan::unpack(std::span<const std::byte> packed, const TensorView& out,
                  const RunOptions& options) const {
  const Steps& steps = impl_->steps_for("unpack", out.dtype, out.shape);
  steps.check_unpack(packed, out);
  steps.unpack(packed, out, options);
}

}  // namespace tuckfold
