// Linear layers whose matrix has a structure: fewer weights, fewer operations.
//
//   StructuredLayer layer("butterfly(tied=true)", 784, 10);
//   for (const WeightInfo& weight : layer.weights()) …          // "twiddle", 1x1x1023x2x2
//   layer.forward(x, weights, &bias, y);                        // y = x W^T + bias
//   layer.backward(x, grad_y, weights, {.x = &grad_x, .weights = grads, .bias = &grad_bias});
//
// x is samples x in, y is samples x out, both row-major. Backward needs x and the weights, nothing that
// forward would have to keep. The same call gives the same bits on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/export.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

namespace structured {
struct Layer;
}

struct WeightInfo {
  std::string name;  // "twiddle"
  Shape shape;
  bool trained = true;  // false for a permutation, of I64
  // The standard deviation of a normal distribution that keeps the variance of x in y, at first.
  double deviation = 0;
};

struct StructuredOptions {
  int threads = 0;  // 0: every core
  // For tensors of Device::Cuda: a cudaStream_t, and memory of the device, workspace_bytes() of it; where
  // there is none, it is allocated in the order of the stream.
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// Where gradients go; what is null is not computed. `weights` has a place for each weight, or none at
// all; the place of a permutation is ignored.
struct StructuredGradients {
  const TensorView* x = nullptr;
  std::span<const TensorView> weights{};
  const TensorView* bias = nullptr;
};

// Bytes that a training step holds because of one layer, by what they are for.
struct StepMemory {
  std::int64_t weights = 0;    // the bias and permutations among them
  std::int64_t gradients = 0;  // of what is trained
  std::int64_t optimizer = 0;  // its states, each as large as what is trained
  std::int64_t saved = 0;      // x, from forward to backward
  std::int64_t passing = 0;    // the gradients of y and of x, while backward runs
  std::int64_t workspace = 0;  // of the CPU's kernels

  std::int64_t peak() const {
    return weights + gradients + optimizer + saved + passing + workspace;
  }
};
struct StepOptions {
  bool bias = true;
  int states = 1;  // of the optimizer, for each weight: 0 for plain SGD, 1 for momentum, 2 for Adam
  int threads = 0;  // 0: every core
};

class TUCKFOLD_API StructuredLayer {
 public:
  // Throws InvalidArgument for a text that is none, or sizes that do not fit it.
  StructuredLayer(std::string_view text, std::int64_t in, std::int64_t out);

  const std::string& text() const;  // canonical: defaults are left out
  std::int64_t in() const;
  std::int64_t out() const;
  std::span<const WeightInfo> weights() const;

  std::int64_t weight_count() const;         // what is trained, without the bias
  double flops(std::int64_t samples) const;  // forward, a multiplication and an addition are two
  std::int64_t saved_bytes(DType dtype, std::int64_t samples) const;  // for backward: x

  // The peak of a training step on the CPU: that of its backward pass.
  StepMemory step_memory(DType dtype, std::int64_t samples, const StepOptions& options = {}) const;

  // All tensors of one dtype of F32, F64, F16 and BF16 (arithmetic is in F32 for the last two), on one
  // device, row-major; the bias may be null. CUDA tensors: see has_cuda().
  void forward(const ConstTensorView& x, std::span<const ConstTensorView> weights,
               const ConstTensorView* bias, const TensorView& y,
               const StructuredOptions& options = {}) const;
  void backward(const ConstTensorView& x, const ConstTensorView& grad_y,
                std::span<const ConstTensorView> weights, const StructuredGradients& gradients,
                const StructuredOptions& options = {}) const;
  // Whether kernels of this build take tensors of Device::Cuda: butterflies of 8 to 8192 features.
  bool has_cuda(DType dtype) const;
  // What forward or backward needs on the current CUDA device beside its tensors.
  std::size_t workspace_bytes(DType dtype, std::int64_t samples, bool backward) const;

  // The matrix, out x in, in double precision.
  std::vector<double> to_dense(std::span<const ConstTensorView> weights) const;

 private:
  std::shared_ptr<const structured::Layer> layer_;
};

struct StructureOption {
  std::string name, summary;
  std::string initial;  // its default, as text
  std::int64_t least = 0, most = 0;
  std::vector<std::string> words;  // not empty: one of these
};
struct StructureInfo {
  std::string name, summary;
  std::vector<StructureOption> options;
};
// Every family of this build.
TUCKFOLD_API std::span<const StructureInfo> structures();

}  // namespace tuckfold
