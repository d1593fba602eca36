// unpack_then: checks, and the CPU, where a second pass over values that were just unpacked is
// made by all threads.
#include "codec/then/then.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/then/then_block.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPart = 4096;  // values that are converted together

void check(const TensorView& out, const Then& then) {
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) {
    invalid("[unpack_then] the tensor must be f32, f16 or bf16, got {}", to_string(out.dtype));
  }
  const std::int64_t elems = out.shape.elems();
  if (elems == 0) return;  // an axis of channels, or one after it, may have no values
  if (then.channels < 1 || then.inner < 1) {
    invalid("[unpack_then] channels and inner must be 1 or more, got {} and {}", then.channels,
            then.inner);
  }
  if (then.inner > elems || elems % then.inner != 0 || elems / then.inner % then.channels != 0) {
    invalid("[unpack_then] {} values are not whole samples of {} channels with {} values each",
            elems, then.channels, then.inner);
  }
  if (then.scale == nullptr || then.shift == nullptr) {
    invalid("[unpack_then] scale and shift must be given");
  }
  if (then.add != nullptr && then.packed_add != nullptr) {
    invalid("[unpack_then] add and packed_add must not both be given");
  }
  const bool scales = then.add_scale != nullptr;
  if (scales != (then.add_shift != nullptr) || (scales && then.packed_add == nullptr)) {
    invalid("[unpack_then] add_scale and add_shift must be given together, and with packed_add");
  }
}

float above_zero(DType dtype) {
  return dtype == DType::F16 ? then::kAboveZero<F16> : then::kAboveZero<float>;
}

// Values from index `first` on, in runs of one channel, or where channels are next to each other in
// runs of all of them.
void normalize(const Then& then, std::int64_t first, std::int64_t count, float* values, bool relu) {
  std::int64_t channel = first / then.inner % then.channels, past = first % then.inner;
  for (std::int64_t i = 0; i < count;) {
    const float *scale = then.scale + channel, *shift = then.shift + channel;
    float* run = values + i;
    if (then.inner == 1) {
      const std::int64_t some = std::min(count - i, then.channels - channel);
      for (std::int64_t k = 0; k < some; ++k) {
        run[k] = then::value_of(run[k], scale[k], shift[k], relu);
      }
      channel = 0;
      i += some;
    } else {
      const std::int64_t some = std::min(count - i, then.inner - past);
      const float by = *scale, add = *shift;
      for (std::int64_t k = 0; k < some; ++k) {
        run[k] = then::value_of(run[k], by, add, relu);
      }
      past = 0;
      channel = channel + 1 == then.channels ? 0 : channel + 1;
      i += some;
    }
  }
}

void apply_on_cpu(const TensorView& out, const Then& then, int threads) {
  const FlatReader in(ConstTensorView{out});
  const FlatWriter to(out);
  ConstTensorView added{out};
  added.data = then.add == nullptr ? out.data : then.add;
  const FlatReader add(added);
  const bool relu_after = then.relu && then.add != nullptr;
  const std::int64_t elems = out.shape.elems();
  parallel_for((elems + kPart - 1) / kPart, threads, [&](std::int64_t begin, std::int64_t end) {
    float values[kPart];
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * kPart, count = std::min(kPart, elems - first);
      in.gather(first, count, values);
      normalize(then, first, count, values, then.relu && !relu_after);
      if (then.add != nullptr) {
        float others[kPart];
        add.gather(first, count, others);
        for (std::int64_t i = 0; i < count; ++i) {
          const float sum = values[i] + others[i];
          values[i] = relu_after && sum <= 0.0f ? 0.0f : sum;
        }
      }
      if (then.gate != nullptr) {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t index = first + i;
          const bool open = (then.gate[index / 8] >> index % 8 & std::byte{1}) != std::byte{0};
          values[i] = then::gated(values[i], open, above_zero(out.dtype));
        }
      }
      for (std::int64_t i = 0; i < count; ++i) values[i] = then::without_payload(values[i]);
      to.scatter(first, count, values);
    }
  });
}

// What was packed is added as a tensor with the strides of the output.
void add_packed_on_cpu(const Plan& plan, std::size_t bytes, const TensorView& out, const Then& then,
                       const RunOptions& options) {
  const ConstTensorView like{out};
  if (FlatView(like).dense(0, out.shape.elems()) == nullptr) {
    invalid("[unpack_then] with packed_add the tensor must be contiguous");
  }
  std::vector<std::byte> unpacked(static_cast<std::size_t>(out.shape.elems()) *
                                  size_bytes(out.dtype));
  TensorView other = out;
  other.data = unpacked.data();
  plan.unpack({then.packed_add, bytes}, other, options);
  if (then.add_scale != nullptr) {
    const Then scaled{.scale = then.add_scale,
                      .shift = then.add_shift,
                      .channels = then.channels,
                      .inner = then.inner};
    apply_on_cpu(other, scaled, thread_count(options.threads));
  }
  Then with = then;
  with.add = unpacked.data();
  apply_on_cpu(out, with, thread_count(options.threads));
}

// Whether block_quant's kernel was launched for it.
bool unpack_fused(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                  const Then& then, void* stream) {
  return &block_quant::kCudaUnpackThen != nullptr && then::is_block_quant(plan, packed, out) &&
         block_quant::kCudaUnpackThen.unpack(plan.spec().stages()[0], packed, out, then, stream);
}

}  // namespace

bool then::is_block_quant(const Plan& plan, std::span<const std::byte> packed,
                          const TensorView& out) {
  const auto stages = plan.spec().stages();
  return stages.size() == 1 && stages[0].codec->name == "block_quant" &&
         out.dtype == plan.dtype() && out.shape == plan.shape() &&
         packed.size() == plan.layout().max_bytes &&
         reinterpret_cast<std::uintptr_t>(packed.data()) % 16 == 0 && out.shape.elems() > 0;
}

void unpack_then(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                 const Then& then, const RunOptions& options) {
  check(out, then);
  const bool on_cuda = out.device == Device::Cuda;
  if (on_cuda && unpack_fused(plan, packed, out, then, options.cuda.stream)) return;
  if (on_cuda && then.packed_add != nullptr) {
    fail(Errc::Unsupported,
         "[unpack_then] packed_add is for block_quant of 2, 4 and 8 bits and multiples of 16 "
         "contiguous values at multiples of 16 bytes; unpack it, and give add");
  }
  plan.unpack(packed, out, options);
  if (out.shape.elems() == 0) return;
  if (on_cuda) {
    then::kCuda.apply(out, then, options.cuda.stream);
  } else if (then.packed_add == nullptr) {
    apply_on_cpu(out, then, thread_count(options.threads));
  } else {
    add_packed_on_cpu(plan, packed.size(), out, then, options);
  }
}

}  // namespace tuckfold
