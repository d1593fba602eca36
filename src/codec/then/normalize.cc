#include "codec/then/normalize.h"

#include <algorithm>
#include <type_traits>

#include "base/fail.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/then/normalize_block.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPart = 16384;  // values of a thread's share, at least

void check_tensor(const char* name, const ConstTensorView& tensor, const ConstTensorView& x) {
  if (tensor.dtype != x.dtype || tensor.shape != x.shape || tensor.device != x.device) {
    invalid("[normalize] {} must have the dtype, the shape and the device of x, got {} {}", name,
            to_string(tensor.dtype), to_string(tensor.shape));
  }
  const std::int64_t elems = tensor.shape.elems();
  if (elems > 0 && FlatView(tensor).dense(0, elems) == nullptr) {
    invalid("[normalize] {} must be contiguous", name);
  }
}

void check(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
           const Normalization& how) {
  if (x.dtype != DType::F32 && x.dtype != DType::F16 && x.dtype != DType::BF16) {
    invalid("[normalize] x must be f32, f16 or bf16, got {}", to_string(x.dtype));
  }
  check_tensor("x", x, x);
  if (add != nullptr) check_tensor("add", *add, x);
  check_tensor("out", ConstTensorView{out}, x);
  const std::int64_t elems = x.shape.elems();
  if (elems == 0) return;
  if (how.channels < 1 || how.inner < 1) {
    invalid("[normalize] channels and inner must be 1 or more, got {} and {}", how.channels,
            how.inner);
  }
  if (how.inner > elems || elems % how.inner != 0 || elems / how.inner % how.channels != 0) {
    invalid("[normalize] {} values are not whole samples of {} channels with {} values each", elems,
            how.channels, how.inner);
  }
  for (const float* each : {how.mean, how.invstd, how.weight, how.bias}) {
    if (each == nullptr) invalid("[normalize] mean, invstd, weight and bias must be given");
  }
}

template <class T>
float rounded(float value) {
  if constexpr (std::is_same_v<T, F16>) return to_float(to_f16(value));
  if constexpr (std::is_same_v<T, BF16>) return to_float(to_bf16(value));
  return value;
}

template <class T>
float loaded(T value) {
  if constexpr (sizeof(T) == 2) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T>
T stored(float value) {
  if constexpr (std::is_same_v<T, F16>) return to_f16(value);
  if constexpr (std::is_same_v<T, BF16>) return to_bf16(value);
  if constexpr (std::is_same_v<T, float>) return value;
}

template <class T>
void run_on_cpu(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
                const Normalization& how, int threads) {
  const T *from = static_cast<const T*>(x.data),
          *other = add == nullptr ? nullptr : static_cast<const T*>(add->data);
  T* to = static_cast<T*>(out.data);
  const std::int64_t elems = x.shape.elems();
  parallel_for((elems + kPart - 1) / kPart, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kPart, last = std::min(elems, end * kPart);
    std::int64_t channel = first / how.inner % how.channels, past = first % how.inner;
    for (std::int64_t i = first; i < last; ++i) {
      const then::Factors of{how.mean[channel], how.invstd[channel], how.weight[channel],
                             how.bias[channel]};
      float y = rounded<T>(then::normalized(loaded(from[i]), of));
      if (other != nullptr) y = rounded<T>(y + loaded(other[i]));
      to[i] = stored<T>(how.relu ? then::rectified(y) : y);
      if (++past < how.inner) continue;
      past = 0;
      channel = channel + 1 == how.channels ? 0 : channel + 1;
    }
  });
}

template <class T, class U>
void rows_on_cpu(const ConstTensorView& x, const TensorView& out, const RowNormalization& how,
                 int threads) {
  const T* from = static_cast<const T*>(x.data);
  U* to = static_cast<U*>(out.data);
  parallel_for(x.shape.elems() / how.length, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t i = 0; i < how.length; ++i) {
        const float y = then::normalized_in_row(loaded(from[row * how.length + i]), how.mean[row],
                                                how.invstd[row], how.weight[i], how.bias[i]);
        to[row * how.length + i] = stored<U>(rounded<T>(y));
      }
    }
  });
}

// Calls body with a value of the type.
void for_type(DType dtype, const auto& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

void check_cuda() {
  if (&then::kCudaNormalize == nullptr) {
    fail(Errc::Unsupported, "[normalize] this build has no CUDA kernels");
  }
}

}  // namespace

void check_rows(const ConstTensorView& x, const TensorView& out, const RowNormalization& how) {
  const auto is_float = [](DType dtype) {
    return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
  };
  if (!is_float(x.dtype) || !is_float(out.dtype)) {
    invalid("[normalize] x and out must be f32, f16 or bf16, got {} and {}", to_string(x.dtype),
            to_string(out.dtype));
  }
  check_tensor("x", x, x);
  ConstTensorView as_x{out};
  as_x.dtype = x.dtype;
  check_tensor("out", as_x, x);
  const std::int64_t elems = x.shape.elems();
  if (elems == 0) return;
  if (how.length < 1 || elems % how.length != 0) {
    invalid("[normalize] {} values are not whole rows of {}", elems, how.length);
  }
  for (const float* each : {how.mean, how.invstd, how.weight, how.bias}) {
    if (each == nullptr) invalid("[normalize] mean, invstd, weight and bias must be given");
  }
}

void normalize_rows(const ConstTensorView& x, const TensorView& out, const RowNormalization& how,
                    const RunOptions& options) {
  check_rows(x, out, how);
  if (x.shape.elems() == 0) return;
  if (x.device == Device::Cuda) {
    check_cuda();
    return then::kCudaNormalize.run_rows(x, out, how, options.cuda.stream);
  }
  const int threads = thread_count(options.threads);
  for_type(x.dtype, [&]<class T>(T) {
    for_type(out.dtype, [&]<class U>(U) { rows_on_cpu<T, U>(x, out, how, threads); });
  });
}

void normalize(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
               const Normalization& how, const RunOptions& options) {
  check(x, add, out, how);
  if (x.shape.elems() == 0) return;
  if (x.device == Device::Cuda) {
    check_cuda();
    return then::kCudaNormalize.run(x, add, out, how, options.cuda.stream);
  }
  const int threads = thread_count(options.threads);
  for_type(x.dtype, [&]<class T>(T) { run_on_cpu<T>(x, add, out, how, threads); });
}

}  // namespace tuckfold
