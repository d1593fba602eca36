// Plans on a CUDA device: everything is left to the caller's stream.
#include <cstdint>

#include "base/fail.h"
#include "codec/plan.h"

namespace tuckfold {
namespace {

CudaContext context_of(const RunOptions& options, const Steps& steps, const Workspace& workspace) {
  return {.stream = options.cuda.stream,
          .seed = options.seed,
          .workspace = {workspace.at(steps.scratch_at), steps.scratch_bytes},
          .device_result = options.cuda.device_result,
          .device_seed = options.cuda.device_seed};
}

}  // namespace

// Kernels read and write packed bytes 16 at a time.
void Steps::check_cuda(const char* what, const std::byte* packed, const RunOptions& options) const {
  int reporting = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    if (step.row->cuda == nullptr) {
      fail(Errc::Unsupported, "[{}] {} runs on the CPU alone; copy the tensor there first", what,
           step.stage->codec->name);
    }
    if (step.dtype > DType::I64 && !step.row->cuda->every_dtype) {
      fail(
          Errc::Unsupported,
          "[{}] {} has no CUDA kernel for {}; use raw or mask, or copy the tensor to the CPU first",
          what, step.stage->codec->name, to_string(step.dtype));
    }
    reporting += step.row->reports ? 1 : 0;
    if (step.varying) {
      fail(Errc::Unsupported,
           "[{}] on a CUDA device nothing can follow {}, whose size varies; use it alone, or copy "
           "the tensor to the CPU first",
           what, steps[i - 1].stage->codec->name);
    }
  }
  if (reporting > 1 && options.cuda.device_result != nullptr) {
    fail(Errc::Unsupported,
         "[{}] one device_result cannot serve {} codecs of a chain; leave it out, or pack step by "
         "step",
         what, reporting);
  }
  constexpr std::size_t kPackedAlign = 16;
  if (reinterpret_cast<std::uintptr_t>(packed) % kPackedAlign != 0) {
    invalid("[{}] packed bytes on a CUDA device must start at a multiple of {} bytes; copy them",
            what, kPackedAlign);
  }
}

std::size_t Steps::pack_on_cuda(const ConstTensorView& in, std::span<std::byte> out,
                                const RunOptions& options) const {
  check_cuda("pack", out.data(), options);
  const Workspace workspace("pack", options, workspace_bytes(), Device::Cuda);
  const CudaContext run = context_of(options, *this, workspace);
  const auto room_of = [&](std::size_t i) -> std::span<std::byte> {
    return {i + 1 == count ? out.data() : workspace.at(steps[i].out_at), steps[i].out.max_bytes};
  };
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    const ConstTensorView view =
        i == 0 ? in : ConstTensorView(room_of(i - 1).data(), step.dtype, step.shape, Device::Cuda);
    if (const CudaPair* pair = step.pair;
        pair != nullptr &&
        pair->pack(*step.stage, *steps[i + 1].stage, view, room_of(i + 1), run)) {
      bytes = room_of(++i).size();
      continue;
    }
    bytes = step.row->cuda->pack(*step.stage, view, room_of(i), run);
  }
  return bytes;
}

void Steps::unpack_on_cuda(std::span<const std::byte> packed, const TensorView& out,
                           const RunOptions& options) const {
  check_cuda("unpack", packed.data(), options);
  const Workspace workspace("unpack", options, workspace_bytes(), Device::Cuda);
  const CudaContext run = context_of(options, *this, workspace);
  std::span<const std::byte> bytes = packed;
  for (std::size_t i = count; i-- > 0;) {
    const auto view_at = [&](std::size_t stage) {
      return stage == 0 ? out
                        : TensorView(workspace.at(steps[stage - 1].out_at), steps[stage].dtype,
                                     steps[stage].shape, Device::Cuda);
    };
    if (const CudaPair* pair = i == 0 ? nullptr : steps[i - 1].pair;
        pair != nullptr &&
        pair->unpack(*steps[i - 1].stage, *steps[i].stage, bytes, view_at(i - 1), run)) {
      --i;
    } else {
      steps[i].row->cuda->unpack(*steps[i].stage, bytes, view_at(i), run);
    }
    if (i > 0) bytes = {workspace.at(steps[i - 1].out_at), steps[i - 1].out.max_bytes};
  }
}

}  // namespace tuckfold
