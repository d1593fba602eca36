// cross_entropy: checks, and the CPU, which adds up in double precision.
#include "codec/loss/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/strided.h"

namespace tuckfold {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void check_dense(const char* name, const ConstTensorView& tensor) {
  if (tensor.dtype != DType::F32 && tensor.dtype != DType::F16 && tensor.dtype != DType::BF16) {
    invalid("[cross_entropy] {} must be f32, f16 or bf16, got {}", name, to_string(tensor.dtype));
  }
  if (tensor.shape.rank() != 2) {
    invalid("[cross_entropy] {} must have rows of classes, got {}", name, to_string(tensor.shape));
  }
  const std::int64_t elems = tensor.shape.elems();
  if (elems > 0 && FlatView(tensor).dense(0, elems) == nullptr) {
    invalid("[cross_entropy] {} must be contiguous", name);
  }
}

void check_given(bool is_given) {
  if (!is_given) invalid("[cross_entropy] classes, sums and what is made of them must be given");
}

bool is_on_cuda(const ConstTensorView& logits) {
  if (logits.device != Device::Cuda) return false;
  if (&loss::kCudaCrossEntropy == nullptr) {
    fail(Errc::Unsupported, "[cross_entropy] this build has no CUDA kernels");
  }
  return true;
}

template <class T>
double loaded(T value) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<double>(to_float(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T stored(double value) {
  const auto single = static_cast<float>(value);
  if constexpr (std::is_same_v<T, F16>) return to_f16(single);
  if constexpr (std::is_same_v<T, BF16>) return to_bf16(single);
  if constexpr (std::is_same_v<T, float>) return single;
}

// Calls body with a value of the type.
void for_type(DType dtype, const auto& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

// Calls body with each row's number and first value.
template <class T>
void for_rows(const ConstTensorView& logits, int threads, const auto& body) {
  const T* x = static_cast<const T*>(logits.data);
  parallel_for(logits.shape[0], threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row, x + row * logits.shape[1]);
  });
}

}  // namespace

void cross_entropy(const ConstTensorView& logits, const Classes& classes, float* losses,
                   RowSum* sums, const RunOptions& options) {
  check_dense("logits", logits);
  if (logits.shape[0] == 0) return;
  check_given(classes.of_rows != nullptr && losses != nullptr && sums != nullptr);
  if (is_on_cuda(logits)) {
    return loss::kCudaCrossEntropy.run(logits, classes, losses, sums, options.cuda.stream);
  }
  const std::int64_t length = logits.shape[1];
  for_type(logits.dtype, [&]<class T>(T) {
    for_rows<T>(logits, thread_count(options.threads), [&](std::int64_t row, const T* x) {
      double most = std::numeric_limits<float>::lowest(), sum = 0;
      for (std::int64_t i = 0; i < length; ++i) most = std::max(most, loaded(x[i]));
      for (std::int64_t i = 0; i < length; ++i) sum += std::exp(loaded(x[i]) - most);
      sums[row] = {static_cast<float>(most), static_cast<float>(sum)};
      const std::int64_t at = classes.of_rows[row];
      const bool is_known = at >= 0 && at < length;
      const double value = is_known ? std::log(sum) - (loaded(x[at]) - most) : kNan;
      losses[row] = at == classes.ignored ? 0.0f : static_cast<float>(value);
    });
  });
}

void cross_entropy_gradient(const ConstTensorView& logits, const Classes& classes,
                            const RowSum* sums, const float* scale, const TensorView& out,
                            const RunOptions& options) {
  check_dense("logits", logits);
  check_dense("out", ConstTensorView{out});
  if (out.dtype != logits.dtype || out.shape != logits.shape || out.device != logits.device) {
    invalid(
        "[cross_entropy] out must have the dtype, the shape and the device of logits, got {} {}",
        to_string(out.dtype), to_string(out.shape));
  }
  if (logits.shape.elems() == 0) return;
  check_given(classes.of_rows != nullptr && sums != nullptr && scale != nullptr);
  if (is_on_cuda(logits)) {
    return loss::kCudaCrossEntropy.run_gradient(logits, classes, sums, scale, out,
                                                options.cuda.stream);
  }
  const std::int64_t length = logits.shape[1];
  for_type(logits.dtype, [&]<class T>(T) {
    for_rows<T>(logits, thread_count(options.threads), [&](std::int64_t row, const T* x) {
      T* to = static_cast<T*>(out.data) + row * length;
      const std::int64_t at = classes.of_rows[row];
      if (at == classes.ignored) {
        std::fill_n(to, length, stored<T>(0));
        return;
      }
      const bool is_known = at >= 0 && at < length;
      const double most = sums[row].most, sum = sums[row].sum;
      const double by = is_known ? static_cast<double>(*scale) : kNan;
      for (std::int64_t i = 0; i < length; ++i) {
        to[i] = stored<T>((std::exp(loaded(x[i]) - most) / sum - (i == at ? 1 : 0)) * by);
      }
    });
  });
}

}  // namespace tuckfold
