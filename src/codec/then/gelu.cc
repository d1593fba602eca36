// unpack_gelu: checks, and the CPU, where all threads make a second pass over what was just unpacked.
#include "codec/then/gelu.h"

#include <algorithm>
#include <cstdint>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/then/gelu_block.h"
#include "codec/then/then.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPart = 4096;  // values that are converted together

void apply_on_cpu(const TensorView& out, int threads) {
  const FlatReader in(ConstTensorView{out});
  const FlatWriter to(out);
  const std::int64_t elems = out.shape.elems();
  parallel_for((elems + kPart - 1) / kPart, threads, [&](std::int64_t begin, std::int64_t end) {
    float values[kPart];
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * kPart, count = std::min(kPart, elems - first);
      in.gather(first, count, values);
      for (std::int64_t i = 0; i < count; ++i) values[i] = then::gelu(values[i]);
      to.scatter(first, count, values);
    }
  });
}

}  // namespace

void unpack_gelu(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                 const RunOptions& options) {
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) {
    invalid("[unpack_gelu] the tensor must be f32, f16 or bf16, got {}", to_string(out.dtype));
  }
  const bool on_cuda = out.device == Device::Cuda;
  if (on_cuda && &then::kCudaGelu != nullptr && then::is_block_quant(plan, packed, out) &&
      then::kCudaGelu.unpack(plan.spec().stages()[0], packed, out, options.cuda.stream)) {
    return;
  }
  plan.unpack(packed, out, options);
  if (out.shape.elems() == 0) return;
  if (on_cuda) {
    then::kCudaGelu.apply(out, options.cuda.stream);
  } else {
    apply_on_cpu(out, thread_count(options.threads));
  }
}

}  // namespace tuckfold
